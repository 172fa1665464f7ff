"""What stands behind an explanation, through the Kubernetes API: the resource, and the leading manager's decisions.

The manager is reached through the API server's proxy, so that nothing need be opened; the user needs `get` on the
Lease, and on `pods/proxy` in the manager's namespace.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
from lightkube import KubeConfig
from lightkube.config.client_adapter import Client, ConnectionParams
from lightkube.core.exceptions import ConfigError

from swingpool_control import names

TIMEOUT_S = 15.0


class FetchError(RuntimeError):
    """Something could not be had; the message says what, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerPlace:
    """Where the manager is."""

    namespace: str
    lease: str
    port: int
    url: str = ""
    """Its metrics address, if it is to be asked directly."""


class Cluster:
    """One Kubernetes cluster, read.

    Every method raises `httpx2.HTTPError` if nobody answers, and `FetchError` if the answer is a refusal or no JSON.
    """

    def __init__(self, client: httpx2.Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace
        """The namespace of the kubeconfig's context."""

    def inference_cluster(self, namespace: str, name: str) -> dict[str, Any]:
        """Return an InferenceCluster."""
        path = f"/apis/{names.GROUP}/{names.VERSION}/namespaces/{namespace}/{names.PLURAL}/{name}"
        found: dict[str, Any] = self._get(path, f"InferenceCluster {namespace}/{name}")
        return found

    def decisions(self, namespace: str, name: str, manager: ManagerPlace, *, last: int | None = None) -> Any:
        """Return the last decisions about an InferenceCluster as the manager wrote them.

        Args:
            namespace: of the InferenceCluster.
            name: of the InferenceCluster.
            manager: whom to ask.
            last: how many of each loop; None: all that the manager keeps.

        Raises:
            FetchError: no manager leads.
        """
        what = f"the decisions about {namespace}/{name}"
        asked = f"/decisions/{namespace}/{name}" + ("" if last is None else f"?last={last}")
        if manager.url:
            return _json(httpx2.get(f"{manager.url}{asked}", timeout=TIMEOUT_S), what)
        lease = self._get(
            f"/apis/coordination.k8s.io/v1/namespaces/{manager.namespace}/leases/{manager.lease}",
            f"the manager's Lease {manager.namespace}/{manager.lease}",
        )
        holder = (lease.get("spec") or {}).get("holderIdentity") or ""
        if not holder:
            raise FetchError("no manager leads: its Lease has no holder")
        path = f"/api/v1/namespaces/{manager.namespace}/pods/{holder}:{manager.port}/proxy"
        return self._get(f"{path}{asked}", what)

    def request(self, namespace: str, name: str, request_id: str, *, port: int) -> list[dict[str, Any]]:
        """Return what the pickers of an InferenceCluster remember of a request, the newest of that id first.

        Args:
            namespace: of the InferenceCluster.
            name: of the InferenceCluster.
            request_id: what the answer's header x-request-id told.
            port: where pickers answer.

        Raises:
            FetchError: the InferenceCluster has no router pod.
        """
        selector = f"{names.LABEL_CLUSTER}={name},{names.LABEL_COMPONENT}={names.COMPONENT_ROUTER}"
        pods = self._get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}", "the router's pods")["items"]
        if not pods:
            raise FetchError(f"{namespace}/{name} has no router pod; with an external router, ask that one")
        found: list[dict[str, Any]] = []
        for pod in (item["metadata"]["name"] for item in pods):
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy/requests/{quote(request_id, safe='')}"
            answer = self._client.get(path)
            if answer.status_code != httpx2.codes.NOT_FOUND:
                found += [{"router": pod, **one} for one in _json(answer, f"what {pod} remembers of it")]
        return sorted(found, key=lambda one: -float(one["arrivedUnixS"]))

    def _get(self, path: str, what: str) -> Any:
        return _json(self._client.get(path), what)


@contextmanager
def connected(kubeconfig: Path | None) -> Iterator[Cluster]:
    """Yield the cluster of a kubeconfig, else of the pod's ServiceAccount, `$KUBECONFIG` or `~/.kube/config`.

    Raises:
        FetchError: no configuration is found, it is broken, or the API server does not answer.
    """
    try:
        config = (KubeConfig.from_file(kubeconfig) if kubeconfig else KubeConfig.from_env()).get()
        if config is None:
            raise FetchError("the kubeconfig has no current context")
        parameters = ConnectionParams(timeout=httpx2.Timeout(TIMEOUT_S), trust_env=False)
        with Client(config, parameters) as client:
            yield Cluster(client, config.namespace)
    except (ConfigError, KeyError, OSError) as error:
        raise FetchError(f"the kubeconfig cannot be used: {error}") from error
    except httpx2.HTTPError as error:
        raise FetchError(f"no answer: {error}") from error


def _json(answer: httpx2.Response, what: str) -> Any:
    if answer.status_code != httpx2.codes.OK:
        text = answer.text.strip()
        with suppress(ValueError, KeyError, TypeError):
            text = str(json.loads(text)["message"])
        raise FetchError(f"{what} cannot be had ({answer.status_code}): {text[:500]}")
    try:
        return answer.json()
    except ValueError as error:
        raise FetchError(f"{what} cannot be read: {error}") from error
