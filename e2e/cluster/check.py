"""`python -m e2e.cluster check`: brings a cluster up and tries everything that tests and the demo stand on."""

import json
import signal
import threading
import urllib.request
from collections.abc import Callable
from typing import Any

import yaml

from e2e.cluster import images
from e2e.cluster.factory import cluster
from e2e.cluster.interface import Cluster, ClusterError, Progress
from e2e.cluster.local import traces
from e2e.cluster.processes import wait_until

_NAMESPACE = "cluster-check"
_REPLICAS = 4
_PATIENCE_S = 120.0


def run(progress: Progress) -> None:
    """Run every check, or raise ClusterError at the first that fails; the cluster is down in the end."""
    target = cluster()
    if target.running:
        raise ClusterError("a cluster is up, and this check would take it down: `python -m e2e.cluster down` first")
    target.down(progress)
    before = traces.snapshot()
    target.up(progress)
    try:
        image = images.build(progress)
        target.load_image(image, progress)
        for check in (
            _pods_run,
            _services_answer,
            _gpus_are_counted,
            _logs_and_exec,
            _containers_die,
            _api_restarts,
            _ends,
        ):
            check(target, image)
            progress(f"holds: {(check.__doc__ or '').rstrip('.')}")
    except ClusterError:
        progress(target.kubectl("get", "pods,events", "-A", check=False).stdout)
        raise
    finally:
        target.down(progress)
    if target.name == "local" and (left := traces.leaks(before, traces.snapshot())):
        raise ClusterError("left behind:\n" + "\n".join(left))
    progress("holds: nothing is left behind")


def _pods_run(target: Cluster, image: str) -> None:
    """Hardened pods that ask for GPUs run on both nodes."""
    target.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(_manifests(image)))
    target.kubectl("-n", _NAMESPACE, "rollout", "status", "deployment/web", f"--timeout={_PATIENCE_S:.0f}s")
    nodes = {pod["spec"]["nodeName"] for pod in _pods(target)}
    _expect(len(nodes) == 2, f"pods run on {nodes}")


def _services_answer(target: Cluster, image: str) -> None:
    """A Service answers from where tests stand, and by name from within a pod."""
    del image
    _expect(_fetch(target, target.service_url(_NAMESPACE, "web", 80)).startswith("web-"), "the Service's answer")
    script = (
        "import urllib.request as u; print(u.urlopen('http://web.cluster-check.svc.cluster.local', timeout=5).status)"
    )
    answer = target.kubectl("-n", _NAMESPACE, "exec", "deployment/web", "--", "python", "-c", script)
    _expect(answer.stdout.strip() == "200", f"the answer by name: {answer.stdout}")


def _gpus_are_counted(target: Cluster, image: str) -> None:
    """A pod that asks for more GPUs than a node has is refused by the scheduler, with the reason."""
    greedy = _pod_spec(image) | {"containers": [_container(image, gpus=9)]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "greedy", "namespace": _NAMESPACE}, "spec": greedy}
    target.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    where = "-o=jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}"
    _await(lambda: "Insufficient nvidia.com/gpu" in _get(target, "pod/greedy", where), "the scheduler's refusal")
    target.kubectl("-n", _NAMESPACE, "delete", "pod", "greedy")


def _logs_and_exec(target: Cluster, image: str) -> None:
    """Logs and exec reach a container, which runs as the user that the image names."""
    del image
    _expect("serving" in target.kubectl("-n", _NAMESPACE, "logs", "deployment/web").stdout, "the log")
    answer = target.kubectl(
        "-n", _NAMESPACE, "exec", "deployment/web", "--", "sh", "-c", "id -u && swingpool --version && envoy --version"
    )
    _expect(answer.stdout.startswith("65532\n"), f"exec: {answer.stdout}")


def _containers_die(target: Cluster, image: str) -> None:
    """A container can be stopped, continued and killed, and is restarted when it was killed."""
    del image
    pod = _pods(target)[0]["metadata"]["name"]
    for number in (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL):
        target.kill_container(_NAMESPACE, pod, "web", number)
    where = "-o=jsonpath={.status.containerStatuses[0].restartCount}"
    _await(lambda: _get(target, f"pod/{pod}", where) == "1", f"the restart of {pod}")


def _api_restarts(target: Cluster, image: str) -> None:
    """The API server restarts, Services answer meanwhile, and the audit log tells what was written."""
    del image
    url = target.service_url(_NAMESPACE, "web", 80)
    target.restart_api_server()
    _expect(_fetch(target, url).startswith("web-"), "the Service's answer after the restart")
    events = [event for event in target.audit_events() if event.name == "web" and event.resource == "deployments"]
    _expect(any(event.field_manager == "kubectl-client-side-apply" for event in events), f"audit: {events}")
    _expect(target.helm("list", "-A").returncode == 0, "helm list")


def _ends(target: Cluster, image: str) -> None:
    """Deleting the namespace ends every pod in it."""
    del image
    target.kubectl("delete", "namespace", _NAMESPACE, f"--timeout={_PATIENCE_S:.0f}s")
    _expect(not target.kubectl("get", "pods", "-A", "-o", "name").stdout.strip(), "pods are left")


def _manifests(image: str) -> list[dict[str, object]]:
    labels = {"app": "web"}
    hardened = {"pod-security.kubernetes.io/enforce": "restricted"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE, "labels": hardened}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web", "namespace": _NAMESPACE},
            "spec": {
                "replicas": _REPLICAS,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": _pod_spec(image)},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web", "namespace": _NAMESPACE},
            "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": 8000}]},
        },
    ]


def _pod_spec(image: str) -> dict[str, object]:
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(image, gpus=1)],
    }


def _container(image: str, *, gpus: int) -> dict[str, object]:
    serve = (
        "import http.server, os\n"
        "class Answer(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200); self.end_headers(); self.wfile.write(os.environ['HOSTNAME'].encode())\n"
        "print('serving')\n"
        "http.server.ThreadingHTTPServer(('', 8000), Answer).serve_forever()\n"
    )
    return {
        "name": "web",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", serve],
        "resources": {"limits": {"nvidia.com/gpu": str(gpus), "memory": "128Mi"}, "requests": {"cpu": "10m"}},
        "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _pods(target: Cluster) -> list[dict[str, Any]]:
    found = json.loads(target.kubectl("-n", _NAMESPACE, "get", "pods", "-l", "app=web", "-o", "json").stdout)
    pods: list[dict[str, Any]] = found["items"]
    return pods


def _get(target: Cluster, thing: str, output: str) -> str:
    return target.kubectl("-n", _NAMESPACE, "get", thing, output, check=False).stdout


def _fetch(target: Cluster, url: str) -> str:
    """Fetch a URL from a thread that has entered the cluster's network, as entering cannot be undone."""
    answers: list[str] = []

    def fetch() -> None:
        target.enter()
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=10) as response:
            answers.append(response.read().decode())

    thread = threading.Thread(target=fetch)
    thread.start()
    thread.join()
    return answers[0] if answers else ""


def _await(condition: Callable[[], bool], what: str) -> None:
    wait_until(what, condition, limit_s=_PATIENCE_S)


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise ClusterError(f"not as expected: {what}")
