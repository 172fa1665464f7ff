"""The options by which a command finds a cluster and the manager that decides about it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from swingpool_control import names

Command = TypeVar("Command", bound=Callable[..., Any])


def manager_options(command: Command) -> Command:
    """Add `--namespace`, `--kubeconfig` and the `--manager-...` options; each is a keyword of its name."""
    options = (
        click.option("-n", "--namespace", help="Namespace of the InferenceCluster. Default: the kubeconfig's."),
        click.option(
            "--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None,
            help="Default: the pod's ServiceAccount, $KUBECONFIG or ~/.kube/config.",
        ),
        click.option(
            "--manager-namespace", default="swingpool-system", show_default=True, help="Where the manager runs.",
        ),
        click.option(
            "--lease-name", default="swingpool", show_default=True,
            help="Name of the managers' Lease; the chart gives it the release's.",
        ),
        click.option(
            "--manager-port", type=click.IntRange(1, 65535), default=names.PORT_MANAGER_METRICS, show_default=True,
            help="Port of the manager's metrics and decisions.",
        ),
        click.option(
            "--manager-url", default="", help="Ask the manager at this address instead of through the API server.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command
