"""Asking AIConfigurator: which interpreter, what it cannot answer, and that its process ends."""

import sys
from pathlib import Path

import pytest

from swingpool.aiconfigurator import client
from swingpool.aiconfigurator.client import AIConfigurator, AIConfiguratorError, RefusedError

REQUEST = {"ask": "recommend", "model": "m", "system": "s", "backend": "vllm"}


def test_a_named_interpreter_goes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(client.VARIABLE, sys.executable)
    assert client.interpreter() == Path(sys.executable)
    monkeypatch.setenv(client.VARIABLE, str(tmp_path / "none"))
    with pytest.raises(AIConfiguratorError, match=r"SWINGPOOL_AICONFIGURATOR names .*none, which is no file"):
        client.interpreter()


def test_without_any_it_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(client.VARIABLE, raising=False)
    monkeypatch.setenv("SWINGPOOL_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(AIConfiguratorError, match=r"pip install 'swingpool\[aiconfigurator\]'"):
        client.interpreter()
    python = client.home() / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    assert client.interpreter() == python


def test_its_errors_come_back_and_the_next_request_is_another(tmp_path: Path) -> None:
    package = tmp_path / "aiconfigurator" / "cli"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "api.py").write_text("def cli_recommend(*given, **settings):\n    raise ValueError('no such system')\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    request = REQUEST | {"requests_per_s": 1, "isl": 1, "osl": 1, "ttft_ms": 1, "tpot_ms": 1}
    with AIConfigurator(python) as peer:
        for _ in range(2):
            with pytest.raises(RefusedError, match="ValueError: no such system"):
                peer.ask(request)
        with pytest.raises(RefusedError, match="KeyError: 'dance'"):
            peer.ask(REQUEST | {"ask": "dance"})


def test_a_process_that_ends_is_told(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    with pytest.raises(AIConfiguratorError, match="the bridge ended"), AIConfigurator(python) as peer:
        peer.ask(REQUEST)


def test_outside_of_its_context_it_is_not_asked() -> None:
    with pytest.raises(AIConfiguratorError, match="outside of its context"):
        AIConfigurator(Path(sys.executable)).ask(REQUEST)
