"""Performance models from a user's ConfigMap: kept while the API server is away, and gone when the ConfigMap is."""

from typing import Any, cast

from swingpool.kube import Kube, KubeError, Object
from swingpool.kube.kinds import Kind
from swingpool.manager.profiles import READ_AGAIN_S, Profiles
from swingpool.manager.store import Key
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.engine import profile
from swingpool_control.figures import Unknown

KEY = Key("ns", "chat")
SPEC = InferenceClusterSpec.model_validate(
    {
        "model": {"name": "m"},
        "objectives": {"ttft": {"p95": "1s"}, "itl": {"p95": "50ms"}},
        "pools": [{"name": "swing", "role": "Swing", "replicas": {"min": 2, "max": 2}}],
        "profile": {"configMap": {"name": "measured"}},
    }
)


class Api:
    """Stands for the API server."""

    def __init__(self) -> None:
        self.failure: KubeError | None = None
        self.reads = 0

    async def get(self, kind: Kind, name: str, *, namespace: str) -> Object:
        self.reads += 1
        if self.failure:
            raise self.failure
        text = profile.built_in("demo").model_dump_json(by_alias=True, exclude_none=True)
        return {"data": {"profile.json": text}}


async def test_a_profile_is_kept_while_nobody_answers_and_gone_when_it_is() -> None:
    api, now = Api(), [0.0]
    profiles = Profiles(cast(Kube, api), monotonic=lambda: now[0])

    async def model() -> Any:
        now[0] += READ_AGAIN_S + 1
        return (await profiles.models(KEY, SPEC))["swing"]

    api.failure = KubeError(status=None, reason="ConnectError", message="refused")
    first = await model()
    assert isinstance(first, Unknown)
    assert "cannot be read: ConnectError" in first.why
    api.failure = None
    found = await model()
    assert not isinstance(found, Unknown)
    for failure in (503, 429, None):
        api.failure = KubeError(status=failure, reason="Busy", message="later")
        assert await model() is found
    api.failure = KubeError(status=404, reason="NotFound", message="gone")
    assert isinstance(await model(), Unknown)
