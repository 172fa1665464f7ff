"""Temporary mixed serving: how far placement may use one role's workers for the other phase, by how loaded roles are.

Placement mixes by itself within the limits of the spec. Where prefill is short and decode has room, decode workers may
delay their residents as often as the objective's percentile leaves room for, and prefill workers no longer generate
what they computed: that bridges the seconds until flips work, and what no flip can cure.
"""

from collections.abc import Mapping
from dataclasses import replace

from swingpool_control import names
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.of_spec import OVER_SHARE, default_limits

SHORT, RECOVERED = 1.0, 0.8
"""Load of prefill from which on it is helped, and under which it no longer is."""

ROOM = 0.8
"""Load of decode under which it helps."""

HELPING_SHARE = 0.8
"""Share, of the times between tokens that may be longer than the objective, that deflection may use then."""


def limits(spec: InferenceClusterSpec, loads: Mapping[str, float], *, before: DeflectionLimits) -> DeflectionLimits:
    """Return the limits for the present loads.

    Args:
        spec: the cluster's spec.
        loads: by role.
        before: the limits that hold.
    """
    usual = default_limits(spec.objectives)
    helped = before != usual
    short = loads[names.ROLE_PREFILL] >= (RECOVERED if helped else SHORT)
    if not short or loads[names.ROLE_DECODE] >= ROOM:
        return usual
    return replace(usual, over_share=min(1.0, usual.over_share / OVER_SHARE * HELPING_SHARE), prefill_keeps=False)
