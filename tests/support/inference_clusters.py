"""InferenceClusters for tests, and the API server's word on them."""

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.controlplane import ControlPlane
from e2e.cluster.interface import ClusterError
from swingpool_control import names
from tests.support import kubernetes
from tests.support.waiting import until

CRD_FILE = Path(__file__).resolve().parents[2] / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml"
NAMESPACE = "inference-clusters"
API_VERSION = f"{names.GROUP}/{names.VERSION}"
COLLECTION = kubernetes.path(names.KIND, NAMESPACE)

SMALLEST = """\
apiVersion: swingpool.dev/v1alpha1
kind: InferenceCluster
metadata: {name: chat}
spec:
  model: {name: Qwen/Qwen3-32B}
  objectives: {ttft: {p95: 500ms}, itl: {p95: 40ms}}
  pools:
  - {name: prefill, role: Prefill}
  - {name: decode, role: Decode}
"""
"""The smallest useful resource."""


@dataclass(frozen=True)
class Refusal:
    """Why the API server refused a resource: its code, and each field with what is said of it."""

    code: int
    message: str
    causes: tuple[tuple[str, str], ...]

    def says(self, field: str, words: str) -> bool:
        """Tell whether a cause names the field and holds the words."""
        return any(cause == field and words in message for cause, message in self.causes)


def smallest() -> dict[str, Any]:
    """Return the smallest useful resource as plain data."""
    resource: dict[str, Any] = yaml.safe_load(SMALLEST)
    return resource


def changed(resource: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a copy with values set, or removed where None, at paths written `spec__pools__0__name`."""
    result = copy.deepcopy(resource)
    for path, value in changes.items():
        *parents, last = (int(step) if step.isdigit() else step for step in path.split("__"))
        node: Any = result
        for step in parents:
            node = node[step] if isinstance(step, int) else node.setdefault(step, {})
        if value is None:
            del node[last]
        else:
            node[last] = value
    return result


def install(plane: ControlPlane) -> None:
    """Install the committed CustomResourceDefinition and the tests' namespace, and wait until it is served."""
    definition = yaml.safe_load(CRD_FILE.read_text())
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.PLURAL}.{names.GROUP}"
    plane.api.apply(path, definition)
    kubernetes.make_namespace(plane, NAMESPACE)
    until(f"the API server serves {COLLECTION}", lambda: _served(plane))


def _served(plane: ControlPlane) -> bool:
    try:
        plane.api.call("GET", COLLECTION)
    except ClusterError:
        return False
    return True


def create(plane: ControlPlane, resource: dict[str, Any], *, dry_run: bool = True) -> dict[str, Any] | Refusal:
    """Create a resource under strict validation; return it with its defaults, or why it was refused."""
    return _ask(plane, "POST", f"{COLLECTION}?fieldValidation=Strict{'&dryRun=All' if dry_run else ''}", resource)


def update(
    plane: ControlPlane, resource: dict[str, Any], *, subresource: str = "", dry_run: bool = True
) -> dict[str, Any] | Refusal:
    """Replace a resource or its subresource under strict validation; return it, or why it was refused."""
    path = f"{COLLECTION}/{resource['metadata']['name']}{subresource}"
    return _ask(plane, "PUT", f"{path}?fieldValidation=Strict{'&dryRun=All' if dry_run else ''}", resource)


def _ask(plane: ControlPlane, method: str, path: str, body: dict[str, Any]) -> dict[str, Any] | Refusal:
    try:
        answer: dict[str, Any] = plane.api.call(method, path, body)
    except ClusterError as error:
        _, brace, rest = str(error).partition("{")
        status = json.loads(brace + rest)
        causes = status.get("details", {}).get("causes", [])
        return Refusal(
            code=status["code"],
            message=status["message"],
            causes=tuple((cause.get("field", ""), cause.get("message", "")) for cause in causes),
        )
    return answer


def case(name: str, field: str, words: str, **changes: Any) -> Any:
    """Return one bad resource: what is changed in the smallest one, and what the API server must say of which field."""
    return pytest.param(changes, field, words, id=name)
