"""The Job that measures a worker, on a real API server: what it makes is taken, and how it ends is told."""

import asyncio

import pytest

from swingpool.kube import Kube
from swingpool.kube.kinds import CONFIG_MAP, JOB, POD, SERVICE_ACCOUNT
from swingpool.kube.objects import name_of
from swingpool.profiling import in_cluster, job
from swingpool.profiling.job import JobOptions
from swingpool.profiling.wire import WorkerError
from swingpool_control import names
from swingpool_control.engine.profile import built_in
from tests.support.kubernetes import kubectl
from tests.support.manager_stand import Place
from tests.support.waiting import until_async


def options(here: Place, name: str) -> JobOptions:
    return JobOptions(
        name=name,
        namespace=here.namespace,
        image="registry.example/swingpool:1",
        arguments=("http://10.0.0.7:8000", "--accelerator", "X", "--kv-bytes-per-token", "1"),
        deadline_s=600,
    )


async def test_its_pod_is_let_in_where_pods_are_restricted_and_needs_no_token(here: Place, kube: Kube) -> None:
    account, made = job.manifests(options(here, "let-in"))
    kubectl(here.plane, "label", "ns", here.namespace, "pod-security.kubernetes.io/enforce=restricted", "--overwrite")
    await kube.apply(account, field_manager=names.FIELD_MANAGER)
    await kube.create(made)

    async def exists() -> bool:
        labels = {"batch.kubernetes.io/job-name": "let-in"}
        return bool((await kube.list(POD, namespace=here.namespace, labels=labels)).objects)

    await until_async("the Job's pod exists", exists)
    stored = await kube.get(SERVICE_ACCOUNT, "let-in", namespace=here.namespace)
    assert stored["automountServiceAccountToken"] is False
    bindings = kubectl(here.plane, "get", "rolebindings,clusterrolebindings", "-A", "-o", "name")
    assert "let-in" not in bindings


async def test_a_job_that_fails_is_told_and_one_that_exists_is_left_alone(here: Place, kube: Kube) -> None:
    told: list[str] = []
    running = asyncio.create_task(in_cluster.measure(kube, options(here, "failing"), config_map=None, say=told.append))

    async def made() -> bool:
        return any(name_of(one) == "failing" for one in (await kube.list(JOB, namespace=here.namespace)).objects)

    await until_async("the Job exists", made)
    with pytest.raises(WorkerError, match="exists already"):
        await in_cluster.measure(kube, options(here, "failing"), config_map=None, say=told.append)
    kubectl(
        here.plane, "-n", here.namespace, "patch", "job", "failing", "--type=merge",
        "-p", '{"spec":{"activeDeadlineSeconds":1}}',
    )  # fmt: skip
    with pytest.raises(WorkerError, match=r"Failed: .*deadline"):
        await running
    assert "is made" in told[0]


async def test_a_profile_fits_into_a_config_map_that_a_cluster_can_name(here: Place, kube: Kube) -> None:
    made = job.config_map(built_in("demo"), name="measured", namespace=here.namespace)
    await kube.apply(made, field_manager=names.FIELD_MANAGER)
    stored = await kube.get(CONFIG_MAP, "measured", namespace=here.namespace)
    assert job.result([stored["data"]["profile.json"].replace("\n", "")]) == built_in("demo")
