"""Events: told once, never a flood, and no trouble if they cannot be written."""

from dataclasses import dataclass, field
from typing import cast

from swingpool.kube import KubeError, Object
from swingpool.manager.events import BURST, MESSAGE_LIMIT, REFILL_S, REPEAT_S, Recorder
from swingpool.manager.store import Key
from swingpool.manager.writes import Writes

CLUSTER: Object = {"metadata": {"namespace": "ns", "name": "chat", "uid": "u-1", "resourceVersion": "7"}}


@dataclass
class Sink:
    events: list[Object] = field(default_factory=list)
    broken: bool = False

    async def create(self, obj: Object) -> None:
        if self.broken:
            raise KubeError(status=403, reason="Forbidden", message="no")
        self.events.append(obj)


@dataclass
class Fixture:
    sink: Sink = field(default_factory=Sink)
    now: float = 1_800_000_000.0

    def __post_init__(self) -> None:
        self.recorder = Recorder(cast(Writes, self.sink), component="pod-0", now_unix_s=lambda: self.now)


async def test_the_same_is_told_once_and_again_after_a_while() -> None:
    fixture = Fixture()
    for _ in range(100):
        await fixture.recorder.tell(CLUSTER, "Normal", "Flipped", "swing-0 now prefills")
    assert len(fixture.sink.events) == 1
    fixture.now += REPEAT_S + 1
    await fixture.recorder.tell(CLUSTER, "Normal", "Flipped", "swing-0 now prefills")
    assert len(fixture.sink.events) == 2


async def test_an_hour_of_ever_new_messages_is_bounded() -> None:
    fixture = Fixture()
    for second in range(3600):
        fixture.now += 1
        await fixture.recorder.tell(CLUSTER, "Warning", "Flapping", f"value {second}")
    assert len(fixture.sink.events) <= BURST + 3600 / REFILL_S + 1


async def test_one_cluster_does_not_use_up_the_events_of_another() -> None:
    fixture = Fixture()
    for number in range(100):
        await fixture.recorder.tell(CLUSTER, "Normal", "R", str(number))
    other = {"metadata": {"namespace": "ns", "name": "other", "uid": "u-2"}}
    await fixture.recorder.tell(other, "Normal", "R", "0")
    assert fixture.sink.events[-1]["involvedObject"]["name"] == "other"


async def test_an_event_points_at_its_cluster_and_fits_the_api() -> None:
    fixture = Fixture()
    await fixture.recorder.tell(CLUSTER, "Warning", "DriftCorrected", "x" * 5000)
    event = fixture.sink.events[0]
    assert event["involvedObject"]["uid"] == "u-1"
    assert event["involvedObject"]["kind"] == "InferenceCluster"
    assert (event["type"], event["reason"], len(event["message"])) == ("Warning", "DriftCorrected", MESSAGE_LIMIT)


async def test_limits_of_the_api_count_bytes() -> None:
    fixture = Fixture()
    fixture.recorder = Recorder(cast(Writes, fixture.sink), component="p" * 200, now_unix_s=lambda: fixture.now)
    await fixture.recorder.tell(CLUSTER, "Warning", "R", "x" + "\u00fc" * 1000 + "\ud800")
    event = fixture.sink.events[0]
    assert event["message"] == "x" + "\u00fc" * 511
    assert len(event["reportingInstance"]) == 128


async def test_an_event_that_cannot_be_written_is_dropped() -> None:
    fixture = Fixture()
    fixture.sink.broken = True
    await fixture.recorder.tell(CLUSTER, "Normal", "R", "m")
    assert fixture.sink.events == []


async def test_memory_of_a_cluster_ends_with_it() -> None:
    fixture = Fixture()
    await fixture.recorder.tell(CLUSTER, "Normal", "R", "m")
    fixture.recorder.forget(Key("ns", "chat"))
    assert vars(fixture.recorder)["_budgets"] == {}
