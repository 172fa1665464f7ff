"""Watches role labels during all scenarios: no change of role may take the last ready prefill or decode worker away."""

import threading
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from lightkube import Client, KubeConfig

from e2e.system.kubernetes import Pod, pod_of
from e2e.system.waiting import TRANSIENT
from swingpool.kube import kinds
from swingpool_control import names

ROLES = (names.ROLE_PREFILL, names.ROLE_DECODE)
_WATCH_S = 20


@dataclass(slots=True)
class Judge:
    """Follows the workers of one InferenceCluster and finds changes of role that were not allowed."""

    pods: dict[str, Pod] = field(default_factory=dict)
    changes: int = 0
    faults: list[str] = field(default_factory=list)

    def saw(self, pod: Pod) -> None:
        """Take in a worker as it is now."""
        before = self.pods.get(pod.uid)
        self.pods[pod.uid] = pod
        if before is None or before.role == pod.role:
            return
        self.changes += 1
        lost_last = before.role in ROLES and before.serves and not self.serving(before.role)
        if lost_last:
            self.faults.append(f"{pod.name} left role {before.role} and no other ready worker has it")

    def gone(self, pod: Pod) -> None:
        """Take in that a worker is gone."""
        self.pods.pop(pod.uid, None)

    def serving(self, role: str) -> list[str]:
        """Return the workers that serve in a role."""
        return [pod.name for pod in self.pods.values() if pod.role == role and pod.serves]


class Guard:
    """A judge for every InferenceCluster, fed by a watch in a thread of its own."""

    def __init__(self, kubeconfig: Path) -> None:
        timeout = httpx2.Timeout(5, read=_WATCH_S + 5)
        self._client = Client(config=KubeConfig.from_file(kubeconfig), timeout=timeout, trust_env=False)
        self._stop = threading.Event()
        self.judges: dict[tuple[str, str], Judge] = {}
        self._thread = threading.Thread(target=self._follow, name="role-guard", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the watch; at the latest when the server ends it."""
        self._stop.set()

    @property
    def changes(self) -> int:
        """How many changes of role were seen."""
        return sum(judge.changes for judge in self.judges.values())

    @property
    def faults(self) -> list[str]:
        """What was not allowed, in words."""
        return [fault for judge in self.judges.values() for fault in judge.faults]

    def _follow(self) -> None:
        labels = {names.LABEL_COMPONENT: names.COMPONENT_WORKER}
        while not self._stop.is_set():
            try:
                listed = self._client.list(kinds.POD.resource, namespace="*", labels=dict(labels))
                for obj in listed:
                    self._saw(obj)
                for kind, obj in self._client.watch(
                    kinds.POD.resource, namespace="*", labels=dict(labels), resource_version=listed.resourceVersion,
                    server_timeout=_WATCH_S,
                ):  # fmt: skip
                    if kind == "DELETED":
                        self._judge(obj).gone(pod_of(obj))
                    else:
                        self._saw(obj)
                    if self._stop.is_set():
                        return
            except TRANSIENT:
                self._stop.wait(0.2)

    def _saw(self, obj: dict[str, object]) -> None:
        self._judge(obj).saw(pod_of(obj))

    def _judge(self, obj: dict[str, object]) -> Judge:
        meta = obj["metadata"]
        assert isinstance(meta, dict)
        key = str(meta["namespace"]), str(meta["labels"].get(names.LABEL_CLUSTER, ""))
        return self.judges.setdefault(key, Judge())
