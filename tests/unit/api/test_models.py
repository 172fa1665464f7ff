"""What the models say beyond fields: sizes that follow from others, who owns which argument, what cannot change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from swingpool_control.api.arguments import OWNED_ARGUMENTS
from swingpool_control.api.v1alpha1 import Accelerator, EngineLayout, InferenceClusterSpec, Pool, Replicas
from swingpool_control.vllm.arguments import worker_arguments
from tests.support.inference_clusters import changed, smallest
from tests.support.resource_specs import SPECS, spec_of


@given(tensor=st.integers(1, 8), pipeline=st.integers(1, 4), data=st.integers(1, 2))
def test_tensor_parallel_size_is_what_the_other_sizes_leave(tensor: int, pipeline: int, data: int) -> None:
    layout = EngineLayout(pipeline_parallel_size=pipeline, data_parallel_size=data)
    pool = Pool(name="a", role="Prefill", accelerator=Accelerator(count=tensor * pipeline * data), engine=layout)
    assert pool.tensor_parallel_size == tensor
    given_too = pool.model_copy(update={"engine": layout.model_copy(update={"tensor_parallel_size": tensor})})
    assert given_too.tensor_parallel_size == tensor


@pytest.mark.parametrize(
    ("replicas", "fewest", "most"),
    [
        (Replicas(), 1, 1),
        (Replicas(min=0, max=4), 0, 4),
        (Replicas(mode="Fixed", count=3), 3, 3),
        (Replicas(mode="Fixed", count=0), 0, 0),
        (Replicas(mode="External"), 0, None),
    ],
)
def test_bounds_of_replicas(replicas: Replicas, fewest: int, most: int | None) -> None:
    assert (replicas.fewest, replicas.most) == (fewest, most)


@pytest.mark.parametrize("name", sorted(SPECS))
def test_every_argument_that_is_rendered_is_refused_to_users(name: str) -> None:
    spec = spec_of(name)
    for pool in spec.pools:
        rendered = {item for item in worker_arguments(spec, pool) if item.startswith("--")}
        assert rendered - set(pool.engine.extra_arguments) <= OWNED_ARGUMENTS.keys()


def test_unknown_fields_are_refused_offline_too() -> None:
    with pytest.raises(ValidationError, match="modle"):
        InferenceClusterSpec.model_validate(changed(smallest(), spec__modle={})["spec"])


def test_a_spec_cannot_be_changed() -> None:
    spec = InferenceClusterSpec.model_validate(smallest()["spec"])
    with pytest.raises(ValidationError, match="frozen"):
        spec.pools = ()  # type: ignore[misc]  # that it is refused is what is tested
    assert hash(spec.pools[0].replicas) == hash(Replicas())
