"""Managers come and go, and so does the API server: one leads, nothing is written twice, work goes on."""

import asyncio
import functools
import signal
import threading
from pathlib import Path
from typing import Any

from swingpool.kube import Interrupted, Kube, Upserted, WatchEvent, watch
from swingpool.kube.kinds import SERVICE
from swingpool.kube.objects import name_of
from tests.support.manager_stand import ManagerProcess, Place, manager
from tests.support.waiting import until

POOLS = (
    {"name": "prefill", "role": "Prefill", "replicas": {"mode": "Fixed", "count": 1}},
    {"name": "decode", "role": "Decode", "replicas": {"mode": "Fixed", "count": 1}},
)


def image(here: Place, deployment: str) -> str:
    found = here.get("Deployment", deployment) or {"spec": {"template": {"spec": {"containers": [{"image": ""}]}}}}
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"])


def set_image(here: Place, cluster: str, name: str) -> None:
    here.merge("InferenceCluster", cluster, {"spec": {"engine": {"image": name}}})


def settle(here: Place, one: ManagerProcess, cluster: str) -> None:
    """Wait until a manager has looked at a cluster again and again since it last changed anything."""
    series = f'swingpool_manager_rounds_total{{cluster="{cluster}"'

    def looked_again(seen: float) -> bool:
        return one.metric(series) >= seen + 3

    written = -1
    while written != len(here.writes()):
        written = len(here.writes())
        until("rounds", functools.partial(looked_again, one.metric(series)))


def test_a_second_manager_waits_takes_over_and_finds_nothing_to_do(here: Place, clusters: Any) -> None:
    clusters("led", *POOLS)
    with manager(here, "--lease-name=two", pod_name="one") as one:
        until("made", lambda: image(here, "led-decode"))
        settle(here, one, "led")
        with manager(here, "--lease-name=two", pod_name="two") as two:
            until("it has seen who leads", lambda: '"holder": "one"' in two.log())
            assert (two.probe("/healthz")[0], two.metric("swingpool_manager_leading")) == (200, 0)
            before = here.writes()
            assert one.stop(signal.SIGTERM) == 0
            assert "stepped down" in one.log()
            until("two leads", lambda: two.metric("swingpool_manager_leading") == 1)
            settle(here, two, "led")
            assert [(event.verb, event.uri) for event in here.writes()[len(before) :]] == []
            set_image(here, "led", "by-two:1")
            until("it works", lambda: image(here, "led-decode") == "by-two:1")


def test_a_manager_that_loses_its_lease_writes_nothing_and_ends(here: Place) -> None:
    with manager(here, "--lease-name=lost", "--lease-duration=6", pod_name="loser") as loser:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{here.namespace}/leases/lost"
        stolen = {"spec": {"holderIdentity": "usurper"}}
        here.plane.api.call("PATCH", path, stolen, content_type="application/merge-patch+json")
        until("it has ended", lambda: not loser.running)
        assert loser.stop() == 1
        assert here.plane.api.call("GET", path)["spec"]["holderIdentity"] == "usurper"


class Informer(threading.Thread):
    """Follows the Services of a namespace beside the test, as a picker follows its pods."""

    def __init__(self, here: Place) -> None:
        super().__init__(daemon=True)
        self._here = here
        self.events: list[WatchEvent] = []

    def run(self) -> None:
        """Follow until a Service `last` is seen."""
        asyncio.run(self._follow())

    async def _follow(self) -> None:
        async with Kube.load(self._here.plane.kubeconfig) as kube, asyncio.timeout(110):
            async for event in watch(kube, SERVICE, namespace=self._here.namespace):
                self.events.append(event)
                if isinstance(event, Upserted) and name_of(event.object) == "last":
                    break


def test_an_api_server_that_restarts_and_a_token_that_is_replaced_are_outlived(
    here: Place, clusters: Any, tmp_path: Path
) -> None:
    clusters("restarted", *POOLS)
    secrets = f"/api/v1/namespaces/{here.namespace}/secrets"
    bound = here.plane.api.call("POST", secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bound"}})
    token_file = tmp_path / "token"
    token_file.write_text(here.token(secret=bound))
    informer = Informer(here)
    informer.start()
    until("listed", lambda: informer.events)
    # On a busy machine the API server takes long to come back; a shorter lease would be lost, as it should.
    patience, config = "--lease-duration=60", here.kubeconfig(token_file=token_file)
    with manager(here, patience, pod_name="patient", config=config) as patient:
        until("made", lambda: image(here, "restarted-decode"))
        token_file.write_text(here.token())
        here.plane.api.call("DELETE", f"{secrets}/bound")
        here.plane.restart_api_server()
        set_image(here, "restarted", "after:1")
        until("it works on", lambda: image(here, "restarted-decode") == "after:1")
        here.delete("Service", "restarted-workers")
        until("its watches live", lambda: here.get("Service", "restarted-workers"))
        assert patient.running
        assert patient.stop() == 0
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "last"}, "spec": {"ports": [{"port": 1}]}}
    here.create("Service", service)
    informer.join(60)
    assert not informer.is_alive()
    assert any(isinstance(event, Interrupted) for event in informer.events)
