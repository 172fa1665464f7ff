"""Gateways of others that ask our picker where requests go: what holds behind our own Envoy must hold behind them."""

import dataclasses
import re
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.credentials import self_signed
from e2e.cluster.paths import silent
from e2e.gateways import istio
from e2e.load.record import Outcome, Record
from e2e.scenarios import routing
from e2e.scenarios.scenario import Facts, Scenario
from e2e.scenarios.stage import BASELINE, CLUSTER, STAGE_NAMESPACE, Stage
from e2e.system.http import get_json
from e2e.system.waiting import wait_for, wait_until
from swingpool_control import names

_SECRET = "chat-picker-certificate"  # noqa: S105 - a name
_WITH_POOL = BASELINE + f"  router: {{builtIn: {{inferencePool: {{certificate: {{secretName: {_SECRET}}}}}}}}}\n"
_POOL = "inferencepools.inference.networking.k8s.io"
_SPLIT = re.compile(r'^swingpool_router_decisions_total\{kind="split"\} (\S+)$', re.MULTILINE)
_ANSWERED = 80
"""Requests that must be served before a look is taken."""


def behind_istio(stage: Stage) -> Facts:
    """Let Istio's control plane program an Envoy from our InferencePool, and send load through it, with failures."""
    product = istio.prepare(silent)
    with istio.defined(stage.system.cluster, product), _pool(stage), _trap() as trap:
        logs = stage.out / "istio"
        with istio.serving(stage.system.cluster, product, namespace=STAGE_NAMESPACE, directory=logs) as url:
            hostile = dict.fromkeys((names.HEADER_DESTINATION, "x-prefiller-host-port"), trap.address)
            gateway = dataclasses.replace(stage, url=url, headers=hostile, quick=True)
            wait_for("the model behind Istio", lambda: get_json(f"{url}/v1/models")["data"], limit_s=60)
            wait_for("Istio to accept the InferencePool", lambda: _accepted(stage), limit_s=30)
            facts = {what: play(gateway) for what, play in _PLAYS.items()}
        assert not trap.visits, f"{trap.visits} connections to an address that a client named"
    served = [found for found in facts.values() if "requests" in found]
    return {
        "requests": sum(found["requests"] for found in served),
        "failed": sum(found["failed"] for found in served),
        **facts,
    }


def _steady(stage: Stage) -> Facts:
    """Whole answers and streams, prompts computed by one worker and continued by another."""
    before = routing.router_total(stage, _SPLIT)
    with stage.traffic() as traffic:
        traffic.wait_sent(_ANSWERED)
    split = routing.router_total(stage, _SPLIT) - before
    assert split > 0, "no prompt was computed by another worker than the one that generated"
    return {**traffic.facts, "split": split}


def _pickers_killed(stage: Stage) -> Facts:
    """Kill the pickers while they hold requests: these are refused, as the InferencePool says; then all is well."""
    computing = stage.workers(role=names.ROLE_PREFILL)
    with routing.burst(stage) as records, routing.fault(computing, kind="slow", factor=100):
        wait_for("a prompt to be computed", lambda: routing.prompts_held(stage, computing), limit_s=30, every_s=0.02)
        for pod in routing.routers(stage):
            stage.system.cluster.kill_container(pod.namespace, pod.name, "picker", signal.SIGKILL)
    lost = clearly_lost(records)
    wait_for("the gateway to serve again", lambda: get_json(f"{stage.url}/v1/models")["data"], limit_s=60)
    with stage.traffic() as traffic:
        traffic.wait_sent(_ANSWERED)
    return {**traffic.facts, "lost_with_picker": lost, "served_in_spite": len(records) - lost}


def _decode_killed(stage: Stage) -> Facts:
    """Kill a decode worker that holds requests: the gateway was told no other, so these are lost, and no others."""
    victim = stage.workers(role=names.ROLE_DECODE)[0]
    with routing.fault([victim], kind="slow", factor=5000), routing.burst(stage) as records:
        held = wait_for("requests to be held", lambda: routing.held(stage, victim), limit_s=30, every_s=0.02)
        stage.kill(victim, signal.SIGKILL)
    lost = clearly_lost(records)
    with stage.traffic() as traffic:
        traffic.wait_sent(_ANSWERED)
    return {**traffic.facts, "held_by_the_killed": held, "lost_with_worker": lost, "burst": len(records)}


def clearly_lost(records: Sequence[Record]) -> int:
    """Return how many requests were lost; each must have been told so, by a status or by the end of its answer."""
    lost = [record for record in records if not record.succeeded]
    told = (Outcome.CUT, Outcome.ERROR_EVENT)
    unclear = [record for record in lost if record.status < 500 and record.outcome not in told]
    assert not unclear, f"{len(unclear)} of {len(records)} heard nothing clear: {unclear[:3]}"
    return len(lost)


_PLAYS = {
    "steady": _steady,
    "prefill_errors": routing.prefill_errors,
    "prefill_forgets": routing.prefill_forgets,
    "rapid_flips": routing.rapid_flips,
    "disconnects": routing.disconnects,
    "decode_killed": _decode_killed,
    "pickers_killed": _pickers_killed,
}


@contextmanager
def _pool(stage: Stage) -> Iterator[None]:
    """Have the manager write an InferencePool while the block runs."""
    certificate, key = _certificate(stage.out)
    pair = (f"--cert={certificate}", f"--key={key}")
    stage.kubectl("create", "secret", "tls", _SECRET, *pair)
    try:
        stage.apply(_WITH_POOL)
        wait_for("the InferencePool", lambda: stage.kubectl("get", _POOL, "-o", "name"), limit_s=60)
        wait_until(
            "routers that gateways reach",
            lambda: [pod for pod in routing.routers(stage) if not (pod.serves and _has_certificate(stage, pod.name))],
            lambda lacking: not lacking,
            limit_s=90,
        )
        yield
    finally:
        stage.settle()
        wait_until(
            "no InferencePool", lambda: stage.kubectl("get", _POOL, "-o", "name"), lambda found: not found, limit_s=60
        )
        stage.kubectl("delete", "secret", _SECRET)


def _certificate(directory: Path) -> tuple[Path, Path]:
    directory.mkdir(parents=True, exist_ok=True)
    return self_signed(directory, f"{CLUSTER}-picker")


def _has_certificate(stage: Stage, pod: str) -> bool:
    return _SECRET in stage.kubectl("get", "pod", pod, "-o", "jsonpath={.spec.volumes[*].secret.secretName}")


def _accepted(stage: Stage) -> bool:
    """Whether the product says that it takes the pool, and that it finds its picker."""
    path = "jsonpath={.status.parents[*].conditions[?(@.status=='True')].type}"
    return set(stage.kubectl("get", _POOL, CLUSTER, "-o", path).split()) >= {"Accepted", "ResolvedRefs"}


class _Trap:
    """An address that clients name to be connected to, and how many did."""

    def __init__(self, listener: socket.socket) -> None:
        self.address = "{}:{}".format(*listener.getsockname())
        self.visits = 0
        self._listener = listener

    def watch(self) -> None:
        """Count until the listener is closed."""
        while True:
            try:
                visitor, _ = self._listener.accept()
            except OSError:
                return
            self.visits += 1
            visitor.close()


@contextmanager
def _trap() -> Iterator[_Trap]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        trap = _Trap(listener)
        watching = threading.Thread(target=trap.watch, name="trap", daemon=True)
        watching.start()
        yield trap
        listener.shutdown(socket.SHUT_RDWR)
    watching.join(5)


SCENARIOS: Sequence[Scenario] = (
    Scenario(
        name="behind-istio",
        about="Istio's gateway asks the picker: no request fails, none goes where a client says",
        run=behind_istio,
        prepare=istio.prepare,
    ),
)
