"""The local provider's configuration files, each read back in its own format."""

import ipaddress
import tomllib
from pathlib import Path

import pytest

from e2e.cluster.controlplane import SERVICE_RANGE
from e2e.cluster.interface import ClusterError
from e2e.cluster.local import cgroups, config, layout, packages, services
from e2e.cluster.local.layout import NODES, NodeSpec

_CONTAINERD = config.containerd(
    store=Path('/cache/with "quotes"/store'),
    run=Path("/run/swingpool/gpu-1/state"),
    socket=Path("/run/swingpool/gpu-1/containerd.sock"),
    cni_conf=Path("/state/cni"),
    cni_bin=Path("/usr/lib/cni"),
)


def test_containerd_keeps_everything_in_its_own_places() -> None:
    read = tomllib.loads(_CONTAINERD)
    assert read["root"] == '/cache/with "quotes"/store'
    assert read["grpc"]["address"] == "/run/swingpool/gpu-1/containerd.sock"
    kubernetes = read["plugins"]["io.containerd.grpc.v1.cri"]
    assert kubernetes["sandbox_image"] == config.PAUSE_IMAGE
    assert kubernetes["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/state/cni"}


def test_maintenance_leaves_pods_of_an_earlier_run_alone() -> None:
    read = tomllib.loads(config.containerd_without_kubernetes(_CONTAINERD))
    assert read["disabled_plugins"] == ["io.containerd.grpc.v1.cri"]
    assert read["root"] == tomllib.loads(_CONTAINERD)["root"]


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_nodes_do_not_overlap(node: NodeSpec) -> None:
    pods = ipaddress.ip_network(node.pod_range)
    assert pods.subnet_of(ipaddress.ip_network(layout.POD_RANGE))  # type: ignore[arg-type]
    assert not pods.overlaps(ipaddress.ip_network(SERVICE_RANGE))
    others = [other for other in NODES if other is not node]
    assert not any(pods.overlaps(ipaddress.ip_network(other.pod_range)) for other in others)
    taken = [layout.CONTROL_PLANE_ADDRESS, layout.DNS_ADDRESS, *(other.address for other in others)]
    assert node.address not in taken
    assert not any(ipaddress.ip_address(address) in pods for address in [*taken, node.address])


def test_a_kubelet_trusts_only_the_api_server_and_never_touches_the_kernel() -> None:
    read = config.kubelet(NODES[0], directory=Path("/s"), socket=Path("/c.sock"), client_ca=Path("/ca.crt"))
    assert read["authentication"] == {
        "anonymous": {"enabled": False},
        "webhook": {"enabled": True},
        "x509": {"clientCAFile": "/ca.crt"},
    }
    assert read["protectKernelDefaults"] is True
    assert read["cgroupRoot"] == f"/{cgroups.node_group('gpu-1')}"


def test_the_pod_network_leases_from_the_nodes_own_range() -> None:
    read = config.pod_network(NODES[1], leases=Path("/s/leases"))
    assert read["plugins"] == [
        {
            "type": "ptp",
            "ipMasq": False,
            "ipam": {
                "type": "host-local",
                "dataDir": "/s/leases",
                "ranges": [[{"subnet": "10.244.2.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ]


def test_a_nodes_mounts_keep_what_lies_below_a_covered_directory() -> None:
    script = config.node_mounts(
        directory=Path("/var/lib/ci/cache/state/gpu-1"), kept=[Path("/run/swingpool"), Path("/var/lib/ci/cache")]
    )
    lines = script.splitlines()
    cover = "/var/lib/ci/cache/state/gpu-1/covers"
    kept = lines.index(f"mount --rbind /var/lib/ci/cache {cover}/1/ci/cache")
    assert kept < lines.index(f"mount --rbind {cover}/1 /var/lib")
    assert lines.index(f"mount --rbind /run/swingpool {cover}/0/swingpool") < lines.index(
        f"mount --rbind {cover}/0 /run"
    )
    assert lines[-1] == 'exec "$@"'


def test_dns_answers_where_the_service_points() -> None:
    objects = list(services.dns_objects().values())
    assert [each["kind"] for each in objects] == ["Service", "EndpointSlice"]
    assert f"bind {layout.DNS_ADDRESS}" in config.corefile(Path("/k"))
    assert objects[1]["endpoints"] == [{"addresses": [layout.DNS_ADDRESS], "conditions": {"ready": True}}]


@pytest.mark.parametrize(
    ("mounts", "expected"),
    [
        pytest.param(
            "cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0",
            ([Path("/sys/fs/cgroup/pids")], False),
            id="hybrid",
        ),
        pytest.param("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0", ([Path("/sys/fs/cgroup")], True), id="version 2"),
        pytest.param("proc /proc proc rw 0 0", ([], True), id="none"),
    ],
)
def test_control_group_hierarchies(mounts: str, expected: tuple[list[Path], bool]) -> None:
    assert cgroups.mounted(mounts) == expected


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert {"containerd", "runc", "iproute2", "buildah"} <= set(packages.missing())
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(ClusterError, match=r"install what Debian calls containerd .*no apt-get"):
        packages.ensure(lambda line: None)


def test_without_root_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match="needs root: run it as root, or install a Docker engine and kind"):
        packages.ensure(lambda line: None)
