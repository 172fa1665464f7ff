"""An InferenceCluster of swing workers alone: every role is a decision, and none may ever be without a worker."""

import dataclasses

from e2e.load.background import Load
from e2e.load.plan import Plan
from e2e.scenarios.scenario import Facts, Scenario
from e2e.scenarios.stage import GENERATION, MODEL, PROMPTS, Stage, check
from e2e.system.router import wait_serving
from e2e.system.waiting import wait_until
from swingpool_control import names

_NAMESPACE, _CLUSTER = "e2e-swing", "swing"
MANIFEST = """
apiVersion: swingpool.dev/v1alpha1
kind: InferenceCluster
metadata: {name: swing}
spec:
  model: {name: e2e/chat, maxLength: 8192}
  objectives: {ttft: {p95: 1s}, itl: {p95: 60ms}}
  engine: {type: Simulated, maxRequestDuration: 30s, simulated: {speedup: "0.5"}}
  profile: {builtIn: demo}
  scaling: {stabilization: {minRoleDuration: 5s}}
  pools:
  - {name: swing, role: Swing, replicas: {mode: Fixed, count: 4}}
"""
_LOAD_S = 25.0


def all_swing(stage: Stage) -> Facts:
    """Serve with swing workers alone, through a change of load."""
    system = stage.system
    system.fresh_namespace(_NAMESPACE)
    try:
        stage.apply(MANIFEST, namespace=_NAMESPACE)
        system.wait_ready(_NAMESPACE, _CLUSTER)
        url = wait_serving(system, _NAMESPACE, _CLUSTER)
        wait_until(
            "both roles to be served",
            lambda: {pod.role for pod in system.kube.workers(namespace=_NAMESPACE, cluster=_CLUSTER) if pod.serves},
            lambda roles: {names.ROLE_PREFILL, names.ROLE_DECODE} <= roles,
            limit_s=30,
        )
        phases = tuple(dataclasses.replace(phase, seconds=_LOAD_S) for phase in (PROMPTS, GENERATION))
        with Load(Plan(url=url, model=MODEL, phases=phases), stage.out / "load") as load:
            records = load.wait()
        check(records, may_fail_after_first_token=False)
    finally:
        system.delete_namespace(_NAMESPACE)
    return {"requests": len(records), "failed": 0}


SCENARIOS = (Scenario(name="all-swing", about="swing workers alone serve through a change of load", run=all_swing),)
