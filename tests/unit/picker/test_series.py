"""Series tell Prometheus what its own client library would."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from swingpool.picker.series import Counts, Distributions

BOUNDS = (0.005, 0.5, 1.0, 20.0)
SIZES = [0.0, 0.005, 0.25, 0.5, 20.0, 21.5]
VALUES = st.lists(st.tuples(st.sampled_from(["a", 'b"\n\\', "ü"]), st.sampled_from(SIZES)))


def told(register: Callable[[CollectorRegistry], None]) -> list[str]:
    registry = CollectorRegistry()
    register(registry)
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


@given(VALUES)
def test_they_tell_what_the_client_library_tells(values: list[tuple[str, float]]) -> None:
    def ours(registry: CollectorRegistry) -> None:
        counts, sizes = Counts("x_hits", "Hits.", ("who",)), Distributions("x_s", "Sizes.", ("who",), bounds=BOUNDS)
        plain, alone = Counts("x_all", "All."), Distributions("x_alone", "Alone.", bounds=BOUNDS)
        for one in (counts, sizes, plain, alone):
            registry.register(one)
        for who, value in values:
            counts.labels(who).inc(value)
            sizes.labels(who).observe(value)
            plain.inc()
            alone.observe(value)

    def theirs(registry: CollectorRegistry) -> None:
        counts = Counter("x_hits", "Hits.", ["who"], registry=registry)
        sizes = Histogram("x_s", "Sizes.", ["who"], buckets=BOUNDS, registry=registry)
        plain = Counter("x_all", "All.", registry=registry)
        alone = Histogram("x_alone", "Alone.", buckets=BOUNDS, registry=registry)
        for who, value in values:
            counts.labels(who).inc(value)
            sizes.labels(who).observe(value)
            plain.inc()
            alone.observe(value)

    assert told(ours) == told(theirs)
