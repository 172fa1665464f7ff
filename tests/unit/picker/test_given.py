"""What the picker is given beside its workers: the spec's part that the manager renders, and limits over HTTP."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swingpool.picker import limits, profiles
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.resources import router
from tests.support.resource_specs import child, render, spec_of


def rendered(spec: InferenceClusterSpec) -> str:
    return str(child(render(spec), "ConfigMap", "chat-router")["data"][router.SPEC_KEY])


def test_the_picker_reads_what_the_manager_renders(tmp_path: Path) -> None:
    built_in = {
        "order": {"age": "3s"},
        "overload": {"maxWait": "20s", "maxQueuedTokens": 5000},
        "classes": [{"name": "batch", "priority": -5, "ttft": "1m", "maxWait": "2m"}],
    }
    spec = spec_of("minimal", router={"builtIn": built_in})
    file = tmp_path / "spec.json"
    file.write_text(rendered(spec))
    found = profiles.read(file, None)
    standard, batch = found.settings.classes
    assert (standard.name, standard.age_s, standard.most_wait_s) == ("standard", 3.0, 20.0)
    assert (batch.priority, batch.ttft_s, batch.age_s, batch.most_wait_s) == (-5, 60.0, 3.0, 120.0)
    assert found.settings.most_queued_tokens == 5000
    assert found.settings.limits.itl_s > 0
    assert "podTemplate" not in file.read_text()


def test_every_sample_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    for name in ("minimal", "full"):
        file.write_text(rendered(spec_of(name)))
        assert profiles.read(file, tmp_path / "missing.json").settings.classes


def test_a_file_without_a_spec_is_told(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text("{}")
    with pytest.raises(profiles.UnusableSpecError, match="holds no usable spec"):
        profiles.read(file, None)
    assert profiles.read(None, None).models == {}


LIMITS = st.builds(
    DeflectionLimits,
    itl_s=st.floats(0, 10),
    over_share=st.floats(0, 1),
    most_tokens=st.integers(0, 10**9),
    prefill_keeps=st.booleans(),
)


@given(LIMITS)
def test_limits_arrive_as_they_were_sent(sent: DeflectionLimits) -> None:
    assert limits.decode(json.dumps(asdict(sent) | {"of_a_later_release": 1}).encode()) == sent


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"itl_s": "1"}', '{"itl_s": true}', '{"itl_s": -1}', '{"itl_s": 1, "prefill_keeps": 1}']
)
def test_what_are_no_limits_is_refused(text: str) -> None:
    with pytest.raises(limits.BadLimitsError):
        limits.decode(text.encode())
