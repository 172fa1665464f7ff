"""`swingpool top`: workers, roles, queues and the last decisions, live."""

from pathlib import Path

import click
import httpx2
from rich.console import Console

from swingpool.cli.manager_options import manager_options
from swingpool.explain.fetch import FetchError, ManagerPlace, connected
from swingpool.top.watch import once, watch
from swingpool_control.replay.codec import CodecError


@click.command("top")
@click.argument("cluster")
@click.option("--every", "every_s", type=click.FloatRange(0.5, 3600), default=2.0, show_default=True,
              help="Seconds from one picture to the next.")  # fmt: skip
@click.option("--once", "only_once", is_flag=True, help="Print one picture and end; so it is without a terminal.")
@manager_options
def command(
    *,
    cluster: str,
    every_s: float,
    only_once: bool,
    namespace: str | None,
    kubeconfig: Path | None,
    manager_namespace: str,
    lease_name: str,
    manager_port: int,
    manager_url: str,
) -> None:
    """Show the workers of CLUSTER with their roles and queues, latencies against objectives, and the last decisions.

    Everything is as the leading manager saw it when it decided last. Ctrl-C ends it.
    """
    manager = ManagerPlace(namespace=manager_namespace, lease=lease_name, port=manager_port, url=manager_url)
    console = Console()
    try:
        with connected(kubeconfig) as kubernetes:
            place = namespace or kubernetes.namespace or "default"

            def fetch(last: int | None) -> object:
                try:
                    return kubernetes.decisions(place, cluster, manager, last=last)
                except httpx2.HTTPError as error:
                    raise FetchError(f"no answer: {error}") from error

            if only_once or not console.is_terminal:
                once(fetch, console)
            else:
                watch(fetch, console, every_s=every_s)
    except (FetchError, CodecError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        pass
