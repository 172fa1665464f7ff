"""What makes Services and names work: kube-proxy and CoreDNS, one of each for the machine."""

import http
import http.client
from pathlib import Path

from e2e.cluster.api import Api
from e2e.cluster.local import cgroups, config, network
from e2e.cluster.local.layout import CLUSTER_DNS, COREDNS_READY_PORT, DNS_ADDRESS, NODES, POD_RANGE, state
from e2e.cluster.processes import Processes


def proxy_command(program: Path, kubeconfig: Path) -> list[str]:
    """Return kube-proxy's command line; zeros leave the machine's connection tracking as it is."""
    return [
        str(program),
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={NODES[0].name}",
        "--proxy-mode=iptables",
        f"--cluster-cidr={POD_RANGE}",
        "--iptables-min-sync-period=100ms",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
        "--healthz-bind-address=127.0.0.1:10256",
        "--metrics-bind-address=127.0.0.1:10249",
    ]


def dns_objects() -> dict[str, dict[str, object]]:
    """Return the Service of the cluster's DNS and the endpoints behind it, by API path."""
    metadata = {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}}
    ports = [{"name": name, "port": 53, "protocol": protocol} for name, protocol in (("dns", "UDP"), ("tcp", "TCP"))]
    return {
        "/api/v1/namespaces/kube-system/services/kube-dns": {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"clusterIP": CLUSTER_DNS, "ports": ports},
        },
        "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns": {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": metadata | {"labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [DNS_ADDRESS], "conditions": {"ready": True}}],
            "ports": ports,
        },
    }


class Services:
    """kube-proxy and CoreDNS of the local cluster."""

    def __init__(self) -> None:
        self._processes = Processes(state(), prefix=(*network.PREFIX, *cgroups.entering()))

    def start_proxy(self, program: Path, *, kubeconfig: Path, mount_namespace: tuple[str, ...]) -> None:
        """Start kube-proxy in a node's mount namespace, where its lock file is its own."""
        self._processes.start("kube-proxy", [*mount_namespace, *proxy_command(program, kubeconfig)])

    def start_dns(self, program: Path, *, kubeconfig: Path, api: Api) -> None:
        """Start CoreDNS and tell the cluster where it answers."""
        corefile = state() / "Corefile"
        corefile.write_text(config.corefile(kubeconfig))
        self._processes.start("coredns", [program, "-conf", corefile])
        for path, manifest in dns_objects().items():
            api.apply(path, manifest)

    def finish(self) -> None:
        """Wait until CoreDNS has read the cluster's Services. Raises ClusterError with its words if it does not."""
        self._processes.wait_ready("coredns", _dns_ready, limit_s=30.0)

    def stop(self) -> None:
        """End both."""
        for name in ("coredns", "kube-proxy"):
            self._processes.stop(name)


def _dns_ready() -> bool:
    def ask() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", COREDNS_READY_PORT, timeout=1.0)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    return bool(network.inside(ask))
