"""Bad InferenceClusters, each refused by the real API server with the field's path and the remedy."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from e2e.cluster.controlplane import ControlPlane
from swingpool_control.api import crd
from swingpool_control.api.rules import VALIDATIONS
from tests.integration.api.refused_routers import ROUTERS
from tests.support.inference_clusters import Refusal, case, changed, create, smallest

POOL = "spec__pools__0"
ENGINE = f"{POOL}__engine"
REPLICAS = f"{POOL}__replicas"
WORKER = f"{POOL}__podTemplate__spec__containers"
TEMPLATE = "spec.pools[0].podTemplate"


NAMES = [
    case("cluster-name-long", "metadata.name", "at most 40 characters", metadata__name="c" * 41),
    case("cluster-name-with-dot", "metadata.name", "start with a letter", metadata__name="chat.eu"),
    case("cluster-name-with-digit-first", "metadata.name", "start with a letter", metadata__name="4chat"),
    case("pool-name-long", "spec.pools[0].name", "may not be more than 20", **{f"{POOL}__name": "p" * 21}),
    case("pool-name-upper-case", "spec.pools[0].name", "must be lower-case", **{f"{POOL}__name": "Prefill"}),
    case("pool-name-reserved", "spec.pools[0].name", "choose another", **{f"{POOL}__name": "router"}),
    case("pool-names-twice", "spec.pools[1]", "Duplicate value", **{f"{POOL}__name": "decode"}),
]

SPEC = [
    case("no-pools", "spec.pools", "should have at least 1 items", spec__pools=[]),
    case("no-model", "spec.model", "Required value", spec__model=None),
    case("no-role", "spec.pools[0].role", "Required value", **{f"{POOL}__role": None}),
    case("unknown-role", "spec.pools[0].role", '"Prefill", "Decode", "Swing"', **{f"{POOL}__role": "Both"}),
    case("nothing-takes-prefill", "spec.pools", "add a pool with role Prefill or Swing", **{f"{POOL}__role": "Decode"}),
    case("nothing-takes-decode", "spec.pools", "add a pool with role Decode or Swing", spec__pools__1__role="Prefill"),
    case(
        "prefill-may-have-no-worker",
        "spec.pools",
        "that may have a worker",
        **{REPLICAS: {"mode": "Fixed", "count": 0}},
    ),
    case(
        "one-swing-worker-alone",
        "spec.pools",
        "raise replicas.max",
        spec__pools=[{"name": "swing", "role": "Swing", "replicas": {"max": 1}}],
    ),
    case("model-name-with-space", "spec.model.name", "no spaces", spec__model__name="my model"),
    case("model-name-as-flag", "spec.model.name", "no leading dash", spec__model__name="--trust-remote-code"),
    case("served-name-is-the-name", "spec.model.servedNames", "remove it", spec__model__servedNames=["Qwen/Qwen3-32B"]),
    case("served-names-twice", "spec.model.servedNames[1]", "Duplicate value", spec__model__servedNames=["a", "a"]),
    case("max-length-zero", "spec.model.maxLength", "greater than or equal to 1", spec__model__maxLength=0),
    case("profile-from-nowhere", "spec.profile", "exactly one of builtIn and configMap", spec__profile={}),
    case(
        "profile-key-with-slash",
        "spec.profile.configMap.key",
        "must be a ConfigMap's key",
        spec__profile={"configMap": {"name": "x", "key": "a/b"}},
    ),
    case(
        "profile-from-two-places",
        "spec.profile",
        "exactly one of builtIn and configMap",
        spec__profile={"builtIn": "small", "configMap": {"name": "x"}},
    ),
]

OBJECTIVES = [
    case("no-ttft", "spec.objectives.ttft", "Required value", spec__objectives__ttft=None),
    case("no-percentile", "spec.objectives.ttft", "such as p95: 500ms", spec__objectives__ttft={}),
    case("zero", "spec.objectives.itl.p95", "longer than zero", spec__objectives__itl__p95="0ms"),
    case("negative", "spec.objectives.itl.p95", "must be a duration such as 500ms", spec__objectives__itl__p95="-40ms"),
    case("without-unit", "spec.objectives.ttft.p95", "units are h, m, s and ms", spec__objectives__ttft__p95="500"),
    case("number", "spec.objectives.ttft.p95", "must be of type string", spec__objectives__ttft__p95=500),
    case("too-long", "spec.objectives.ttft.p95", "at most 24h", spec__objectives__ttft__p95="25h"),
    *(
        case(
            f"{upper}-under-{lower}",
            f"spec.objectives.ttft.{upper}",
            f"raise {upper} or lower {lower}",
            spec__objectives__ttft={lower: "2s", upper: "1s"},
        )
        for lower, upper in combinations(("p50", "p90", "p95", "p99"), 2)
    ),
]

POOLS = [
    case("min-above-max", "spec.pools[0].replicas.max", "raise max or lower min", **{REPLICAS: {"min": 3, "max": 2}}),
    case("min-above-default-max", "spec.pools[0].replicas.max", "raise max or lower min", **{REPLICAS: {"min": 3}}),
    case("min-negative", "spec.pools[0].replicas.min", "greater than or equal to 0", **{REPLICAS: {"min": -1}}),
    case("fixed-without-count", "spec.pools[0].replicas.count", "needs count", **{REPLICAS: {"mode": "Fixed"}}),
    case("count-in-auto", "spec.pools[0].replicas.count", "set mode to Fixed", **{REPLICAS: {"count": 2}}),
    case(
        "max-in-fixed",
        "spec.pools[0].replicas.max",
        "set mode to Auto",
        **{REPLICAS: {"mode": "Fixed", "count": 2, "max": 4}},
    ),
    case(
        "reserve-in-fixed",
        "spec.pools[0].replicas.reserve",
        "reserve is for mode Auto",
        **{REPLICAS: {"mode": "Fixed", "count": 2, "reserve": 1}},
    ),
    case(
        "reserve-with-registered-memory",
        "spec.pools",
        "a worker's sleep frees the accelerators' memory",
        **{REPLICAS: {"max": 2, "reserve": 1}},
    ),
    case(
        "cores-with-accelerators-buffer",
        "spec.engine.kvTransfer.buffer",
        "set kvTransfer.buffer to Host",
        **{f"{POOL}__accelerator__resource": "cpu"},
    ),
    case("max-in-external", "spec.pools[0].replicas.max", "remove them", **{REPLICAS: {"mode": "External", "max": 4}}),
    case("no-accelerators", "spec.pools[0].accelerator.count", "or equal to 1", **{f"{POOL}__accelerator__count": 0}),
    case(
        "resource-without-domain",
        "spec.pools[0].accelerator.resource",
        "such as nvidia.com/gpu",
        **{f"{POOL}__accelerator__resource": "gpu"},
    ),
    case(
        "product-with-space",
        "spec.pools[0].accelerator.product",
        "must be a label's value",
        **{f"{POOL}__accelerator__product": "NVIDIA H100"},
    ),
    case("cost-with-currency", "spec.pools[0].costPerHour", "no currency", **{f"{POOL}__costPerHour": "$3"}),
    case(
        "tensor-parallel-beyond-accelerators",
        "spec.pools[0].engine.tensorParallelSize",
        "must be accelerator.count",
        **{f"{POOL}__accelerator__count": 4, f"{ENGINE}__tensorParallelSize": 8},
    ),
    case(
        "pipeline-that-does-not-divide",
        "spec.pools[0].engine",
        "must divide accelerator.count",
        **{f"{POOL}__accelerator__count": 4, f"{ENGINE}__pipelineParallelSize": 3},
    ),
    case("block-sizes-differ", "spec.pools", "same engine.blockSize", **{f"{ENGINE}__blockSize": 32}),
    case("kv-dtypes-differ", "spec.pools", "same engine.kvCacheDtype", **{f"{ENGINE}__kvCacheDtype": "fp8"}),
]

ARGUMENTS = [
    case(
        f"argument {item}",
        "spec.pools[0].engine.extraArguments[1]",
        words,
        **{f"{ENGINE}__extraArguments": ["-O3", item]},
    )
    for item, words in (
        ("--kv-transfer-config", "--kv-transfer-config belongs to Swingpool"),
        ('--kv-transfer-config={"kv_role":"kv_producer"}', "--kv-transfer-config belongs to Swingpool"),
        ("--kv_transfer_config", "--kv-transfer-config belongs to Swingpool"),
        ("--kv-transfer-config.kv_role=kv_producer", "--kv-transfer-config belongs to Swingpool"),
        ("--kv-transfer", "--kv-transfer-config belongs to Swingpool"),
        ("--port=80", "--port belongs to Swingpool"),
        ("--host", "--host belongs to Swingpool"),
        ("--model=other", "use spec.model.name"),
        ("--served_model_name", "use spec.model.servedNames"),
        ("--tensor-parallel-size=2", "use engine.tensorParallelSize"),
        ("-tp", "use engine.tensorParallelSize"),
        ("-tp=2", "use engine.tensorParallelSize"),
        ("--block_size=32", "use engine.blockSize"),
        ("--max-model-len", "use spec.model.maxLength"),
        ("--config=/etc/vllm.yaml", "one by one"),
    )
]

POD_TEMPLATES = [
    case(
        "template-role-label",
        f"{TEMPLATE}.metadata.labels",
        "remove them here",
        **{f"{POOL}__podTemplate__metadata__labels": {"swingpool.dev/role": "prefill"}},
    ),
    case(
        "template-selector-label",
        f"{TEMPLATE}.metadata.labels",
        "remove them here",
        **{f"{POOL}__podTemplate__metadata__labels": {"app.kubernetes.io/component": "mine"}},
    ),
    case(
        "template-deletion-cost",
        f"{TEMPLATE}.metadata.annotations",
        "remove them here",
        **{f"{POOL}__podTemplate__metadata__annotations": {"controller.kubernetes.io/pod-deletion-cost": "1"}},
    ),
    case(
        "template-arguments",
        f"{TEMPLATE}.spec.containers[0].args",
        "engine.extraArguments",
        **{WORKER: [{"name": "worker", "args": ["--x"]}]},
    ),
    case(
        "template-port",
        f"{TEMPLATE}.spec.containers[0].ports",
        "remove them here",
        **{WORKER: [{"name": "side", "ports": [{"containerPort": 8000}]}]},
    ),
    case(
        "template-handshake-address",
        f"{TEMPLATE}.spec.containers[0].env[0].name",
        "remove it here",
        **{WORKER: [{"name": "worker", "env": [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "value": "0.0.0.0"}]}]},
    ),
    case("template-container-twice", f"{TEMPLATE}.spec.containers[1]", "Duplicate", **{WORKER: [{"name": "a"}] * 2}),
    case(
        "template-grace-period",
        f"{TEMPLATE}.spec.terminationGracePeriodSeconds",
        "use spec.engine.maxRequestDuration",
        **{f"{POOL}__podTemplate__spec__terminationGracePeriodSeconds": 5},
    ),
    case(
        "template-role-label-of-external-router",
        "spec.pools",
        "remove it there",
        spec__router={"type": "External", "external": {}},
        **{f"{POOL}__podTemplate__metadata__labels": {"llm-d.ai/role": "decode"}},
    ),
]

CLUSTER = [
    case("cache-from-nowhere", "spec.engine.modelCache", "exactly one of", spec__engine__modelCache={}),
    case(
        "cache-in-two-places",
        "spec.engine.modelCache",
        "exactly one of",
        spec__engine__modelCache={"persistentVolumeClaim": "models", "sizeLimit": "1Gi"},
    ),
    case(
        "cache-at-relative-path",
        "spec.engine.modelCache.hostPath",
        "absolute path",
        spec__engine__modelCache={"hostPath": "models"},
    ),
    case(
        "cache-size-no-quantity",
        "spec.engine.modelCache.sizeLimit",
        "such as 200Gi",
        spec__engine__modelCache={"sizeLimit": "large"},
    ),
    case(
        "request-duration-zero", "spec.engine.maxRequestDuration", "longer than", spec__engine__maxRequestDuration="0s"
    ),
    case("unknown-engine", "spec.engine.type", '"VLLM", "Simulated"', spec__engine__type="SGLang"),
    case("version-too-old", "spec.engine.version", "0.11 on", spec__engine__version="0.10.2"),
    case(
        "mooncake-too-old",
        "spec.engine.kvTransfer.connector",
        "needs vLLM 0.21 or newer",
        spec__engine={"version": "0.20.1", "kvTransfer": {"connector": "MooncakeStore"}},
    ),
    case(
        "offloading-too-old",
        "spec.engine.kvTransfer.hostCache",
        "needs vLLM 0.14 or newer",
        spec__engine={"version": "0.13", "kvTransfer": {"hostCache": {"size": "64Gi"}}},
    ),
    case(
        "host-cache-without-size",
        "spec.engine.kvTransfer.hostCache.size",
        "Required value",
        spec__engine__kvTransfer={"hostCache": {"type": "LMCache"}},
    ),
    case(
        "host-cache-of-no-size",
        "spec.engine.kvTransfer.hostCache.size",
        "must be a size",
        spec__engine__kvTransfer={"hostCache": {"size": "much"}},
    ),
    case(
        "lease-zero",
        "spec.engine.kvTransfer.leaseDuration",
        "longer than zero",
        spec__engine__kvTransfer={"leaseDuration": "0s"},
    ),
    case(
        "simulation-of-a-real-engine",
        "spec.engine.simulated",
        "set type to Simulated",
        spec__engine__simulated={"speedup": "10"},
    ),
    case(
        "pull-secret-with-space",
        "spec.engine.imagePullSecrets[0]",
        "must be an object's name",
        spec__engine__imagePullSecrets=["my secret"],
    ),
    case(
        "speedup-as-words",
        "spec.engine.simulated.speedup",
        "must be a factor",
        spec__engine={"type": "Simulated", "simulated": {"speedup": "10x"}},
    ),
    case(
        "speedup-zero",
        "spec.engine.simulated.speedup",
        "more than zero",
        spec__engine={"type": "Simulated", "simulated": {"speedup": "0"}},
    ),
    case(
        "dead-band-too-wide",
        "spec.scaling.stabilization.deadBandPercent",
        "equal to 90",
        spec__scaling__stabilization__deadBandPercent=100,
    ),
    case(
        "budget-twice",
        "spec.scaling.budgets.accelerators[1]",
        "Duplicate value",
        spec__scaling__budgets__accelerators=[{"product": "*", "max": 8}, {"product": "*", "max": 9}],
    ),
    case(
        "budget-for-a-phrase",
        "spec.scaling.budgets.accelerators[0].product",
        "must be a product as pools name it",
        spec__scaling__budgets__accelerators=[{"product": "all GPUs", "max": 8}],
    ),
    case(
        "budget-below-the-fewest-workers",
        "spec.scaling.budgets.accelerators",
        "lower replicas.min or raise",
        spec__scaling__budgets__accelerators=[{"product": "*", "max": 1}],
    ),
    case(
        "budget-for-nothing",
        "spec.scaling.budgets.accelerators",
        "no pool has",
        spec__scaling__budgets__accelerators=[{"product": "NVIDIA-B200", "max": 8}],
    ),
    case(
        "cost-budget-without-prices",
        "spec.scaling.budgets.costPerHour",
        "in every pool",
        spec__scaling__budgets__costPerHour="100",
    ),
    case(
        "cost-budget-below-the-fewest-workers",
        "spec.scaling.budgets.costPerHour",
        "lower replicas.min or raise",
        spec__scaling__budgets__costPerHour="5",
        spec__pools__0__costPerHour="3",
        spec__pools__1__costPerHour="2.5",
    ),
]


CASES = NAMES + SPEC + OBJECTIVES + POOLS + ARGUMENTS + POD_TEMPLATES + CLUSTER + ROUTERS


@pytest.mark.parametrize(("changes", "field", "words"), CASES)
def test_bad_resource_is_refused_with_field_and_remedy(
    plane: ControlPlane, changes: dict[str, Any], field: str, words: str
) -> None:
    refusal = create(plane, changed(smallest(), **changes))
    assert isinstance(refusal, Refusal), "accepted"
    assert refusal.code == 422
    assert refusal.says(field, words), refusal.causes


def test_every_rule_has_a_bad_resource_that_it_refuses() -> None:
    def messages(schema: dict[str, Any]) -> Iterator[str]:
        yield from (rule["message"] for rule in schema.get(VALIDATIONS, []) if "message" in rule)
        for child in schema.get("properties", {}).values():
            yield from messages(child)
        for keyword in ("items", "additionalProperties"):
            if keyword in schema:
                yield from messages(schema[keyword])

    version = crd.definition()["spec"]["versions"][0]
    told = {message for message in messages(version["schema"]["openAPIV3Schema"]) if "cannot be changed" not in message}
    expected = {words for _, _, words in (each.values for each in CASES)}
    assert {message for message in told if not any(words in message for words in expected)} == set()


@pytest.mark.parametrize(
    "path",
    [
        "spec__pool",
        "spec__model__maxLen",
        "spec__pools__0__replica",
        "spec__pools__0__podTemplate__labels",
        "spec__power",
    ],
)
def test_unknown_field_is_refused_under_strict_validation(plane: ControlPlane, path: str) -> None:
    refusal = create(plane, changed(smallest(), **{path: {}}))
    assert isinstance(refusal, Refusal), "accepted"
    assert refusal.code == 400
    written = path.replace("__", ".").replace(".0.", "[0].")
    assert f'unknown field "{written}"' in refusal.message
