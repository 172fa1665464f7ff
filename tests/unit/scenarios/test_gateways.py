"""Scenarios with gateways of others: what counts as told, and what Istio and its Envoy are given."""

import pytest
import yaml

from e2e.gateways import istio
from e2e.load.record import Outcome, Record
from e2e.scenarios.gateways import clearly_lost
from swingpool_control import names


def record(outcome: Outcome, status: int) -> Record:
    return Record(
        number=1, phase="p", chat=False, stream=True, prompt_tokens=1, expected_tokens=2, due_s=0.0, outcome=outcome,
        status=status,
    )  # fmt: skip


def test_what_is_lost_is_told() -> None:
    whole = record(Outcome.WHOLE, 200)
    assert clearly_lost([whole, record(Outcome.REFUSED, 503), record(Outcome.CUT, 200)]) == 2
    for silent in (record(Outcome.INCOMPLETE, 200), record(Outcome.TIMED_OUT, 0), record(Outcome.REFUSED, 404)):
        with pytest.raises(AssertionError, match="heard nothing clear"):
            clearly_lost([whole, silent])


def test_istio_is_given_a_gateway_that_sends_to_the_pool_and_the_proxy_says_it_is_its() -> None:
    written = istio.manifests("here", port=1234)
    found = {one["kind"]: one for one in yaml.safe_load_all(written)}
    gateway, service = found["Gateway"], found["Service"]
    assert gateway["spec"]["addresses"] == [{"type": "Hostname", "value": "gateway.here.svc.cluster.local"}]
    assert service["spec"]["ports"][0]["targetPort"] == 1234
    [backend] = found["HTTPRoute"]["spec"]["rules"][0]["backendRefs"]
    assert (backend["kind"], backend["name"]) == ("InferencePool", "chat")
    assert found["DestinationRule"]["spec"]["host"] == names.picker("chat")
    node = istio.bootstrap("here", xds=1, admin=2)["node"]
    assert node["metadata"]["LABELS"].items() >= service["spec"]["selector"].items()
    assert node["id"].split("~")[2] == "gateway.here"
