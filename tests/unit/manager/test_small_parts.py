"""Parts that are too small for files of their own: metrics, health, watch health, replicas, logs."""

import io
import json
import logging

import pytest
from prometheus_client import generate_latest

from swingpool.kube.kinds import POD
from swingpool.manager.health import Heartbeats
from swingpool.manager.metrics import Metrics
from swingpool.manager.replicas import owned_by_template
from swingpool.manager.resync import WATCH_PATIENCE_S, WatchHealth
from swingpool.manager.store import Key
from swingpool.telemetry import logs


def test_a_clusters_series_end_with_it() -> None:
    metrics = Metrics()
    for name in ("chat", "other"):
        metrics.rounds.labels("ns", name, "done").inc()
        metrics.flips.labels("ns", name, "decode", "prefill", "Serving").inc()
        metrics.flip_seconds.labels("ns", name).observe(1.0)
        metrics.decisions.labels("ns", name, "PatchWorker", "done").inc()
        metrics.drift.labels("ns", name, "Deployment").inc()
        metrics.faults.labels("ns", name, "swing").inc()
    metrics.forget(Key("ns", "chat"))
    text = generate_latest(metrics.registry).decode()
    assert 'cluster="chat"' not in text
    assert text.count('cluster="other"') > 5


def test_a_loop_that_does_not_come_round_is_stale() -> None:
    now = 0.0
    beats = Heartbeats(lambda: now)
    beat = beats.expect("resync", within_s=10)
    now = 11.0
    assert beats.stale() == ["resync has not come round for 11 s"]
    beat()
    assert beats.stale() == []


def test_a_watch_that_owes_a_change_for_long_is_dead() -> None:
    now = 0.0
    health = WatchHealth(monotonic=lambda: now, metrics=Metrics())
    health.told(POD, 10)
    health.listed(POD, 9)
    health.listed(POD, 12)
    now = WATCH_PATIENCE_S - 1
    assert health.lagging() == []
    health.listed(POD, 15)
    now = WATCH_PATIENCE_S + 1
    assert health.lagging() == ["pods"]
    health.told(POD, 12)
    assert health.lagging() == []


def test_who_owns_the_number_is_read_from_managed_fields() -> None:
    def deployment(manager: str) -> dict[str, object]:
        entry = {"manager": manager, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        return {"metadata": {"managedFields": [{"manager": "swingpool", "fieldsV1": {"f:spec": {}}}, entry]}}

    assert owned_by_template(deployment("swingpool"))
    assert not owned_by_template(deployment("swingpool-scaler"))
    assert not owned_by_template({"metadata": {}})


@pytest.fixture
def lines() -> io.StringIO:
    return io.StringIO()


@pytest.fixture(autouse=True)
def root_logger() -> object:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level


def test_json_lines_carry_the_cluster_and_the_fields(lines: io.StringIO) -> None:
    logs.configure("json", stream=lines)
    with logs.about_cluster("ns", "chat"):
        logging.getLogger("swingpool.x").info("hold", extra={"loop": "swing"})
    logging.getLogger("swingpool.x").warning("outside")
    first, second = (json.loads(line) for line in lines.getvalue().splitlines())
    assert (first["cluster"], first["loop"], first["message"], first["level"]) == ("ns/chat", "swing", "hold", "INFO")
    assert "time" in first
    assert "cluster" not in second


def test_text_is_for_people(lines: io.StringIO) -> None:
    logs.configure("text", stream=lines)
    with logs.about_cluster("ns", "chat"):
        logging.getLogger("swingpool.x").info("applied", extra={"kind": "Service"})
    assert lines.getvalue().endswith("INFO    [ns/chat] applied kind=Service\n")


def test_a_stream_that_is_no_terminal_gets_json_and_talkative_libraries_are_quiet(lines: io.StringIO) -> None:
    logs.configure(stream=lines)
    logging.getLogger("kopf.objects").info("chatter")
    logging.getLogger("swingpool").info("hello")
    assert [json.loads(line)["message"] for line in lines.getvalue().splitlines()] == ["hello"]
