"""The judges of the scenarios themselves: a scenario that cannot fail shows nothing."""

import dataclasses
import itertools
from typing import Any

import pytest

from e2e.load.record import Outcome, Record
from e2e.scenarios.guard import Judge
from e2e.scenarios.run import SCENARIOS, UnknownScenarioError, choose
from e2e.scenarios.stage import check
from e2e.system.kubernetes import Pod, pod_of
from e2e.system.waiting import NotInTimeError, wait_for, wait_until


def _pod(name: str, role: str, **changes: Any) -> Pod:
    settings: dict[str, Any] = {
        "name": name, "namespace": "e2e", "uid": name, "component": "worker", "pool": "swing", "role": role,
        "ready": True, "deleting": False, "address": "10.0.0.1", "restarts": 0, "images": ("i",), "waiting": "",
    }  # fmt: skip
    return Pod(**{**settings, **changes})


def _record(**changes: Any) -> Record:
    settings: dict[str, Any] = {
        "number": 1, "phase": "p", "chat": False, "stream": True, "prompt_tokens": 1, "expected_tokens": 2,
        "due_s": 0.0, "sent_s": 0.0, "ended_s": 2.0, "outcome": Outcome.WHOLE,
    }  # fmt: skip
    return Record(**{**settings, **changes})


def test_a_change_of_role_that_leaves_another_worker_is_fine() -> None:
    judge = Judge()
    for pod in (_pod("a", "prefill"), _pod("b", "prefill"), _pod("c", "decode")):
        judge.saw(pod)
    judge.saw(_pod("b", "decode"))
    judge.saw(_pod("b", "prefill"))
    assert judge.changes == 2
    assert judge.faults == []


@pytest.mark.parametrize(
    "other",
    [
        _pod("b", "decode"),
        _pod("b", "prefill", ready=False),
        _pod("b", "prefill", deleting=True),
        _pod("b", "draining"),
    ],
)
def test_the_last_worker_that_serves_a_role_must_stay(other: Pod) -> None:
    judge = Judge()
    judge.saw(_pod("a", "prefill"))
    judge.saw(other)
    judge.saw(_pod("a", "decode"))
    assert judge.faults == ["a left role prefill and no other ready worker has it"]


def test_a_worker_that_does_not_serve_may_change_and_one_that_is_gone_counts_no_more() -> None:
    judge = Judge()
    judge.saw(_pod("a", "prefill", ready=False))
    judge.saw(_pod("a", "decode", ready=False))
    assert judge.faults == []
    judge.saw(_pod("a", "decode"))
    judge.saw(_pod("b", "decode"))
    judge.gone(_pod("b", "decode"))
    judge.saw(_pod("a", "prefill"))
    assert len(judge.faults) == 1


def test_failed_requests_fail_a_scenario() -> None:
    check([_record()], may_fail_after_first_token=False)
    with pytest.raises(AssertionError, match="1 of 2 requests failed: refused 503 no worker"):
        check(
            [_record(), _record(outcome=Outcome.REFUSED, status=503, error="no worker")],
            may_fail_after_first_token=False,
        )


def test_after_the_first_token_a_clear_and_early_error_may_be_allowed() -> None:
    told = _record(outcome=Outcome.ERROR_EVENT, first_token_s=1.0, last_token_s=1.5, ended_s=4.0, error="worker died")
    check([told], may_fail_after_first_token=True)
    for changes in ({"ended_s": 7.0}, {"error": ""}, {"last_token_s": None}):
        with pytest.raises(AssertionError):
            check([dataclasses.replace(told, **changes)], may_fail_after_first_token=True)
    with pytest.raises(AssertionError):
        check([told], may_fail_after_first_token=False)


def test_scenarios_are_chosen_by_name_in_the_order_in_which_they_play() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    assert names[-1] == "deleted", "it takes the stage down"
    assert choose([], quick=False) == list(SCENARIOS)
    assert [item.name for item in choose(["quiet", "flips"], quick=True)] == ["flips", "quiet"]
    assert 3 <= len(choose([], quick=True)) < len(SCENARIOS)
    with pytest.raises(UnknownScenarioError, match="no scenario is called nothing; there are flips"):
        choose(["nothing", "flips"], quick=False)


def test_waiting_returns_what_was_seen_and_tells_the_last_look() -> None:
    counter = itertools.count()
    assert wait_until("two", lambda: next(counter), lambda seen: seen == 2, limit_s=5, every_s=0) == 2

    def away() -> bool:
        raise ConnectionRefusedError("away")

    with pytest.raises(NotInTimeError, match="waited 0 s for the server; seen last: ConnectionRefusedError: away"):
        wait_for("the server", away, limit_s=0)
    with pytest.raises(NotInTimeError, match=r"seen last: \[\]"):
        wait_for("anything", list, limit_s=0)


def test_a_pod_is_read() -> None:
    waiting = {"restartCount": 2, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    pod = pod_of(
        {
            "metadata": {
                "name": "p", "namespace": "n", "uid": "u", "deletionTimestamp": "now",
                "labels": {"swingpool.dev/role": "decode", "swingpool.dev/pool": "swing"},
            },
            "spec": {"containers": [{"name": "engine", "image": "i:1"}]},
            "status": {
                "podIP": "10.0.0.9",
                "conditions": [{"type": "Ready", "status": "True"}],
                "initContainerStatuses": [{"restartCount": 1}],
                "containerStatuses": [waiting],
            },
        }
    )  # fmt: skip
    assert (pod.role, pod.pool, pod.restarts, pod.waiting) == ("decode", "swing", 3, "ImagePullBackOff")
    assert pod.ready
    assert not pod.serves
