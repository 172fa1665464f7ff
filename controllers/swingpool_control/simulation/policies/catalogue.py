"""Every policy that can be simulated, by name."""

from functools import partial

from swingpool_control.simulation.policies import aggregated, splitwise
from swingpool_control.simulation.policies.clairvoyant import Clairvoyant
from swingpool_control.simulation.policies.dynamo_classic import Classic
from swingpool_control.simulation.policies.dynamo_planner import Config, Planner
from swingpool_control.simulation.policies.hpa import Utilization
from swingpool_control.simulation.policies.interface import Policy
from swingpool_control.simulation.policies.keda import Recipe, SloAware, TokenAware
from swingpool_control.simulation.policies.kthena import FixedRatio
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
            about="Ours, but no worker changes its role: swing pools are divided between the roles.",
            make=partial(Live, features=Features(swing=False)),
        ),
        Policy(
            name="no-forecast",
            about="Ours, but sizing looks only at what is there.",
            make=partial(Live, features=Features(forecast=False)),
            swings=True,
        ),
        Policy(
            name="no-deflection",
            about="Ours, but no prompt is computed where its tokens are generated.",
            make=partial(Live, features=Features(deflection=False)),
            swings=True,
        ),
        Policy(name="static", about="The workers of the start, in their roles.", make=Static, swings=True),
        Policy(
            name="aggregated",
            about="Without disaggregation: every worker of the start serves whole requests.",
            make=aggregated.make,
            swings=True,
        ),
        Policy(
            name="hpa",
            about="Kubernetes' HorizontalPodAutoscaler per role on the share of time in which workers are busy.",
            make=Utilization,
        ),
        Policy(
            name="hpa-kv",
            about="The same, decode by how full its KV cache is.",
            make=partial(Utilization, decode_by_kv=True),
        ),
        Policy(
            name="keda-slo",
            about="llm-d's SLO-aware KEDA recipe, one trigger per role.",
            make=partial(Recipe, formula=SloAware),
        ),
        Policy(
            name="keda-tokens",
            about="llm-d's token-aware KEDA recipe.",
            make=partial(Recipe, formula=TokenAware),
        ),
        Policy(
            name="dynamo-classic",
            about="NVIDIA Dynamo's first planner (0.4 to 1.0): one formula every 180 s.",
            make=Classic,
        ),
        Policy(
            name="dynamo",
            about="NVIDIA Dynamo's planner from 1.1 on, both loops, 180 s and 5 s.",
            make=Planner,
        ),
        Policy(
            name="dynamo-throughput",
            about="The same, its forecasting loop alone.",
            make=partial(Planner, config=Config(enable_load_scaling=False)),
        ),
        Policy(
            name="kthena",
            about="kthena's autoscaling with the start's ratio of prefill to decode kept.",
            make=FixedRatio,
        ),
        Policy(
            name="splitwise",
            about="Splitwise's mixed pool: the workers of the start, whose machines help the other role.",
            make=splitwise.make,
        ),
        Policy(
            name="clairvoyant",
            about="A schedule that knows the future, with the same start-up times: what others are measured against.",
            make=Clairvoyant,
            clairvoyant=True,
            swings=True,
        ),
    )
}
"""Policies by name, ours first."""
