"""What workers' caches hold is known as it is, whatever was sent to whom."""

from collections.abc import Mapping
from random import Random

from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.placement.dispatcher import Dispatcher
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.simulation.caches import Caches, ToldCaches
from swingpool_control.simulation.cluster import Simulation
from swingpool_control.simulation.placer import Placer
from swingpool_control.simulation.policies.interface import Given, Placing, Policy
from swingpool_control.simulation.policies.static import Static
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Arrival
from tests.support.simulations import spec

BLOCK_TOKENS = 16
POOLS = [
    {"name": name, "role": name.capitalize(), "engine": {"blockSize": BLOCK_TOKENS}} for name in ("prefill", "decode")
]
PROMPT = (7, 8, 9)


def told() -> tuple[Simulation, Caches]:
    """A simulation whose placement sees the caches, and what it sees."""
    made: list[Caches] = []

    def engines() -> Mapping[str, BatchingEngine]:
        return simulation.engines()

    def placer(settings: PlacementSettings) -> Placer:
        made.append(Caches(engines))
        dispatcher = Dispatcher(settings)
        dispatcher.roster.present.believed = made[0]
        return dispatcher

    def make(given: Given) -> Static:
        return Static(given, Placing(placer=placer))

    arrivals = [Arrival(at_s, 3 * BLOCK_TOKENS + 1, 2, PROMPT, BLOCK_TOKENS) for at_s in (0.0, 60.0)]
    policy = Policy(name="told", about="", make=make)
    simulation = Simulation(spec(POOLS), arrivals, Settings(policy=policy), failures=Random(0))
    return simulation, made[0]


def test_who_computed_a_prompt_and_who_fetched_it_are_known() -> None:
    simulation, caches = told()
    assert not caches.holders(PROMPT, now_s=0.0)
    simulation.run()
    assert caches.holders(PROMPT, now_s=simulation.now_s) == dict.fromkeys(simulation.engines(), 3)
    assert caches.holders((*PROMPT[:2], 1), now_s=simulation.now_s) == dict.fromkeys(simulation.engines(), 2)
    assert not caches.holders((1, *PROMPT), now_s=simulation.now_s)


def test_what_was_only_sent_is_not_believed() -> None:
    simulation, caches = told()
    worker = next(iter(simulation.engines()))
    caches.used(worker, PROMPT, most_blocks=100, now_s=0.0)
    assert caches.depth(worker, PROMPT, now_s=0.0) == 0


def test_what_was_sent_counts_until_it_is_told_of() -> None:
    simulation, _ = told()
    worker = next(iter(simulation.engines()))
    caches = ToldCaches(simulation.engines)
    caches.used(worker, PROMPT, most_blocks=100, now_s=0.0)
    assert caches.depth(worker, (*PROMPT[:2], 1), now_s=1.0) == 2
    assert caches.holders(PROMPT, now_s=1.0) == {worker: 3}
    simulation.run()
    assert caches.depth(worker, PROMPT, now_s=simulation.now_s) == 3
    simulation.engines()[worker].pool.forget_all()
    assert caches.depth(worker, PROMPT, now_s=1.0) == 0, "it was told of, and is gone"
    caches.used(worker, PROMPT, most_blocks=100, now_s=0.0)
    caches.forget(worker)
    assert caches.depth(worker, PROMPT, now_s=1.0) == 0
