"""What placement goes by, from an InferenceCluster's spec."""

import math

from swingpool_control.api import v1alpha1 as api
from swingpool_control.api.engine import SchedulingPolicy
from swingpool_control.api.quantities import seconds
from swingpool_control.api.v1alpha1 import InferenceClusterSpec, Objectives
from swingpool_control.observation import PERCENTILES
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.settings import STANDARD, PlacementSettings, RequestClass
from swingpool_control.sizing.objectives import by_percentile

ITL_SHARE = 0.9
"""Share of the objective up to which residents may wait for a prompt at any time: the model may be off by the rest."""
OVER_SHARE = 0.08
"""Share, of the times between tokens that may be longer than the objective, that deflection may use."""


def settings_of(spec: InferenceClusterSpec) -> PlacementSettings:
    """Return what the built-in router's placement goes by."""
    built_in = spec.router.built_in
    listed = {one.name: one for one in built_in.classes}
    ordered = [listed.pop(STANDARD, api.RequestClass(name=STANDARD)), *listed.values()]
    longest_s = max(by_percentile(spec.objectives.ttft).values())
    return PlacementSettings(
        classes=tuple(
            RequestClass(
                name=one.name,
                priority=one.priority,
                ttft_s=longest_s if one.ttft is None else seconds(one.ttft),
                age_s=seconds(one.age or built_in.order.age),
                most_wait_s=seconds(one.max_wait or built_in.overload.max_wait),
            )
            for one in ordered
        ),
        most_queued_tokens=math.inf
        if built_in.overload.max_queued_tokens is None
        else built_in.overload.max_queued_tokens,
        pass_priority=spec.engine.scheduling is SchedulingPolicy.PRIORITY,
        limits=default_limits(spec.objectives),
    )


def default_limits(objectives: Objectives) -> DeflectionLimits:
    """Return how far placement may deflect as long as the swing controller has not said so."""
    name, itl_s = list(by_percentile(objectives.itl).items())[-1]
    beyond = 1.0 - PERCENTILES[name]
    return DeflectionLimits(itl_s=ITL_SHARE * itl_s, over_share=OVER_SHARE * beyond)
