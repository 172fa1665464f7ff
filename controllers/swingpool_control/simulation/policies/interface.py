"""What a policy is: who decides roles, replicas and placement, fed only with what a live system would observe.

A policy is called once a period. It looks at the cluster through its `Board` as often as it likes, and acts through
it; whatever it remembers, it keeps itself. Requests between two rounds are placed by its `Placing`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from swingpool_control.actions import Action
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.simulation.counters import Counters
from swingpool_control.simulation.placer import Placer
from swingpool_control.simulation.policies import shortest_queue
from swingpool_control.simulation.policies.candidates import Candidate, Placement, PlacementRequest
from swingpool_control.simulation.traffic import Arrival
from swingpool_control.view import ClusterView


class Place(Protocol):
    """Decides where a request goes, when it comes."""

    def __call__(
        self, request: PlacementRequest, candidates: Sequence[Candidate], *, tie: int, failed: frozenset[str] = ...
    ) -> Placement:
        """Return the decision."""
        ...


class DecodeOrder(Protocol):
    """Decides where a request generates once its prompt is computed."""

    def __call__(
        self, request: PlacementRequest, candidates: Sequence[Candidate], *, tie: int, without: str = ...
    ) -> tuple[str, ...]:
        """Return workers, best first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Placing:
    """How requests are placed."""

    place: Place = shortest_queue.place
    decode_order: DecodeOrder = shortest_queue.decode_order
    late_binding: bool = False
    """Whether a prompt may wait in the router until a worker is nearly free, instead of at a worker."""
    deflection: bool = False
    """Whether a prompt may be computed where its tokens are generated."""
    placer: Callable[[PlacementSettings], Placer] | None = None
    """Makes whoever places requests in another way than by the rules above; None if they are all."""


JOIN_SHORTEST_QUEUE = Placing()
"""Every request goes at once to the prefill worker with the fewest waiting prompt tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What whoever sets up a policy knows before it begins."""

    spec: InferenceClusterSpec
    models: Mapping[str, PerformanceModel]
    """By pool."""
    startup_s: Mapping[str, float]
    """By pool: from a pod's creation to its first answer."""
    future: Callable[[], Iterable[Arrival]] | None = None
    """All requests that will come; only for a policy that says it is clairvoyant."""


class Board(Protocol):
    """What lies before a policy in one round."""

    def view(self, status: InferenceClusterStatus) -> ClusterView:
        """Return the cluster as the manager sees it now, with the status that the policy would have written."""
        ...

    def counters(self) -> Counters:
        """Return the totals up to now."""
        ...

    def act(self, actions: tuple[Action, ...]) -> list[str]:
        """Carry out actions in their order; return the uids of workers whose change was refused."""
        ...


class Deciding(Protocol):
    """A policy at work on one cluster."""

    @property
    def placing(self) -> Placing:
        """How requests are placed."""
        ...

    @property
    def flips(self) -> tuple[FlipRecord, ...]:
        """Changes of role that are remembered, newest first; always empty for a policy without such."""
        ...

    def round(self, board: Board, *, now_unix_s: float) -> None:
        """Look and act; called once a period."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A policy by name."""

    name: str
    about: str
    """One sentence: what it does and where its rules are from."""
    make: Callable[[Given], Deciding]
    """Sets it to work.

    Raises:
        PolicyError: it cannot work on this cluster.
    """
    clairvoyant: bool = False
    """Whether it must be told the future."""
    swings: bool = False
    """Whether it changes workers' roles; if not, it leaves swing workers where they are."""


class PolicyError(ValueError):
    """A policy cannot work on the cluster; the message says what to change."""
