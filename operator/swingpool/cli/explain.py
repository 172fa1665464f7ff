"""`swingpool explain`: why a cluster is as it is, and the same decisions made again."""

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from swingpool.cli.manager_options import manager_options
from swingpool.explain import text
from swingpool.explain.fetch import FetchError, ManagerPlace, connected
from swingpool_control import names
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.conditions.view import parse_status
from swingpool_control.replay.codec import CodecError
from swingpool_control.replay.decision import Recording, differences, read

DIFFERS = 1


@click.command("explain")
@click.argument("cluster", required=False)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--record", "record", type=click.Path(dir_okay=False, path_type=Path), default=None,
              help="Write the manager's last decisions, with all that they stood on, into this file.")  # fmt: skip
@click.option("--replay", "replay", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None,
              help="Make the decisions in this file again, offline, and tell whether they are the same.")  # fmt: skip
@click.option("--request", "request_id", default="",
              help="Tell what became of one request: the ID in its answer's header x-request-id.")  # fmt: skip
@manager_options
def command(
    *,
    cluster: str | None,
    namespace: str | None,
    output: str,
    kubeconfig: Path | None,
    record: Path | None,
    replay: Path | None,
    request_id: str,
    manager_namespace: str,
    lease_name: str,
    manager_port: int,
    manager_url: str,
) -> None:
    """Say why CLUSTER is as it is: what was seen and expected, what bound, what else it would have cost.

    With --record the decisions are kept in a file; with --replay that file is decided again, anywhere, without a
    cluster: the exit status is 1 if something comes out differently.
    """
    if (cluster is None) == (replay is None):
        raise click.UsageError("give either CLUSTER or --replay FILE")
    if replay is not None:
        sys.exit(_replay(replay, output))
    assert cluster is not None  # noqa: S101 - for types: checked above
    if request_id:
        _show_request(cluster, request_id, namespace, kubeconfig, output)
        return
    manager = ManagerPlace(namespace=manager_namespace, lease=lease_name, port=manager_port, url=manager_url)
    try:
        with connected(kubeconfig) as kubernetes:
            place = namespace or kubernetes.namespace or "default"
            found = kubernetes.inference_cluster(place, cluster)
            recorded, why = _recorded(lambda: kubernetes.decisions(place, cluster, manager), must=record is not None)
    except (FetchError, CodecError) as error:
        raise click.ClickException(str(error)) from error
    if record is not None:
        record.write_text(json.dumps(recorded) + "\n", encoding="utf-8")
        click.echo(f"wrote {record}", err=True)
    _show(found, recorded, why, output)


def _show_request(cluster: str, request_id: str, namespace: str | None, kubeconfig: Path | None, output: str) -> None:
    try:
        with connected(kubeconfig) as kubernetes:
            place = namespace or kubernetes.namespace or "default"
            found = kubernetes.request(place, cluster, request_id, port=names.PORT_PICKER_HTTP)
    except FetchError as error:
        raise click.ClickException(str(error)) from error
    if not found:
        message = f"no picker of {place}/{cluster} remembers request {request_id}: each keeps its last thousands"
        raise click.ClickException(message)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        Console(soft_wrap=True).print(text.requests(found))


def _recorded(fetch: Any, *, must: bool) -> tuple[Any, str]:
    """Return the manager's decisions; or, unless they are what was asked for, why they cannot be had."""
    try:
        return fetch(), ""
    except FetchError as error:
        if must:
            raise
        return None, str(error)


def _show(found: dict[str, Any], recorded: Any, why: str, output: str) -> None:
    spec = InferenceClusterSpec.model_validate(found["spec"])
    status, mode = parse_status(found), spec.scaling.mode.value
    place = f"{found['metadata']['namespace']}/{found['metadata']['name']}"
    if output == "json":
        body = status.model_dump(mode="json", by_alias=True, exclude_none=True)
        click.echo(json.dumps({"cluster": place, "mode": mode, "status": body, "decisions": recorded}, indent=2))
        return
    console = Console(soft_wrap=True)
    console.print(text.status(place, mode, status))
    if recorded is None:
        click.echo(f"the manager's last decisions are not shown: {why}", err=True)
    else:
        console.print(text.decisions(read(recorded)))


def _replay(path: Path, output: str) -> int:
    try:
        recording: Recording = read(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, OSError) as error:
        raise click.ClickException(f"{path}: {error}") from error
    found = [(decision, differences(decision)) for decision in recording.decisions]
    version = metadata.version("swingpool")
    if output == "json":
        listed = [
            {"loop": one.loop, "atUnixS": one.now_unix_s, "summary": one.result.summary, "differences": list(where)}
            for one, where in found
        ]
        body = {"cluster": recording.cluster, "recordedBy": recording.version, "version": version, "decisions": listed}
        click.echo(json.dumps(body, indent=2))
    else:
        Console(soft_wrap=True).print(text.replayed(recording, found, version=version))
    return DIFFERS if any(where for _, where in found) else 0
