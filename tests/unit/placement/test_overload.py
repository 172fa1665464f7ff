"""Who is refused, and until when."""

import math

import pytest

from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.overload import refusal
from swingpool_control.placement.settings import PlacementSettings, RequestClass
from swingpool_control.placement.ticket import Ticket
from tests.unit.placement.test_dispatcher import cluster

CLASSES = (
    RequestClass(most_wait_s=1.0),
    RequestClass(name="batch", priority=-1, most_wait_s=1.0),
    RequestClass(name="urgent", priority=1, most_wait_s=1.0),
)


def asked(kind: str = "", tokens: int = 1000) -> Ticket:
    return Ticket(10_000, tokens, arrived_s=0.0, kind=kind)


def test_nobody_is_refused_while_there_is_time() -> None:
    found = cluster(1, settings=PlacementSettings(classes=CLASSES))
    assert refusal(found.dispatcher, asked(), 0.0) is None


def test_the_lowest_class_is_refused_first_and_told_when_to_come_back() -> None:
    found = cluster(1, settings=PlacementSettings(classes=CLASSES))
    for _ in range(12):
        found.offer(1000)
    assert refusal(found.dispatcher, asked("urgent"), 0.0) is None
    refused = refusal(found.dispatcher, asked("batch"), 0.0)
    assert refused is not None
    assert "class batch" in refused.why
    assert refused.retry_after_s >= 1


def test_tokens_are_what_may_wait_not_requests() -> None:
    classes = tuple(RequestClass(name=one.name, priority=one.priority) for one in CLASSES)
    found = cluster(1, settings=PlacementSettings(classes=classes, most_queued_tokens=10_000))
    found.offer(100)
    for _ in range(60):
        found.offer(100, tenant="many")
    assert refusal(found.dispatcher, asked("urgent", 3000), 0.0) is None
    assert refusal(found.dispatcher, asked("urgent", 5000), 0.0) is not None
    assert refusal(found.dispatcher, asked("batch", 100), 0.0) is not None, "the lowest class has half of it"


def test_without_prefill_workers_nobody_waits_for_one() -> None:
    found = cluster(0, settings=PlacementSettings(classes=CLASSES))
    assert math.isinf(found.dispatcher.wait_s(asked(), 0.0))
    assert refusal(found.dispatcher, asked(), 0.0) is None


@pytest.mark.parametrize(
    "wrong",
    [{"itl_s": -1.0}, {"itl_s": math.nan}, {"itl_s": 1.0, "over_share": 2.0}, {"itl_s": 1.0, "most_tokens": -1}],
)
def test_limits_that_limit_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        DeflectionLimits(**wrong)  # type: ignore[arg-type]
