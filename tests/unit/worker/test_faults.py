"""Faults: one of each kind, for as long as asked, as often as asked."""

import pytest

from swingpool.worker.faults import FaultError, Faults


def test_a_fault_holds_until_its_time_is_over() -> None:
    faults = Faults(seed=0)
    assert faults.slowness(now_s=0) == 1
    faults.set(faults.parse({"kind": "slow", "factor": 3, "duration_s": 5}), now_s=10)
    assert faults.slowness(now_s=14.9) == 3
    assert [fault["kind"] for fault in faults.listing(now_s=14.9)] == ["slow"]
    assert faults.slowness(now_s=15) == 1
    assert faults.listing(now_s=15) == []


def test_a_fault_without_a_duration_holds_until_it_is_cleared() -> None:
    faults = Faults(seed=0)
    faults.set(faults.parse({"kind": "error", "status": 503}), now_s=0)
    faults.set(faults.parse({"kind": "transfer"}), now_s=0)
    assert faults.error_status(now_s=1e9) == 503
    assert faults.fails_transfer(now_s=1e9)
    faults.clear()
    assert faults.error_status(now_s=1e9) is None
    assert not faults.fails_transfer(now_s=1e9)


def test_a_rate_is_a_share_and_follows_from_the_seed() -> None:
    def strikes(seed: int) -> list[bool]:
        faults = Faults(seed=seed)
        faults.set(faults.parse({"kind": "error", "rate": 0.25}), now_s=0)
        return [faults.error_status(now_s=0) is not None for _ in range(2000)]

    assert 0.2 < sum(strikes(1)) / 2000 < 0.3
    assert strikes(1) == strikes(1)
    assert strikes(1) != strikes(2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "kind"),
        ({"kind": "flood"}, "kind"),
        ({"kind": "slow", "factor": 0.5}, "factor"),
        ({"kind": "error", "rate": 2}, "rate"),
        ({"kind": "error", "status": 200}, "status"),
        ({"kind": "hang", "duration_s": -1}, "duration_s"),
        ({"kind": "hang", "seconds": 1}, "seconds: Extra inputs"),
        ([], "body"),
    ],
)
def test_what_is_no_fault_is_told_by_field(data: object, message: str) -> None:
    with pytest.raises(FaultError, match=message):
        Faults.parse(data)
