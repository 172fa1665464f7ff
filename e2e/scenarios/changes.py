"""Changes that a user makes under load."""

from e2e.cluster import images
from e2e.cluster.paths import silent
from e2e.load.plan import Phase
from e2e.scenarios.scenario import Facts, Scenario
from e2e.scenarios.stage import CLUSTER, GENERATION, PROMPTS, STAGE_NAMESPACE, WORKERS, Stage
from e2e.system.waiting import wait_until
from swingpool_control import names

_SWING = "/spec/pools/2"
_FLIP_S = 60.0


def flips(stage: Stage) -> Facts:
    """Turn the load from prompts to generation; swing workers must follow, both ways."""
    ways = ((PROMPTS, names.ROLE_PREFILL), (GENERATION, names.ROLE_DECODE))
    return {phase.name: _follow(stage, phase, role) for phase, role in ways}


def _follow(stage: Stage, phase: Phase, role: str) -> Facts:
    before = {(flip["worker"], flip["decidedAt"]) for flip in stage.flips()}
    with stage.traffic(phase) as traffic:
        wait_until(
            f"a swing worker in role {role}",
            lambda: [pod.name for pod in stage.workers(pool="swing", role=role)],
            bool,
            limit_s=_FLIP_S,
        )
        new = wait_until(
            f"a flip to {role} that serves",
            lambda: [
                flip
                for flip in stage.flips()
                if flip["to"] == role
                and flip["outcome"] == "Serving"
                and (flip["worker"], flip["decidedAt"]) not in before
            ],
            bool,
            limit_s=_FLIP_S,
        )
    return {**traffic.facts, "flips": len(new)}


def scale_down(stage: Stage) -> Facts:
    """Take two workers of a pool away; they must finish what they hold."""
    stage.patch([{"op": "replace", "path": f"{_SWING}/replicas/count", "value": 4}])
    _wait_swing(stage, 4)
    with stage.traffic() as traffic:
        stage.patch([{"op": "replace", "path": f"{_SWING}/replicas/count", "value": 2}])
        _wait_swing(stage, 2)
        traffic.wait_sent(20)
    return traffic.facts


def _wait_swing(stage: Stage, count: int) -> None:
    wait_until(
        f"{count} swing workers that serve",
        lambda: [(pod.name, pod.serves) for pod in stage.workers(pool="swing")],
        lambda found: len(found) == count and all(serves for _, serves in found),
        limit_s=90,
    )


def image_updated(stage: Stage) -> Facts:
    """Roll out another image; every worker is replaced while requests are served."""
    second = images.second_name(stage.system.image)
    stage.system.cluster.load_image(second, silent)
    with stage.traffic() as traffic:
        stage.patch([{"op": "add", "path": "/spec/engine/image", "value": second}])
        wait_until(
            f"{WORKERS} workers with the second image",
            lambda: [(pod.name, pod.serves, pod.images[0]) for pod in stage.workers()],
            lambda found: len(found) == WORKERS and all(up and image == second for _, up, image in found),
            limit_s=180,
        )
        stage.system.wait_ready(STAGE_NAMESPACE, CLUSTER)
        traffic.wait_sent(20)
    return traffic.facts


def image_unavailable(stage: Stage) -> Facts:
    """Ask for an image that does not exist: a condition says so, and the present workers go on."""
    with stage.traffic() as traffic:
        stage.patch([{"op": "add", "path": "/spec/engine/image", "value": "localhost/swingpool:nowhere"}])
        found = stage.system.wait_condition("Degraded", "True", STAGE_NAMESPACE, CLUSTER, limit_s=90)
        traffic.wait_sent(20)
        stage.patch([{"op": "remove", "path": "/spec/engine/image"}])
        stage.system.wait_condition("Degraded", "False", STAGE_NAMESPACE, CLUSTER, limit_s=90)
    assert "image" in (found["reason"] + found["message"]).lower(), found
    return {**traffic.facts, "condition": f"{found['reason']}: {found['message']}"}


SCENARIOS = (
    Scenario(name="flips", about="roles follow the load, both ways, no request fails", run=flips, quick=True),
    Scenario(name="scale-down", about="a pool loses two workers: no request fails", run=scale_down),
    Scenario(name="image-updated", about="all workers are replaced: no request fails", run=image_updated),
    Scenario(
        name="image-unavailable",
        about="an image that cannot be pulled: a condition says so, the last good state serves on",
        run=image_unavailable,
    ),
)
