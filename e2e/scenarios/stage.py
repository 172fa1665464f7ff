"""Where scenarios play: the baseline InferenceCluster, load on it, and hands to break it with."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e.load.background import Load
from e2e.load.plan import Lengths, Phase, Plan
from e2e.load.record import Record
from e2e.system.install import NAMESPACE, System
from e2e.system.kubernetes import Pod
from e2e.system.router import wait_serving
from e2e.system.waiting import wait_until
from swingpool.kube import kinds
from swingpool_control import names

BASELINE = (Path(__file__).parent / "baseline.yaml").read_text()
STAGE_NAMESPACE, CLUSTER, MODEL = "e2e", "chat", "e2e/chat"
WORKERS = 6

STEADY = Phase(
    name="steady", seconds=600, requests_per_s=8, prompt_tokens=Lengths(mean=200, sigma=0.4),
    output_tokens=Lengths(mean=25, sigma=0.4), stream_share=0.8,
)  # fmt: skip
"""Well within what the baseline serves in any split of roles."""
PROMPTS = Phase(
    name="prompts", seconds=600, requests_per_s=18, prompt_tokens=Lengths(mean=450, sigma=0.3),
    output_tokens=Lengths(mean=6),
)  # fmt: skip
"""More than two prefill workers compute."""
GENERATION = Phase(
    name="generation", seconds=600, requests_per_s=14, prompt_tokens=Lengths(mean=40, sigma=0.3),
    output_tokens=Lengths(mean=75, sigma=0.3),
)  # fmt: skip
"""More than two decode workers generate."""


@dataclass(slots=True)
class Traffic:
    """Load under way, and what became of it once it was stopped."""

    load: Load
    records: list[Record] = field(default_factory=list)

    def wait_sent(self, more: int, *, limit_s: float = 60) -> None:
        """Wait until so many more requests have succeeded, as a sign that the load is served."""
        goal = self.load.last.get("succeeded", 0) + more
        wait_until(
            f"{goal} requests to succeed",
            lambda: self.load.last.get("succeeded", 0),
            lambda n: n >= goal,
            limit_s=limit_s,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """Return counts for the report."""
        failed = [record for record in self.records if not record.succeeded]
        return {"requests": len(self.records), "failed": len(failed)}


@dataclass(slots=True)
class Stage:
    """The baseline InferenceCluster and all that scenarios do to it."""

    system: System
    out: Path
    quick: bool
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    """What clients send with every request."""

    def settle(self) -> None:
        """Bring the baseline back, and wait until it serves with all its workers."""
        self.apply(BASELINE)
        self.system.wait_ready(STAGE_NAMESPACE, CLUSTER)
        wait_until(
            f"{WORKERS} workers that serve",
            lambda: [pod.name for pod in self.workers() if pod.serves],
            lambda found: len(found) == WORKERS,
            limit_s=90,
        )
        self.url = wait_serving(self.system, STAGE_NAMESPACE, CLUSTER)

    def apply(self, manifest: str, namespace: str = STAGE_NAMESPACE) -> None:
        """Apply a manifest as its user would."""
        self.kubectl(
            "apply", "--server-side", "--force-conflicts", "--validate=strict", "-f", "-",
            namespace=namespace, stdin=manifest,
        )  # fmt: skip

    def patch(self, patch: list[dict[str, Any]]) -> None:
        """Change the InferenceCluster's spec by JSON patch."""
        self.kubectl("patch", names.PLURAL, CLUSTER, "--type=json", "-p", json.dumps(patch))

    def kubectl(self, *args: str, namespace: str = STAGE_NAMESPACE, stdin: str | None = None) -> str:
        """Run kubectl and return what it wrote."""
        return self.system.cluster.kubectl(*args, "--namespace", namespace, stdin=stdin).stdout

    def workers(self, *, pool: str | None = None, role: str | None = None) -> list[Pod]:
        """Return the workers that are not being deleted."""
        return self.system.kube.workers(namespace=STAGE_NAMESPACE, cluster=CLUSTER, pool=pool, role=role)

    def status(self) -> dict[str, Any]:
        """Return the InferenceCluster's status."""
        found = self.system.kube.inference_cluster(namespace=STAGE_NAMESPACE, name=CLUSTER)
        return found.get("status") or {}

    def flips(self) -> list[dict[str, Any]]:
        """Return the flips in the status, newest first."""
        return self.status().get("flips") or []

    def seen_by_router(self, pod: str) -> dict[str, Any]:
        """Return what the router knows of a worker; empty if it has never heard of it."""
        state = self.system.kube.router_state(namespace=STAGE_NAMESPACE, cluster=CLUSTER)
        return next((worker for worker in state.get("workers") or () if worker["pod"] == pod), {})

    def manager(self) -> Pod:
        """Return the manager's pod that serves."""
        return wait_until(
            "one manager that is ready",
            lambda: [pod for pod in self.system.kube.pods(namespace=NAMESPACE) if pod.serves],
            lambda found: len(found) == 1,
            limit_s=60,
        )[0]

    def manager_user(self) -> str:
        """Return the user that the manager is to the API server."""
        pod = self.system.kube.get(kinds.POD, namespace=NAMESPACE, name=self.manager().name)
        assert pod is not None
        return f"system:serviceaccount:{NAMESPACE}:{pod['spec']['serviceAccountName']}"

    def kill(self, pod: Pod, number: int) -> None:
        """Send a signal to the first process of a pod's first container."""
        found = self.system.kube.get(kinds.POD, namespace=pod.namespace, name=pod.name)
        assert found is not None, f"{pod.name} is gone"
        self.system.cluster.kill_container(pod.namespace, pod.name, found["spec"]["containers"][0]["name"], number)

    def plan(self, phase: Phase) -> Plan:
        """Return a run of one phase against the address that clients use."""
        return Plan(url=self.url, model=MODEL, phases=(phase,), seed=int(time.time()), headers=self.headers)

    @contextmanager
    def traffic(self, phase: Phase = STEADY, *, may_fail_after_first_token: bool = False) -> Iterator[Traffic]:
        """Send load while the block runs, and assert that no request failed.

        Args:
            phase: the load.
            may_fail_after_first_token: allow what cannot be saved: an error, soon and clear, of an answer half given.
        """
        plan = self.plan(phase)
        with Load(plan, self.out / "load") as load:
            traffic = Traffic(load)
            traffic.wait_sent(10)
            yield traffic
            traffic.records = load.stop()
        check(traffic.records, may_fail_after_first_token=may_fail_after_first_token)


CLEAR_ERROR_S = 5.0


def check(records: list[Record], *, may_fail_after_first_token: bool) -> None:
    """Assert that every request succeeded, or that its failure was one that is allowed."""
    failed = [record for record in records if not record.succeeded]
    if may_fail_after_first_token:
        failed = [record for record in failed if not _told_in_time(record)]
    told = "; ".join(f"{record.outcome} {record.status} {record.error}" for record in failed[:5])
    assert not failed, f"{len(failed)} of {len(records)} requests failed: {told}"


def _told_in_time(record: Record) -> bool:
    """Whether a failed request had its first token already, and ended with an error soon after its last."""
    if record.last_token_s is None or record.ended_s is None or not record.error:
        return False
    return record.ended_s - record.last_token_s <= CLEAR_ERROR_S
