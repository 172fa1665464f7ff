"""A pod's engine sleeps and wakes by an action, on a real API server and a real process, and the pod says so after."""

from typing import cast

import httpx2

from swingpool.kube import Kube, Object
from swingpool.kube.kinds import POD
from swingpool.kube.objects import annotations_of, labels_of, uid_of
from swingpool.manager.act import Actor
from swingpool.manager.engine_calls import EngineCalls
from swingpool.manager.events import Recorder
from swingpool.manager.lease import Leadership
from swingpool.manager.metrics import Metrics
from swingpool.manager.store import Store
from swingpool.manager.writes import Writes
from swingpool_control import names
from swingpool_control.actions import EngineCall
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.conditions.view import build
from swingpool_control.figures import Unknown
from swingpool_control.reserve import mark
from swingpool_control.reserve.step import step
from tests.support.kubernetes import ready_status
from tests.support.manager_stand import Place
from tests.support.workers import WorkerProcess

SPEC: Object = {
    "model": {"name": "tiny"},
    "objectives": {"ttft": {"p95": "1s"}, "itl": {"p95": "50ms"}},
    "engine": {"type": "Simulated"},
    "pools": [
        {"name": "prefill", "role": "Prefill"},
        {"name": "decode", "role": "Decode", "replicas": {"min": 1, "max": 3, "reserve": 1}},
    ],
}
NOW = 1_800_000_000.0


async def test_a_worker_sleeps_and_wakes_as_its_mark_says(here: Place, kube: Kube, leading: Leadership) -> None:
    head = {"namespace": here.namespace, "name": "chat", "uid": "u", "generation": 1}
    cluster: Object = {"metadata": head, "spec": SPEC}
    store = Store(lambda kind, obj: None)
    with WorkerProcess("--wake-delay", "0.1") as worker:
        calls = EngineCalls(port=worker.port)
        writes = Writes(kube, leading, store)
        actor = Actor(writes=writes, store=store, recorder=cast(Recorder, None), metrics=Metrics(), engines=calls)
        spec = InferenceClusterSpec.model_validate(SPEC)
        pod = await _pod(here, kube)
        store.upsert(POD, pod)

        async def decided() -> tuple[EngineCall, ...]:
            known = store.all(POD)
            view = build(cluster=cluster, deployments=(), pods=known, router=Unknown("none"), models={})
            actions = step(view, now_unix_s=NOW)
            await actor.carry_out(cluster, spec, actions)
            await calls.settle()
            return tuple(action for action in actions if isinstance(action, EngineCall))

        view = build(cluster=cluster, deployments=(), pods=[pod], router=Unknown("none"), models={})
        await actor.carry_out(cluster, spec, [mark.begin(spec, view.workers[0], now_unix_s=NOW)])
        assert [call.call for call in await decided()] == ["sleep"]
        assert httpx2.get(f"{worker.url}/is_sleeping").json() == {"is_sleeping": True}
        stored = await kube.get(POD, "sleeper", namespace=here.namespace)
        assert labels_of(stored)[names.LABEL_ROLE] == names.ROLE_ASLEEP
        known = mark.parse(annotations_of(stored)[names.ANNOTATION_ASLEEP])
        assert known is not None
        assert known.state is mark.State.ASLEEP
        assert await decided() == (), "who sleeps is told once"

        view = build(cluster=cluster, deployments=(), pods=[stored], router=Unknown("none"), models={})
        waking = mark.turn(view.workers[0], known, mark.State.WAKING, now_unix_s=NOW, reason="test")
        await actor.carry_out(cluster, spec, [waking])
        assert [call.call for call in await decided()] == ["wake"]
        assert httpx2.get(f"{worker.url}/is_sleeping").json() == {"is_sleeping": False}
        awake = await kube.get(POD, "sleeper", namespace=here.namespace)
        assert labels_of(awake)[names.LABEL_ROLE] == names.ROLE_DECODE
        assert names.ANNOTATION_ASLEEP not in annotations_of(awake)
        assert uid_of(awake) == uid_of(pod)
        await calls.close()


async def _pod(here: Place, kube: Kube) -> Object:
    labels = {
        names.LABEL_COMPONENT: names.COMPONENT_WORKER,
        names.LABEL_CLUSTER: "chat",
        names.LABEL_POOL: "decode",
        names.LABEL_ROLE: names.ROLE_DRAINING,
    }
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "sleeper", "namespace": here.namespace, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "a:1"}]},
    }
    await kube.create(made)
    here.merge("Pod", "sleeper", {"status": ready_status("127.0.0.1")}, subresource="/status")
    return await kube.get(POD, "sleeper", namespace=here.namespace)
