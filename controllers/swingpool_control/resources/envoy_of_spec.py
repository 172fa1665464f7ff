"""What of an InferenceCluster's spec Envoy goes by."""

import math
from collections.abc import Mapping

from swingpool_control.api import access
from swingpool_control.api.access import FailureMode
from swingpool_control.api.quantities import seconds
from swingpool_control.api.v1alpha1 import InferenceClusterSpec
from swingpool_control.resources.envoy_authorizer import CERTIFICATE, TRUST
from swingpool_control.resources.envoy_settings import (
    AuthorizerService,
    AuthorizerTls,
    EnvoySettings,
    TenantLimit,
    TraceExport,
    WorkerTlsFiles,
)


def envoy_settings(
    spec: InferenceClusterSpec,
    *,
    node_id: str,
    certificate_file: str,
    api_keys_file: str,
    worker_tls: WorkerTlsFiles | None,
    authorizer_files: Mapping[str, str],
) -> EnvoySettings:
    """Return the settings of a router pod's Envoy.

    Args:
        spec: what the user wrote.
        node_id: what this Envoy is called.
        certificate_file: names the certificate, where the spec wants HTTPS.
        api_keys_file: holds the keys, where the spec wants them.
        worker_tls: by what workers are spoken to over TLS, where the spec wants that.
        authorizer_files: what names the authorizer's CA and what it is shown, by the name of either, where the spec
            says them.
    """
    router = spec.router.built_in
    return EnvoySettings(
        traces=_traces(spec, service=node_id),
        node_id=node_id,
        tls_sds_file=certificate_file if router.tls else "",
        api_keys_file=api_keys_file if router.api_keys else "",
        worker_tls=worker_tls,
        authorizer=_authorizer(spec, authorizer_files),
        tenant_limit=_limit(spec),
    )


def _limit(spec: InferenceClusterSpec) -> TenantLimit | None:
    router = spec.router.built_in
    if router.rate_limit is None:
        return None
    # Each pod counts for itself, and clients spread over all of them.
    return TenantLimit(
        requests_per_s=float(router.rate_limit.requests_per_second) / router.replicas,
        burst=math.ceil(router.rate_limit.burst / router.replicas),
    )


def _authorizer(spec: InferenceClusterSpec, files: Mapping[str, str]) -> AuthorizerService | None:
    asked = spec.router.built_in.authorizer
    if asked is None:
        return None
    scheme, _, rest = asked.endpoint.partition("://")
    authority, slash, path = rest.partition("/")
    host, _, port = authority.partition(":")
    secure = scheme in ("grpcs", "https")
    return AuthorizerService(
        host=host,
        port=int(port or (443 if secure else 80)),
        grpc=scheme.startswith("grpc"),
        tls=_authorizer_tls(asked, host, files) if secure else None,
        path=(slash + path).rstrip("/"),
        timeout_s=seconds(asked.timeout),
        allows_unanswered=asked.failure_mode is FailureMode.ALLOW,
        credentials=asked.credentials,
    )


def _authorizer_tls(asked: access.Authorizer, host: str, files: Mapping[str, str]) -> AuthorizerTls:
    return AuthorizerTls(
        server_name=(asked.tls.server_name if asked.tls else None) or host,
        trust_file=files.get(TRUST, ""),
        certificate_file=files.get(CERTIFICATE, ""),
    )


def _traces(spec: InferenceClusterSpec, *, service: str) -> TraceExport | None:
    if spec.tracing is None:
        return None
    host, _, port = spec.tracing.endpoint.removeprefix("http://").partition(":")
    ratio = float(spec.tracing.sampling_ratio)
    return TraceExport(host=host, port=int(port or 80), service=service, sampling_ratio=ratio)
