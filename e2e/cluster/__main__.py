"""`python -m e2e.cluster`: the development cluster by hand."""

import sys
import time
from pathlib import Path

import click

from e2e.cluster import Cluster, ClusterError, cluster, images
from e2e.cluster.interface import Progress


def _progress() -> Progress:
    begin = time.monotonic()

    def say(line: str) -> None:
        click.echo(f"[{time.monotonic() - begin:6.1f} s] {line}", err=True)

    return say


def _demand(target: Cluster) -> None:
    """Raise ClusterError unless the cluster is up."""
    if not target.kubeconfig.exists():
        raise ClusterError("no cluster is up: `python -m e2e.cluster up` first")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def main(context: click.Context) -> None:
    """A whole Kubernetes on this machine: kind where a Docker engine answers, else made of its parts.

    SWINGPOOL_CLUSTER=kind|local forces one; SWINGPOOL_CACHE says where builds and images are kept.
    """
    context.obj = cluster()


@main.command()
@click.pass_obj
def up(target: Cluster) -> None:
    """Bring the cluster up and leave it running."""
    target.up(_progress())


@main.command()
@click.pass_obj
def down(target: Cluster) -> None:
    """Take the cluster down; only caches stay."""
    target.down(_progress())


@main.command()
@click.pass_obj
def status(target: Cluster) -> None:
    """Say whether the cluster is up and what it consists of; exit 1 if it is not."""
    if not target.running:
        click.echo(f"{target.name}: down")
        sys.exit(1)
    click.echo(f"{target.name}: up, Kubernetes {target.server_version()}, kubeconfig {target.kubeconfig}")
    click.echo(target.kubectl("get", "nodes", "-L", "nvidia.com/gpu.product").stdout, nl=False)


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def kubectl(target: Cluster, arguments: tuple[str, ...]) -> None:
    """Run kubectl as administrator of the cluster."""
    _demand(target)
    sys.exit(target.kubectl_here(*arguments))


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def helm(target: Cluster, arguments: tuple[str, ...]) -> None:
    """Run Helm as administrator of the cluster."""
    _demand(target)
    done = target.helm(*arguments, check=False)
    click.echo(done.stdout, nl=False)
    click.echo(done.stderr, nl=False, err=True)
    sys.exit(done.returncode)


@main.command()
@click.pass_obj
def image(target: Cluster) -> None:
    """Build the project's image, load it if the cluster is up, and print its name."""
    progress = _progress()
    name = images.build(progress)
    if target.running:
        target.load_image(name, progress)
    click.echo(name)


@main.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.pass_obj
def diagnose(target: Cluster, directory: Path) -> None:
    """Write objects, events and logs of the cluster into DIRECTORY."""
    _demand(target)
    target.diagnostics(directory)


@main.command()
def check() -> None:
    """Bring a cluster up, try what tests stand on, take it down, and look for what is left."""
    from e2e.cluster.check import run

    run(_progress())


if __name__ == "__main__":
    try:
        main(prog_name="python -m e2e.cluster")
    except ClusterError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(1)
