"""Kubernetes' own programs, etcd, CoreDNS and Helm, built once from Go modules and kept in the cache.

The modules under `modules/` pin every version; the cache is keyed by them and by the compiler, so that a build happens
when one of those changes and never otherwise.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from e2e.cluster.interface import ClusterError, Progress
from e2e.cluster.paths import cache, lock, silent

_MODULES = Path(__file__).parent / "modules"
_GO_NEEDED = (
    "Go is needed to build {program} (once; it is cached): put Go 1.21 or newer on PATH; it fetches the version that "
    "the module asks for by itself"
)


@dataclass(frozen=True, kw_only=True)
class Module:
    """A Go module of ours that pins others' programs: each program's name and the package that it is built from."""

    name: str
    programs: dict[str, str]
    about: str

    @property
    def directory(self) -> Path:
        """Where the module's go.mod and go.sum lie."""
        return _MODULES / self.name


MODULES = (
    Module(
        name="kubernetes",
        programs={
            "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
            "etcd": "go.etcd.io/etcd/server/v3",
            "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
            "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
            "kubelet": "k8s.io/kubernetes/cmd/kubelet",
            "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
        },
        about="the first takes minutes, the rest less",
    ),
    Module(name="coredns", programs={"coredns": "github.com/coredns/coredns"}, about="about two minutes"),
    Module(name="helm", programs={"helm": "helm.sh/helm/v4/cmd/helm"}, about="about two minutes"),
    Module(name="kind", programs={"kind": "sigs.k8s.io/kind"}, about="under a minute"),
    Module(name="pause", programs={"pause": "."}, about="seconds"),
    Module(name="istio", programs={"istiod": "istio.io/istio/pilot/cmd/pilot-discovery"}, about="ten minutes"),
)
CONTROL_PLANE = ("kube-apiserver", "etcd", "kube-controller-manager")
_FROM_ELSEWHERE = {"kube-apiserver", "etcd", "kube-controller-manager", "helm", "kind"}
"""Programs that may come from KUBEBUILDER_ASSETS or PATH if their version fits."""


def binaries(*names: str, progress: Progress = silent) -> dict[str, Path]:
    """Return where each named program lies, building what the cache lacks. Raises ClusterError if that fails."""
    found = {name: path for name in names if (path := _elsewhere(name))}
    wanted = [name for name in names if name not in found]
    targets = {name: _target(_module_of(name), name) for name in wanted}
    missing = [name for name in wanted if not targets[name].exists()]
    if missing:
        with lock("build", progress):
            for number, name in enumerate(missing, start=1):
                if not targets[name].exists():
                    _build(_module_of(name), name, targets[name], f"{number} of {len(missing)}", progress)
    return found | targets


def kubectl() -> Path:
    """Return the kubectl that the development environment brings. Raises ClusterError if it lacks one."""
    found = shutil.which("kubectl", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise ClusterError("kubectl is missing: run `make setup`")
    return Path(found)


def source(module: str, dependency: str) -> Path:
    """Return the folder with a pinned dependency's files, fetched if Go's cache lacks it. Raises ClusterError."""
    if shutil.which("go") is None:
        raise ClusterError(_GO_NEEDED.format(program=dependency))
    command = ["go", "mod", "download", "-json", dependency]
    done = subprocess.run(command, cwd=_MODULES / module, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"{dependency} cannot be fetched: {_tail(done.stdout + done.stderr)}")
    return Path(json.loads(done.stdout)["Dir"])


def kubernetes_version() -> str:
    """Return the version of Kubernetes that the module pins, such as `v1.37.2`."""
    return _pinned("kubernetes", "k8s.io/kubernetes")


def _pinned(module: str, dependency: str) -> str:
    text = (_MODULES / module / "go.mod").read_text()
    match = re.search(rf"^(?:require|\t)\s*{re.escape(dependency)} (v\S+)", text, re.MULTILINE)
    if match is None:
        raise ClusterError(f"modules/{module}/go.mod does not require {dependency}")
    return match[1]


def _module_of(program: str) -> Module:
    for module in MODULES:
        if program in module.programs:
            return module
    raise ClusterError(f"no module builds {program!r}")


def _ldflags(module: Module) -> str:
    if module.name != "kubernetes":
        return "-s -w"
    version = kubernetes_version()
    major, minor = version.removeprefix("v").split(".")[:2]
    package = "k8s.io/component-base/version"
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {package}.{key}={value}" for key, value in stamps.items())])


@lru_cache
def _go_version() -> str:
    if shutil.which("go") is None:
        return "none"
    # Asked inside a module, so that the toolchain which that module selects answers.
    answer = subprocess.run(
        ["go", "env", "GOVERSION"], cwd=MODULES[0].directory, capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()


def _target(module: Module, program: str) -> Path:
    digest = hashlib.sha256()
    for file in sorted(module.directory.iterdir()):
        if file.suffix in {".mod", ".sum", ".go"}:
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    digest.update(f"{_go_version()}\0{_ldflags(module)}".encode())
    return cache() / "bin" / f"{module.name}-{digest.hexdigest()[:16]}" / program


def _build(module: Module, program: str, target: Path, which: str, progress: Progress) -> None:
    if shutil.which("go") is None:
        raise ClusterError(_GO_NEEDED.format(program=program))
    progress(f"building {program} ({which}; {module.about})")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{program}.partial")
    command = ["go", "build", f"-ldflags={_ldflags(module)}", "-o", str(partial), module.programs[program]]
    begin = time.monotonic()
    done = subprocess.run(
        command,
        cwd=module.directory,
        env=os.environ | {"CGO_ENABLED": "0"},  # one setting for all, or everything is compiled twice
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ClusterError(f"building {program} failed: {' '.join(command)}\n{_tail(done.stdout)}")
    partial.rename(target)
    progress(f"built {program} in {time.monotonic() - begin:.0f} s")


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-20:])


def _elsewhere(program: str) -> Path | None:
    """Return a fitting program from KUBEBUILDER_ASSETS or PATH, or None."""
    if program not in _FROM_ELSEWHERE:
        return None
    folders = [folder for folder in (os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("PATH")) if folder]
    found = shutil.which(program, path=os.pathsep.join(folders))
    return Path(found) if found and _fits(program, Path(found)) else None


@lru_cache
def _fits(program: str, path: Path) -> bool:
    """Whether a program that we did not build serves: Kubernetes of our minor, etcd 3.5+, Helm 3.14+, kind 0.27+."""
    arguments = ["version", "--short"] if program == "helm" else ["--version"]
    try:
        answer = subprocess.run([path, *arguments], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return fits(program, answer.stdout)


def fits(program: str, answer: str) -> bool:
    """Whether what a program answered about its version is a version that serves."""
    match = re.search(r"v?(\d+)\.(\d+)\.\d+", answer)
    if match is None:
        return False
    version = int(match[1]), int(match[2])
    if program == "etcd":
        return version >= (3, 5)
    if program == "helm":
        return version >= (3, 14)
    if program == "kind":
        return version >= (0, 27)
    major, minor = kubernetes_version().removeprefix("v").split(".")[:2]
    return version == (int(major), int(minor))
