"""The virtual clock: an order that depends on nothing but the events."""

from hypothesis import given
from hypothesis import strategies as st

from swingpool_control.simulation.events import Later, Timeline, Waiting


class Noted(Waiting):
    """Notes when it was due; waits once more if it is to."""

    def __init__(self, timeline: Timeline, seen: list[tuple[float, int]], number: int) -> None:
        super().__init__()
        self.timeline = timeline
        self.seen = seen
        self.number = number
        self.again: Later | None = None

    def due(self) -> None:
        self.seen.append((self.timeline.now_s, self.number))
        if self.again is not None:
            self.again.add(self)
            self.again = None


def test_events_of_one_moment_happen_as_they_were_asked_for() -> None:
    timeline, seen = Timeline(), list[str]()
    for name in "abc":
        timeline.at(1.0, lambda name=name: seen.append(name))  # type: ignore[misc]
    timeline.at(0.5, lambda: timeline.at(0.0, lambda: seen.append("late")))
    while timeline.step():
        pass
    assert seen == ["late", "a", "b", "c"]
    assert timeline.now_s == 1.0


@given(waits=st.lists(st.tuples(st.integers(0, 50), st.none() | st.integers(0, 60), st.booleans()), max_size=12))
def test_what_waits_equally_long_is_due_at_its_time_unless_it_is_not_wanted(
    waits: list[tuple[int, int | None, bool]],
) -> None:
    timeline, seen = Timeline(), list[tuple[float, int]]()
    later = Later(timeline, 10.0)
    expected: list[tuple[float, int]] = []
    for number, (at_s, dropped_s, again) in enumerate(waits):
        noted = Noted(timeline, seen, number)
        noted.again = later if again else None
        timeline.at(at_s, lambda noted=noted: later.add(noted))  # type: ignore[misc]
        due = [at_s + 10.0, at_s + 20.0][: 1 + again]
        if dropped_s is not None:
            # Half a second beside all others, so that it is clear what comes first.
            timeline.at(dropped_s + 0.5, lambda noted=noted: setattr(noted, "wanted", False))  # type: ignore[misc]
            due = [due_s for due_s in due if due_s < dropped_s + 0.5]
        expected += [(due_s, number) for due_s in due]
    while timeline.step():
        pass
    assert sorted(seen) == sorted(expected)
