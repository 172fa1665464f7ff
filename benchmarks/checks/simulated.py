"""Small clusters of fixed workers, simulated with any performance model, for whoever looks at single requests."""

from collections.abc import Iterable, Mapping
from random import Random

from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.placement.account import Account
from swingpool_control.placement.ticket import Ticket
from swingpool_control.simulation.at_once import AtOnce
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.outcome import Outcome
from swingpool_control.simulation.policies import aggregated
from swingpool_control.simulation.policies.interface import JOIN_SHORTEST_QUEUE, Given, Placing, Policy
from swingpool_control.simulation.policies.static import Static
from swingpool_control.simulation.settings import Latencies, Settings
from swingpool_control.simulation.traffic import Arrival

PREFILL, DECODE = "prefill", "decode"
AT_ONCE = Latencies(hop_s=0.0, watch_s=0.0, probe_s=0.0)
PATIENCE_S = 1e5
CLOSED_SHARE = 0.2
"""Of the requests of a closed loop, to fill it: they are not counted."""


class Noting(AtOnce):
    """Joins the shortest queue, and notes when each prompt was computed."""

    def __init__(self) -> None:
        super().__init__(JOIN_SHORTEST_QUEUE)
        self.computed_s: dict[int, float] = {}
        """By the request's number."""

    def generate(self, ticket: Ticket, origin: Account, now_s: float) -> Account | None:
        """Return who generates for a request whose prompt is computed."""
        self.computed_s[ticket.number] = now_s
        return super().generate(ticket, origin, now_s)


def split(noting: Noting) -> Policy:
    """Return the policy of fixed workers of two roles."""

    def make(given: Given) -> Static:
        return Static(given, Placing(placer=lambda _: noting))

    return Policy(name="split", about="Fixed workers of two roles, shortest queue.", make=make)


WHOLE = Policy(name="whole", about="Fixed workers that serve whole requests.", make=aggregated.make)


def spec() -> InferenceClusterSpec:
    """Return a cluster of two pools."""
    return InferenceClusterSpec.model_validate(
        {
            "model": {"name": "any"},
            "engine": {"type": "Simulated"},
            "objectives": {"ttft": {"p90": "1s"}, "itl": {"p90": "100ms"}},
            "pools": [
                {"name": name, "role": name.title(), "replicas": {"mode": "Fixed", "count": 1}}
                for name in (PREFILL, DECODE)
            ],
        }
    )


def settings(policy: Policy, workers: Mapping[str, int], latencies: Latencies) -> Settings:
    """Return how to simulate it."""
    return Settings(
        policy=policy,
        latencies=latencies,
        replicas=workers,
        startup_s=0.0,
        prefix_caching=False,
        swing_period_s=60.0,
        queue_timeout_s=PATIENCE_S,
    )


def outcomes(
    arrivals: Iterable[Arrival],
    policy: Policy,
    models: Mapping[str, PerformanceModel],
    *,
    workers: Mapping[str, int],
    latencies: Latencies = AT_ONCE,
) -> list[Outcome]:
    """Simulate; return every request's outcome, in the order of their ends.

    Args:
        arrivals: the requests.
        policy: `WHOLE`, or one that `split` makes.
        models: by pool.
        workers: by pool.
        latencies: of what is no computation.
    """
    found: list[Outcome] = []
    Simulation(
        spec(),
        arrivals,
        settings(policy, workers, latencies),
        failures=Random(0),
        known=models,
        ended=found.append,
    ).run()
    return found


class ClosedLoop:
    """So many clients, each of which sends its next request when the last one is answered.

    Args:
        request: what they send.
        clients: how many they are.
        requests: how many are sent in all.
        policy: as for `outcomes`.
        model: of all workers.
        workers: by pool.
    """

    def __init__(
        self,
        request: Arrival,
        *,
        clients: int,
        requests: int,
        policy: Policy,
        model: PerformanceModel,
        workers: Mapping[str, int],
    ) -> None:
        self._request = request
        self._left = requests - clients
        """Requests that nobody has sent yet."""
        self._answered: list[Outcome] = []
        # They begin one after the other, as clients do that are started together.
        self._simulation = Simulation(
            spec(),
            [request._replace(at_s=number / 100) for number in range(clients)],
            settings(policy, workers, Latencies()),
            failures=Random(0),
            known={PREFILL: model, DECODE: model},
            ended=self._next,
        )

    def _next(self, outcome: Outcome) -> None:
        self._answered.append(outcome)
        if self._left > 0:
            self._left -= 1
            self._simulation.send(self._request._replace(at_s=self._simulation.now_s))

    def answered(self) -> list[Outcome]:
        """Run; return the outcomes of all requests but the first ones."""
        self._simulation.run()
        return self._answered[int(CLOSED_SHARE * len(self._answered)) :]
