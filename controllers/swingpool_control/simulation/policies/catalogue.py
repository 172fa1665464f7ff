"""Every policy that can be simulated, by name."""

from functools import partial

from swingpool_control.simulation.policies.interface import Policy
from swingpool_control.simulation.policies.live import Features, Live
from swingpool_control.simulation.policies.static import Static

OURS = Policy(
    name="ours",
    about="Roles and replicas as the live manager decides them, placement as the live router does.",
    make=partial(Live, features=Features()),
    swings=True,
)

POLICIES = {
    policy.name: policy
    for policy in (
        OURS,
        Policy(
            name="no-swing",
            about="Ours, but swing workers keep their roles.",
            make=partial(Live, features=Features(swing=False)),
        ),
        Policy(
            name="no-deflection",
            about="Ours, but no prompt is computed where its tokens are generated.",
            make=partial(Live, features=Features(deflection=False)),
            swings=True,
        ),
        Policy(name="static", about="The workers of the start, in their roles.", make=Static),
    )
}
"""Policies by name, ours first."""
