"""What is in flight where, by placement, legs and the access log: nothing is counted twice, and nothing for ever."""

import asyncio
import math
import os
import random
import time
from dataclasses import replace
from pathlib import Path

import pytest
from envoy.data.accesslog.v3.accesslog_pb2 import AccessLogType, HTTPAccessLogEntry

from swingpool.picker import eds
from swingpool.picker.accesslog import AccessLog
from swingpool.picker.fleet import Fleet
from swingpool.picker.journal import Entry
from swingpool.picker.leg import TIMEOUT_S, end_overdue
from swingpool.picker.members import Member
from swingpool.picker.metrics import RouterMetrics
from swingpool.picker.requests import FORGET_AFTER_S, FORGET_SOON_S, Generations
from swingpool.picker.traffic import Traffic
from swingpool.picker.wire import CutError, Errand, Response
from swingpool.picker.worker import Worker
from swingpool.telemetry.vllm_page import NO_FIGURES, Histogram, WorkerFigures
from swingpool.telemetry.windows import Histograms
from swingpool_control.figures import Unknown
from swingpool_control.placement.ticket import Ticket
from swingpool_control.resources.envoy import TAG_FIRST_BODY_US


def member(name: str, role: str = "decode", *, ready: bool = True, deleting: bool = False) -> Member:
    return Member(pod=name, uid=name, address=f"{name}:8000", role=role, ready=ready, deleting=deleting)


class Picker:
    """The parts of a picker that account."""

    def __init__(self, *members: Member) -> None:
        self.fleet = Fleet()
        self.fleet.publish(members)
        self.traffic = Traffic(RouterMetrics(), window_s=60)
        self.generations = Generations(self.fleet)
        self.fleet.on_membership(self.generations.forget_gone)
        self.log = AccessLog(self.generations, self.traffic)

    def worker(self, name: str) -> Worker:
        worker = self.fleet.get(f"{name}:8000")
        assert worker is not None
        return worker

    def send(self, request_id: str, name: str, *, stream: bool = True, predicted_prompt_s: float | None = None) -> None:
        now = time.time()
        ticket = Ticket(0, 10, arrived_s=0.0)
        self.fleet.dispatcher.roster.fetches(ticket, self.worker(name).account, now_s=time.monotonic())
        entry = Entry(request_id, "/v1/completions", kind="", tenant="", stream=stream, arrived_unix_s=now)
        entry.predicted_prompt_s = predicted_prompt_s
        self.generations.sent(
            request_id, self.worker(name), context_tokens=10, stream=stream, entry=entry, moved_s=ticket.moved_s
        )

    def logged(
        self, request_id: str, name: str, *, status: int = 200, first_body_us: str = "-", end: bool = True
    ) -> None:
        entry = HTTPAccessLogEntry()
        entry.request.request_id = request_id
        entry.response.response_code.value = status
        common = entry.common_properties
        common.access_log_type = AccessLogType.DownstreamEnd if end else AccessLogType.DownstreamPeriodic
        common.custom_tags[TAG_FIRST_BODY_US] = first_body_us
        common.upstream_request_attempt_count = 1
        if name:
            common.upstream_remote_address.socket_address.address = name
            common.upstream_remote_address.socket_address.port_value = 8000
        self.log.entry(entry)

    def in_flight(self) -> dict[str, tuple[int, int]]:
        return {
            w.member.pod: (w.account.decodes_in_flight, w.account.decode_context_tokens) for w in self.fleet.workers()
        }


def known(worker: Worker) -> float:
    assert isinstance(worker.first_served_unix_s, float)
    return worker.first_served_unix_s


async def test_a_request_counts_where_it_is_until_it_ends() -> None:
    picker = Picker(member("a"), member("b"))
    picker.send("1", "a")
    picker.logged("1", "a", first_body_us="250000", end=False)
    assert picker.in_flight() == {"a": (1, 10), "b": (0, 0)}
    assert picker.traffic.ttft_s.recent(now_s=time.monotonic()) == [0.25]
    picker.logged("1", "a", first_body_us="250000")
    assert picker.in_flight() == {"a": (0, 0), "b": (0, 0)}
    assert picker.worker("a").decodes_served == 1
    assert len(picker.traffic.ttft_s.recent(now_s=time.monotonic())) == 1


async def test_a_transfer_is_under_way_until_the_first_token_or_the_end() -> None:
    picker = Picker(member("a"), member("b"))
    a, b = picker.worker("a").account, picker.worker("b").account
    for request_id in ("1", "2", "3"):
        picker.send(request_id, "a")
    one_s = a.model.transfer_s(tokens=10)
    assert a.moving_s == pytest.approx(3 * one_s)
    picker.logged("1", "a", first_body_us="250000", end=False)
    picker.logged("1", "a", first_body_us="250000")
    assert a.moving_s == pytest.approx(2 * one_s)
    picker.logged("2", "a", status=500)
    assert a.moving_s == pytest.approx(one_s)
    picker.logged("3", "b", end=False)  # Envoy asks another worker, which computes the prompt itself
    assert (a.moving_s, b.moving_s) == (0.0, 0.0)


async def test_a_retried_request_moves() -> None:
    picker = Picker(member("a"), member("b"))
    picker.send("1", "a")
    picker.logged("1", "b", end=False)
    assert picker.in_flight() == {"a": (0, 0), "b": (1, 10)}
    picker.logged("1", "b")
    assert (picker.worker("a").decodes_served, picker.worker("b").decodes_served) == (0, 1)


async def test_one_id_used_twice_at_a_time() -> None:
    picker = Picker(member("a"), member("b"))
    picker.send("same", "a")
    picker.send("same", "b")
    picker.logged("same", "b")
    assert picker.in_flight() == {"a": (1, 10), "b": (0, 0)}
    picker.logged("same", "a")
    assert picker.in_flight() == {"a": (0, 0), "b": (0, 0)}


@pytest.mark.parametrize("seed", range(8))
async def test_counts_come_back_to_zero_whatever_happens(seed: int) -> None:
    chance = random.Random(seed)
    picker = Picker(member("a"), member("b"), member("c"))
    under_way: list[tuple[str, str]] = []
    for step in range(300):
        if under_way and chance.random() < 0.5:
            request_id, name = under_way.pop(chance.randrange(len(under_way)))
            picker.logged(request_id, chance.choice(["a", "b", "c", "", name]), status=chance.choice([200, 503]))
        else:
            request_id, name = str(step), chance.choice("abc")
            picker.send(request_id, name)
            under_way.append((request_id, name))
        if chance.random() < 0.1:
            picker.fleet.publish([member(n, chance.choice(["prefill", "decode", "draining"])) for n in "abc"])
    for request_id, name in under_way:
        picker.logged(request_id, name)
        picker.logged(request_id, name)
    assert set(picker.in_flight().values()) == {(0, 0)}


def figures(running: float, transferred: float, at: float) -> WorkerFigures:
    return WorkerFigures(running=running, waiting=0.0, kv_usage=0.1, scraped_unix_s=at, transferred_tokens=transferred)


async def test_requests_whose_end_was_never_told_are_forgotten() -> None:
    picker = Picker(member("a"), member("b"))
    now_s = time.monotonic()
    picker.send("lost", "a")
    picker.send("long", "b")
    picker.generations.forget_lost(now_s=now_s + FORGET_AFTER_S - 2)
    assert picker.in_flight() == {"a": (1, 10), "b": (1, 10)}, "it may be on its way"
    long = picker.generations.find("long", "b:8000")
    assert long is not None
    long.told_s = now_s + FORGET_AFTER_S
    picker.generations.forget_lost(now_s=now_s + FORGET_AFTER_S + 2)
    assert picker.in_flight() == {"a": (0, 0), "b": (1, 10)}
    picker.logged("lost", "a")
    assert picker.in_flight() == {"a": (0, 0), "b": (1, 10)}


async def test_an_entry_is_news_of_its_request() -> None:
    picker = Picker(member("a"))
    picker.send("1", "a")
    generation = picker.generations.find("1", "a:8000")
    assert generation is not None
    generation.told_s = 0.0
    picker.logged("1", "a", end=False)
    assert generation.told_s > 0.0


async def test_an_address_belongs_to_the_pod_that_lives() -> None:
    fleet = Fleet()
    ends = Member(pod="old", uid="old", address="a:8000", role="decode", deleting=True)
    heir = Member(pod="new", uid="new", address="a:8000", role="prefill")
    for members in ([ends, heir], [heir, ends]):
        fleet.publish(members)
        assert [worker.member.pod for worker in fleet.workers()] == ["new"]


async def test_growth_that_nobody_asks_for_is_not_kept() -> None:
    window = Histograms(window_s=10.0)
    for second in range(1000):
        window.add(Histogram(bounds=(math.inf,), counts=(1.0,), sum=0.1), now_s=float(second))
    assert len(window._parts) <= 11


async def test_only_what_was_sent_in_the_new_role_shows_it() -> None:
    picker = Picker(member("a", "decode"))
    picker.send("old", "a")
    picker.fleet.publish([member("a", "prefill")])
    picker.fleet.publish([member("a", "decode")])
    picker.logged("old", "a", first_body_us="1000")
    assert isinstance(picker.worker("a").first_served_unix_s, Unknown)
    picker.send("new", "a")
    picker.logged("new", "a", first_body_us="1000", status=500)
    assert isinstance(picker.worker("a").first_served_unix_s, Unknown), "an error shows nothing"
    picker.send("newer", "a")
    picker.logged("newer", "a", first_body_us="1000", end=False)
    assert isinstance(picker.worker("a").first_served_unix_s, float)


async def test_a_prefill_leg_of_the_old_role_shows_nothing() -> None:
    picker = Picker(member("a", "prefill"))
    worker, roster = picker.worker("a"), picker.fleet.dispatcher.roster
    leg = roster.prefill_sent(Ticket(0, 5, arrived_s=0.0), worker.account, now_s=0.0)
    picker.fleet.publish([member("a", "decode")])
    picker.fleet.publish([member("a", "prefill")])
    picker.fleet.prefill_ended(worker, leg, served=True, at_fault=False)
    assert isinstance(worker.first_served_unix_s, Unknown)
    leg = roster.prefill_sent(Ticket(1, 5, arrived_s=0.0), worker.account, now_s=0.0)
    picker.fleet.prefill_ended(worker, leg, served=True, at_fault=False)
    assert isinstance(worker.first_served_unix_s, float)
    account = worker.account
    assert (account.pending_prefill_tokens, account.prefills_in_flight, worker.prefills_served) == (0, 0, 2)


async def test_transferred_cache_shows_a_decode() -> None:
    picker = Picker(member("a"))
    worker = picker.worker("a")
    worker.scraped(figures(0.0, 0.0, 1.0), now_unix_s=1.0)
    worker.scraped(figures(1, 50, 2.0), now_unix_s=2.0)
    assert isinstance(worker.first_served_unix_s, Unknown), "nobody sent it anything"
    picker.send("1", "a", stream=False)
    worker.scraped(figures(1, 90, 3.0), now_unix_s=3.0)
    assert known(worker) == 3.0


async def test_what_others_sent_is_what_the_worker_runs_beyond_ones_own() -> None:
    picker = Picker(member("a"))
    picker.send("1", "a")
    picker.worker("a").scraped(figures(5, 0, 1.0), now_unix_s=1.0)
    picker.fleet.scraped(picker.worker("a"))
    assert picker.worker("a").account.others_in_flight == 4


async def test_rotation() -> None:
    picker = Picker(member("a"))
    worker = picker.worker("a")
    assert worker.why_not
    picker.fleet.probed(worker, fault="")
    assert worker.why_not == ""
    for changed, why in (
        (member("a", ready=False), "its pod is not ready"),
        (member("a", deleting=True), "its pod is being deleted"),
        (member("a", "draining"), "its role is 'draining'"),
        (member("a", ""), "it has no role"),
    ):
        picker.fleet.publish([changed])
        assert worker.why_not == why
        assert not worker.account.in_rotation
    picker.fleet.publish([member("a")])
    assert worker.account.in_rotation


async def test_a_worker_that_stops_answering_loses_its_legs() -> None:
    picker = Picker(member("a", "prefill"))
    worker = picker.worker("a")
    picker.fleet.probed(worker, fault="")

    waits = asyncio.get_running_loop().create_future()
    errand = Errand(lambda _: None, lambda: False)
    errand.begins(waits)
    worker.legs.add(errand)
    picker.fleet.probed(worker, fault="it hangs")
    with pytest.raises(CutError, match="it hangs"):
        await waits


async def test_legs_that_take_too_long_end() -> None:
    worker, loop = Picker(member("a", "prefill")).worker("a"), asyncio.get_running_loop()
    waits: list[asyncio.Future[Response]] = [loop.create_future() for _ in range(2)]
    for future in waits:
        errand = Errand(lambda _: None, lambda: False)
        errand.begins(future)
        worker.legs.add(errand)
    errand.began_s += 10
    end_overdue(worker, now_s=errand.began_s + TIMEOUT_S - 5)
    assert [future.done() for future in waits] == [True, False]
    assert str(waits[0].exception()) == f"no answer within {TIMEOUT_S:g} s"


async def test_whoever_waits_is_woken() -> None:
    picker = Picker(member("a"))
    assert not await picker.fleet.changed(timeout_s=0.01)
    waiting = asyncio.create_task(picker.fleet.changed(timeout_s=60))
    await asyncio.sleep(0)
    picker.fleet.probed(picker.worker("a"), fault="")
    assert await waiting


async def test_the_endpoints_file_follows_addresses_and_nothing_else(tmp_path: Path) -> None:
    fleet = Fleet()
    path = tmp_path / "eds.json"
    eds.ensure(path)
    file = eds.EdsFile(path, fleet)
    assert not file.written
    fleet.publish([member("10.0.0.1"), member("10.0.0.2", deleting=True)])
    assert file.written
    first = path.read_text()
    assert "10.0.0.1" in first
    assert "10.0.0.2" not in first
    inode = path.stat().st_ino
    fleet.publish([member("10.0.0.1", "draining", ready=False)])
    assert path.stat().st_ino == inode
    fleet.publish([])
    assert "10.0.0.1" not in path.read_text()
    eds.ensure(path)
    assert os.listdir(tmp_path) == ["eds.json"]


async def test_an_endpoints_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    fleet = Fleet()
    directory = tmp_path / "later"
    file = eds.EdsFile(directory / "eds.json", fleet)
    fleet.publish([member("10.0.0.1")])
    assert not file.written
    directory.mkdir()
    fleet.publish([member("10.0.0.1")])
    assert file.written


def test_requests_of_an_envoy_that_was_killed_are_forgotten_soon() -> None:
    picker = Picker(member("a"))
    for request_id in ("lost", "told of again"):
        picker.send(request_id, "a")
    now_s = time.monotonic()
    picker.log.broke_off()
    picker.logged("told of again", "a", end=False)
    picker.generations.forget_lost(now_s=now_s + FORGET_SOON_S - 2)
    assert picker.worker("a").account.decodes_in_flight == 2
    picker.generations.forget_lost(now_s=now_s + FORGET_SOON_S + 2)
    assert picker.worker("a").account.decodes_in_flight == 1
    assert picker.generations.find("told of again", "a:8000") is not None


def counted(picker: Picker, series: str) -> list[float]:
    """Return how many values a histogram has, and their sum."""
    registry = picker.traffic.metrics.registry
    count, total = (registry.get_sample_value(f"swingpool_router_{series}_{part}") for part in ("count", "sum"))
    return [count or 0.0, total or 0.0]


async def test_a_prediction_of_the_first_token_is_held_against_what_came() -> None:
    picker = Picker(member("a"))
    picker.send("unforeseen", "a")
    picker.logged("unforeseen", "a", first_body_us="250000")
    assert counted(picker, "ttft_measured_over_predicted") == [0.0, 0.0]
    picker.send("foreseen", "a", predicted_prompt_s=0.2)
    account = picker.worker("a").account
    foreseen_s = 0.2 + account.model.transfer_s(tokens=10) + account.step_s
    picker.logged("foreseen", "a", first_body_us="500000", end=False)
    picker.logged("foreseen", "a", first_body_us="500000")
    assert counted(picker, "ttft_measured_over_predicted") == pytest.approx([1.0, 0.5 / foreseen_s])


async def test_a_predicted_gap_between_tokens_is_held_against_the_workers_own() -> None:
    picker = Picker(member("a"))
    worker, before = picker.worker("a"), gaps(10, 0.2)
    picker.traffic.generated(gaps(20, 0.5), before, predicted_gap_s=worker.predicted_gap_s())
    assert counted(picker, "itl_measured_over_predicted") == [0.0, 0.0], "it generates nothing that anybody knows of"
    picker.send("1", "a")
    predicted_s = worker.predicted_gap_s()
    assert predicted_s
    picker.traffic.generated(gaps(20, 0.5), before, predicted_gap_s=predicted_s)
    picker.traffic.generated(gaps(20, 0.5), gaps(20, 0.5), predicted_gap_s=predicted_s)
    assert counted(picker, "itl_measured_over_predicted") == pytest.approx([1.0, 0.03 / predicted_s])


def gaps(count: float, total_s: float) -> WorkerFigures:
    """Return what a worker tells of the times between tokens so far."""
    return replace(NO_FIGURES, itl_s=Histogram(bounds=(1.0, float("inf")), counts=(count, count), sum=total_s))
