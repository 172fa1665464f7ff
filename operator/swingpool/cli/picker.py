"""`swingpool picker`: the endpoint picker beside Envoy."""

from pathlib import Path

import click
import uvloop

from swingpool.cli.log_options import log_options
from swingpool.kube import KubeError
from swingpool.picker import eds
from swingpool.picker.keys import ApiKeys
from swingpool.picker.profiles import UnusableSpecError
from swingpool.picker.run import PickerOptions, run
from swingpool.telemetry.logs import LogFormat, LogLevel, configure
from swingpool_control import names
from swingpool_control.resources.envoy import EDS_FILE

_DEFAULTS = PickerOptions(cluster="", namespace="", eds_file=Path(EDS_FILE))


@click.command("picker")
@click.option("--cluster", default="", help="Name of the InferenceCluster to serve.")
@click.option("--namespace", default="", help="Its namespace.")
@click.option(
    "--workers-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Read the workers from this JSON file instead of from the API server.",
)
@click.option(
    "--inference-pool",
    default="",
    metavar="NAME",
    help="Go by the priorities of the InferenceObjectives of this InferencePool. Default: by none.",
)
@click.option(
    "--spec-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The cluster's spec as JSON, as far as requests are placed by it. Default: the API's own defaults.",
)
@click.option(
    "--profile-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The performance profile, if the spec names a ConfigMap for it.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, path_type=Path, dir_okay=False),
    help="Default: the pod's ServiceAccount, $KUBECONFIG or ~/.kube/config.",
)
@click.option(
    "--eds-file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path(EDS_FILE),
    show_default=True,
    help="The list of workers that Envoy follows.",
)
@click.option(
    "--api-keys-directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="A mounted Secret of API keys: a file for each client. With --api-keys-file.",
)
@click.option(
    "--api-keys-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The API keys as Envoy follows them.",
)
@click.option("--init", is_flag=True, help="Write the files that Envoy needs to start, and exit.")
@click.option(
    "--grpc-port",
    type=click.IntRange(0, 65535),
    default=names.PORT_PICKER_GRPC,
    show_default=True,
    help="Port of Envoy's services, on loopback.",
)
@click.option(
    "--grpc-socket",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Unix socket of Envoy's services, instead of the port: it costs both sides less.",
)
@click.option(
    "--gateway-port",
    type=click.IntRange(0, 65535),
    help="Port on which gateways of others ask, as an InferencePool tells them. Default: none.",
)
@click.option(
    "--gateway-certificate",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="tls.crt and tls.key that they see. Default: no TLS, which few of them speak.",
)
@click.option(
    "--worker-tls",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIRECTORY",
    help="tls.crt and tls.key that workers see which speak TLS, and ca.crt, by which theirs are checked.",
)
@click.option(
    "--worker-tls-name",
    default=_DEFAULTS.worker_tls_name,
    show_default=True,
    metavar="NAME",
    help="DNS name that workers' certificates are for.",
)
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    default=names.PORT_PICKER_HTTP,
    show_default=True,
    help="Port of /metrics, /state and probes.",
)
@click.option("--http-host", default=_DEFAULTS.http_host, show_default=True, help="Where those listen.")
@click.option("--envoy-admin", default=_DEFAULTS.envoy_admin, show_default=True, help="Envoy's admin address.")
@click.option(
    "--pod-name",
    envvar="POD_NAME",
    default="",
    metavar="NAME",
    help="Pod that this picker runs in; other pickers of the cluster know it so. Default: the host's name.",
)
@click.option("--authorizer", is_flag=True, help="Envoy asks an external authorizer: tell how that goes.")
@click.option(
    "--request-log",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    metavar="FILE|-",
    help="Append a line for each request, which `swingpool simulate` reads back: lengths and times, no text.",
)
@click.option("--kv-events", is_flag=True, help="Follow what workers publish of their KV caches.")
@click.option(
    "--tokenize-timeout",
    type=click.FloatRange(min=0),
    default=_DEFAULTS.tokenize_timeout_s,
    show_default=True,
    metavar="SECONDS",
    help="How long a long prompt waits for a worker to say its tokens, with --kv-events; 0 asks none.",
)
@click.option(
    "--otlp-traces-endpoint",
    default="",
    metavar="URL",
    help="Send spans of requests that Envoy traces there: OTLP over HTTP, http://HOST:PORT without a path.",
)
@click.option(
    "--queue-timeout",
    type=click.FloatRange(min=0),
    default=_DEFAULTS.queue_timeout_s,
    show_default=True,
    metavar="SECONDS",
    help="How long a request waits while no worker is in rotation, before it is refused with 503.",
)
@click.option(
    "--window",
    type=click.FloatRange(min=1),
    default=_DEFAULTS.window_s,
    show_default=True,
    metavar="SECONDS",
    help="What the rates and percentiles in /state cover.",
)
@click.option(
    "--drain-timeout",
    type=click.FloatRange(min=0),
    default=_DEFAULTS.drain_timeout_s,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait, after SIGTERM, for Envoy's last request.",
)
@log_options
def command(
    *,
    cluster: str,
    namespace: str,
    workers_file: Path | None,
    inference_pool: str,
    spec_file: Path | None,
    profile_file: Path | None,
    kubeconfig: Path | None,
    eds_file: Path,
    api_keys_directory: Path | None,
    api_keys_file: Path | None,
    init: bool,
    grpc_port: int,
    grpc_socket: Path | None,
    gateway_port: int | None,
    gateway_certificate: Path | None,
    worker_tls: Path | None,
    worker_tls_name: str,
    http_port: int,
    http_host: str,
    envoy_admin: str,
    pod_name: str,
    authorizer: bool,
    kv_events: bool,
    tokenize_timeout: float,
    request_log: Path | None,
    otlp_traces_endpoint: str,
    queue_timeout: float,
    window: float,
    drain_timeout: float,
    log_format: LogFormat,
    log_level: LogLevel,
) -> None:
    """Run the endpoint picker beside Envoy."""
    if (api_keys_directory is None) != (api_keys_file is None):
        raise click.UsageError("--api-keys-directory and --api-keys-file go together")
    api_keys = ApiKeys(api_keys_directory, api_keys_file) if api_keys_directory and api_keys_file else None
    if init:
        eds.ensure(eds_file)
        if api_keys:
            api_keys.look()
        return
    if workers_file is None and not (cluster and namespace):
        raise click.UsageError("give --cluster and --namespace, or a --workers-file")
    configure(log_format, level=log_level)
    options = PickerOptions(
        cluster=cluster,
        namespace=namespace,
        eds_file=eds_file,
        api_keys=api_keys,
        workers_file=workers_file,
        inference_pool=inference_pool,
        spec_file=spec_file,
        profile_file=profile_file,
        kubeconfig=kubeconfig,
        grpc_port=grpc_port,
        grpc_socket=grpc_socket,
        http_host=http_host,
        gateway_port=gateway_port,
        gateway_certificate=gateway_certificate,
        worker_tls=worker_tls,
        worker_tls_name=worker_tls_name,
        http_port=http_port,
        envoy_admin=envoy_admin,
        pod_name=pod_name,
        authorizer=authorizer,
        kv_events=kv_events,
        tokenize_timeout_s=tokenize_timeout,
        request_log=request_log,
        otlp_traces_endpoint=otlp_traces_endpoint,
        queue_timeout_s=queue_timeout,
        window_s=window,
        drain_timeout_s=drain_timeout,
    )
    try:
        uvloop.run(run(options))
    except (KubeError, OSError, UnusableSpecError) as error:
        raise click.ClickException(str(error)) from error
