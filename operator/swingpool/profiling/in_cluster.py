"""Has a Job measure a worker, tells what it says, and fetches the profile."""

import asyncio
from collections.abc import Callable

from swingpool.kube import Kube, KubeError, Object
from swingpool.kube.kinds import JOB, POD
from swingpool.kube.objects import field, metadata, name_of
from swingpool.profiling import job
from swingpool.profiling.job import JobOptions
from swingpool.profiling.wire import WorkerError
from swingpool_control import names
from swingpool_control.engine.profile import Profile

POLL_S = 2.0

Say = Callable[[str], None]


async def measure(kube: Kube, options: JobOptions, *, config_map: str | None, say: Say) -> Profile:
    """Run the Job and return the profile, which is written into a ConfigMap as well if one is named.

    Raises:
        WorkerError: the Job failed, or its log holds no profile.
        KubeError: it cannot be made or watched.
    """
    account, made = job.manifests(options)
    await kube.apply(account, field_manager=names.FIELD_MANAGER)
    try:
        await kube.create(made)
    except KubeError as error:
        if error.status == 409:
            raise WorkerError(
                f"Job {options.namespace}/{options.name} exists already: delete it, or name another with --job-name"
            ) from error
        raise
    say(f"Job {options.namespace}/{options.name} is made; kubectl logs -f job/{options.name} shows it too")
    how, log = await _follow(kube, options, say)
    found = job.result(log)
    if how != "Complete" or found is None:
        tail = "\n".join(log[-10:])
        raise WorkerError(f"Job {options.namespace}/{options.name}: {how}; its log ends with:\n{tail}")
    if config_map is not None:
        written = job.config_map(found, name=config_map, namespace=options.namespace)
        await kube.apply(written, field_manager=names.FIELD_MANAGER)
        say(f"written to ConfigMap {options.namespace}/{config_map}, key profile.json")
    return found


async def _follow(kube: Kube, options: JobOptions, say: Say) -> tuple[str, list[str]]:
    """Tell new lines of the log until the Job has ended; return how it did, and the whole log."""
    log: list[str] = []
    told = ""
    while True:
        how = job.ended(await kube.get(JOB, options.name, namespace=options.namespace))
        pod = await _pod(kube, options)
        if pod is not None:
            fresh = await _log(kube, pod, options)
            for line in fresh[len(log) :] if fresh[: len(log)] == log else fresh:
                if not line.startswith("{"):
                    say(line)
            log = fresh or log
            waits = _waits(pod)
            if waits and waits != told:
                say(f"waiting: {waits}")
            told = waits
        if how is not None:
            return how, log
        await asyncio.sleep(POLL_S)


async def _pod(kube: Kube, options: JobOptions) -> Object | None:
    """The Job's newest pod."""
    found = await kube.list(POD, namespace=options.namespace, labels={"batch.kubernetes.io/job-name": options.name})
    ordered = sorted(found.objects, key=lambda one: str(metadata(one).get("creationTimestamp")))
    return ordered[-1] if ordered else None


async def _log(kube: Kube, pod: Object, options: JobOptions) -> list[str]:
    if field(pod, "status", "phase") not in ("Running", "Succeeded", "Failed"):
        return []
    try:
        return list(await kube.log(name_of(pod), namespace=options.namespace))
    except KubeError as error:
        if error.unanswered or error.status in (400, 404, 500):  # between two starts of the container
            return []
        raise


def _waits(pod: Object) -> str:
    for one in field(pod, "status", "containerStatuses") or []:
        waiting = (one.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']}: {waiting.get('message', '')}"
    for one in field(pod, "status", "conditions") or []:
        if one.get("type") == "PodScheduled" and one.get("status") == "False":
            return str(one.get("message") or one.get("reason") or "")
    return ""
