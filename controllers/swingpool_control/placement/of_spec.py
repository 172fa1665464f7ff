"""What placement goes by, from an InferenceCluster's spec."""

from swingpool_control.api.v1alpha1 import InferenceClusterSpec, Objectives
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.settings import STANDARD, PlacementSettings, RequestClass
from swingpool_control.sizing.objectives import by_percentile

ITL_SHARE = 0.9
"""Share of the objective up to which residents may wait for a prompt at any time: the model may be off by the rest."""
OVER_SHARE = 0.2
"""Share, of the times between tokens that may be longer than the objective, that deflection may use."""


def settings_of(spec: InferenceClusterSpec) -> PlacementSettings:
    """Return what the built-in router's placement goes by."""
    ttft_s = max(by_percentile(spec.objectives.ttft).values())
    return PlacementSettings(
        classes=(RequestClass(name=STANDARD, ttft_s=ttft_s),), limits=default_limits(spec.objectives)
    )


def default_limits(objectives: Objectives) -> DeflectionLimits:
    """Return how far placement may deflect as long as the swing controller has not said so."""
    name, itl_s = list(by_percentile(objectives.itl).items())[-1]
    beyond = 1.0 - int(name[1:]) / 100
    return DeflectionLimits(itl_s=ITL_SHARE * itl_s, over_share=OVER_SHARE * beyond)
