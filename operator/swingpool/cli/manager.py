"""`swingpool manager`: watches InferenceClusters and carries out decisions."""

import asyncio
import os
import socket
import sys
import uuid
from pathlib import Path

import click

from swingpool.cli.log_options import log_options
from swingpool.kube import KubeError
from swingpool.manager.app import run
from swingpool.manager.lease import LeaseSettings
from swingpool.manager.options import Options
from swingpool.manager.rounds import Periods
from swingpool.telemetry.logs import LogFormat, LogLevel, configure
from swingpool.telemetry.prometheus import Address
from swingpool_control import names
from swingpool_control.resources.settings import (
    DEFAULT_ENVOY_IMAGE,
    DEFAULT_USER_ID,
    DEFAULT_VLLM_IMAGE,
    RenderSettings,
)

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_namespace() -> str:
    """Return the namespace that this process runs in, or `default`."""
    if namespace := os.environ.get("POD_NAMESPACE"):
        return namespace
    return NAMESPACE_FILE.read_text(encoding="utf-8").strip() if NAMESPACE_FILE.exists() else "default"


@click.command("manager")
@click.option("--watch-namespace", multiple=True,
              help="Work in this namespace only; may be repeated. Default: in all.")  # fmt: skip
@click.option("--swingpool-image", required=True,
              help="Swingpool's own image, for the router's picker and simulated workers.")  # fmt: skip
@click.option("--envoy-image", default=DEFAULT_ENVOY_IMAGE, show_default=True, help="Image of the router's Envoy.")
@click.option("--envoy-command", multiple=True, default=("envoy",), show_default=True,
              help="How Envoy is started in its image; may be repeated, one word each.")  # fmt: skip
@click.option("--vllm-image", default=DEFAULT_VLLM_IMAGE, show_default=True, help="Image of vLLM workers.")
@click.option("--image-pull-policy", type=click.Choice(["IfNotPresent", "Always", "Never"]), default="IfNotPresent",
              show_default=True, help="Pull policy of all images.")  # fmt: skip
@click.option("--image-pull-secret", multiple=True,
              help="Secret, in the InferenceCluster's namespace, to pull images with; may be repeated.")  # fmt: skip
@click.option("--run-as-user", type=click.IntRange(min=1), default=DEFAULT_USER_ID, show_default=True,
              help="User and group id of all containers.")  # fmt: skip
@click.option("--platform-users", is_flag=True, help="Leave user ids to the platform, as OpenShift wants it.")
@click.option("--lease-name", default="swingpool-manager", show_default=True, help="Name of the leader's Lease.")
@click.option("--lease-namespace", default=None, help="Its namespace. Default: the manager's own.")
@click.option("--lease-duration", type=click.FloatRange(min=3), default=30.0, show_default=True,
              help="Seconds after which another manager may take a lease that was not renewed.")  # fmt: skip
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False, path_type=Path), default=None,
              help="Default: the pod's ServiceAccount, $KUBECONFIG or ~/.kube/config.")  # fmt: skip
@click.option("--swing-period", type=click.FloatRange(min=0.1), default=1.0, show_default=True,
              help="Seconds between two decisions on roles.")  # fmt: skip
@click.option("--sizing-period", type=click.FloatRange(min=0.1), default=15.0, show_default=True,
              help="Seconds between two decisions on replicas.")  # fmt: skip
@click.option("--resync-period", type=click.FloatRange(min=1), default=300.0, show_default=True,
              help="Seconds between two full lists, whatever the watches say.")  # fmt: skip
@click.option("--host", default="0.0.0.0", show_default=True, help="Address for probes and metrics.")  # noqa: S104
@click.option("--health-port", type=click.IntRange(0, 65535), default=names.PORT_MANAGER_HEALTH, show_default=True,
              help="Port of /healthz and /readyz.")  # fmt: skip
@click.option("--metrics-port", type=click.IntRange(0, 65535), default=names.PORT_MANAGER_METRICS, show_default=True,
              help="Port of /metrics.")  # fmt: skip
@click.option("--picker-port", type=click.IntRange(1, 65535), default=names.PORT_PICKER_HTTP, show_default=True,
              help="Port at which pickers serve their state.")  # fmt: skip
@click.option("--prometheus-url", default=None, metavar="URL",
              help="Prometheus to ask for clusters whose router.external.metrics.source is Prometheus.")  # fmt: skip
@click.option("--prometheus-token-file", type=click.Path(path_type=Path), default=None,
              help="File with a bearer token for it; read anew for each question.")  # fmt: skip
@click.option("--prometheus-ca-file", type=click.Path(path_type=Path), default=None,
              help="Certificates to trust for it instead of the system's.")  # fmt: skip
@click.option("--pod-name", envvar="POD_NAME", default=None,
              help="Name of this pod, under which it leads. Default: a name of its own.")  # fmt: skip
@log_options
def command(
    *,
    watch_namespace: tuple[str, ...],
    swingpool_image: str,
    envoy_image: str,
    envoy_command: tuple[str, ...],
    vllm_image: str,
    image_pull_policy: str,
    image_pull_secret: tuple[str, ...],
    run_as_user: int,
    platform_users: bool,
    lease_name: str,
    lease_namespace: str | None,
    lease_duration: float,
    kubeconfig: Path | None,
    log_format: LogFormat,
    log_level: LogLevel,
    swing_period: float,
    sizing_period: float,
    resync_period: float,
    host: str,
    health_port: int,
    metrics_port: int,
    picker_port: int,
    prometheus_url: str | None,
    prometheus_token_file: Path | None,
    prometheus_ca_file: Path | None,
    pod_name: str | None,
) -> None:
    """Run the manager: it makes what InferenceClusters ask for, and keeps it right.

    Every option can be set by a variable as well: --lease-name by SWINGPOOL_MANAGER_LEASE_NAME.
    """
    configure(log_format, level=log_level)
    # A container that starts anew in its pod is the same leader; two processes elsewhere never are.
    identity = pod_name or f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    options = Options(
        namespaces=tuple(dict.fromkeys(watch_namespace)),
        kubeconfig=kubeconfig,
        pod_name=identity,
        rendering=RenderSettings(
            swingpool_image=swingpool_image,
            envoy_image=envoy_image,
            envoy_command=envoy_command,
            vllm_image=vllm_image,
            image_pull_policy=image_pull_policy,
            image_pull_secrets=image_pull_secret,
            run_as_user=None if platform_users else run_as_user,
        ),
        lease=LeaseSettings(
            namespace=lease_namespace or own_namespace(),
            name=lease_name,
            identity=identity,
            duration_s=lease_duration,
            deadline_s=lease_duration * 2 / 3,
            retry_s=min(4.0, lease_duration / 8),
        ),
        call_timeout_s=min(5.0, lease_duration / 6),
        periods=Periods(swing_s=swing_period, sizing_s=sizing_period, children_s=resync_period),
        resync_s=resync_period,
        host=host,
        health_port=health_port,
        metrics_port=metrics_port,
        picker_port=picker_port,
        prometheus=_prometheus(prometheus_url, prometheus_token_file, prometheus_ca_file),
    )
    try:
        sys.exit(asyncio.run(run(options)))
    except (KubeError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _prometheus(url: str | None, token_file: Path | None, ca_file: Path | None) -> Address | None:
    if url is None:
        if token_file or ca_file:
            raise click.UsageError("--prometheus-token-file and --prometheus-ca-file need --prometheus-url")
        return None
    if not url.startswith(("http://", "https://")):
        raise click.UsageError(f"--prometheus-url {url}: must begin with http:// or https://")
    return Address(url=url, token_file=token_file, ca_file=ca_file)
