"""Daemons: found again by record, ended even if they resist, never mistaken for another process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster.interface import ClusterError
from e2e.cluster.processes import Processes, start_time, wait_until

_STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
)


def test_starts_records_and_ends_a_daemon(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    pid = processes.start("sleeper", ["sleep", "60"])
    again = Processes(tmp_path)
    assert again.names() == ["sleeper"]
    assert again.pid("sleeper") == pid
    assert again.all_run()
    assert os.getsid(pid) == pid
    again.stop("sleeper")
    assert start_time(pid) is None
    assert again.names() == []


def test_ends_a_daemon_that_ignores_sigterm(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    pid = processes.start("stubborn", [sys.executable, "-c", _STUBBORN])
    log = tmp_path / "stubborn.log"
    processes.wait_ready("stubborn", lambda: log.read_text() == "up\n", limit_s=30.0)
    processes.stop("stubborn", patience_s=0.1)
    assert start_time(pid) is None


def test_never_signals_a_process_that_got_the_id_later(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as bystander:
        record = {"pid": bystander.pid, "started": "1", "argv": ["etcd"]}
        (tmp_path / "etcd.pid").write_text(json.dumps(record))
        processes = Processes(tmp_path)
        assert processes.pid("etcd") is None
        assert not processes.all_run()
        processes.stop("etcd")
        assert bystander.poll() is None
        bystander.kill()


def test_a_damaged_record_is_no_process(tmp_path: Path) -> None:
    (tmp_path / "etcd.pid").write_text("")
    processes = Processes(tmp_path)
    assert processes.pid("etcd") is None
    processes.stop("etcd")
    assert processes.names() == []


def test_tells_the_last_words_of_a_daemon_that_dies(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.start("mortal", ["sh", "-c", "echo no such flag >&2; exit 2"])
    with pytest.raises(ClusterError, match=r"mortal ended by itself:\n.*mortal\.log:\nno such flag"):
        processes.wait_ready("mortal", lambda: False, limit_s=30.0)


def test_tells_what_took_too_long(tmp_path: Path) -> None:
    processes = Processes(tmp_path)
    processes.start("slow", ["sh", "-c", "echo starting; exec sleep 60"])
    try:
        wait_until("the first words", lambda: "starting" in processes.tail("slow"), limit_s=30.0)
        with pytest.raises(ClusterError, match=r"slow ready: not within 0 s\n(.|\n)*starting"):
            processes.wait_ready("slow", lambda: False, limit_s=0.2)
    finally:
        processes.stop("slow")


def test_starts_by_way_of_a_prefix(tmp_path: Path) -> None:
    processes = Processes(tmp_path, prefix=["sh", "-c", 'echo first; exec "$@"', "sh"])
    processes.start("told", ["echo", "second"])
    wait_until("the echo", lambda: "second" in processes.tail("told"), limit_s=30.0)
    assert processes.tail("told").endswith("first\nsecond")
