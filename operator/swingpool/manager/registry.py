"""What kopf does for the manager: it authenticates, watches, and hands each event on. It patches nothing.

Its handlers are made here, explicitly: importing this module registers nothing.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kopf
from lightkube.config.kubeconfig import SingleConfig

from swingpool.kube.kinds import INFERENCE_CLUSTER, Kind
from swingpool.manager.resync import WATCHED, Resync, WatchHealth
from swingpool.manager.store import Store, version_of
from swingpool_control import names

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What handlers work on."""

    store: Store
    resync: Resync
    watch_health: WatchHealth
    credentials: Callable[[], SingleConfig]
    startup: Callable[[], Any]
    """Called once, before anything is watched."""
    cleanup: Callable[[], Any]
    """Called once, after all watching has ended."""


def build_registry(context: Context) -> kopf.OperatorRegistry:
    """Return a registry with a login, one event handler for each kind, and the process's start and end."""
    registry = kopf.OperatorRegistry()

    async def login(**_: Any) -> kopf.ConnectionInfo:
        return connection(context.credentials())

    async def startup(**_: Any) -> None:
        await context.startup()

    async def cleanup(**_: Any) -> None:
        await context.cleanup()

    kopf.on.login(registry=registry, errors=kopf.ErrorsMode.TEMPORARY, backoff=1.0)(login)
    kopf.on.startup(registry=registry)(startup)
    kopf.on.cleanup(registry=registry)(cleanup)
    for kind in WATCHED:
        kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=kind.plural)(_take(context, kind))
    return registry


def _take(context: Context, kind: Kind) -> Callable[..., Any]:
    async def take(event: kopf.RawEvent, **_: Any) -> None:
        """Hand an event on. A type of None is kopf's list: after an interruption something may have gone unseen."""
        obj = dict(event["object"])
        obj.setdefault("apiVersion", kind.api_version)
        obj.setdefault("kind", kind.kind)
        context.watch_health.told(kind, version_of(obj))
        if event["type"] == "DELETED":
            context.store.remove(kind, obj)
        else:
            context.store.upsert(kind, obj)
        if event["type"] is None:
            context.resync.soon()

    return take


def settings() -> kopf.OperatorSettings:
    """Return kopf's settings, each of them chosen."""
    chosen = kopf.OperatorSettings()
    chosen.peering.standalone = True  # our own Lease says who leads
    chosen.posting.enabled = False  # our own Events are few
    chosen.scanning.disabled = True  # no right to list CRDs and namespaces; the CRD is awaited before kopf starts
    chosen.networking.connect_timeout = 5
    chosen.networking.request_timeout = 30
    chosen.networking.error_backoffs = (0.5, 1, 2, 4, 4, 4, 4)  # as patient as the lease
    chosen.watching.server_timeout = 300
    chosen.watching.client_timeout = 330
    chosen.watching.reconnect_backoff = 1.0
    chosen.watching.chunk_size = 500
    for kind in WATCHED:
        if kind != INFERENCE_CLUSTER:
            managed = f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY}"
            chosen.watching.label_selectors[(kind.group, kind.version, kind.plural)] = managed
    chosen.execution.default_backoff = 5
    chosen.process.ultimate_exiting_timeout = 25  # the pod's grace period is 30 s
    # Unused, since no handler of ours persists anything; a later one must never write under kopf's own names.
    chosen.persistence.finalizer = f"{names.GROUP}/finalizer"
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.GROUP)
    chosen.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=names.GROUP)
    return chosen


def connection(config: SingleConfig) -> kopf.ConnectionInfo:
    """Return credentials for kopf from those that our client uses; a token file is read anew each time.

    Raises:
        PermanentError: the kubeconfig's user asks a program for credentials.
        OSError: the token file cannot be read.
    """
    user, cluster = config.user, config.cluster
    if user and user.exec:
        raise kopf.PermanentError("kubeconfig users by `exec` are not supported; use a token or a client certificate")
    token = user.token if user else None
    if user and user.token_file:
        token = Path(user.token_file).read_text(encoding="utf-8").strip()
    return kopf.ConnectionInfo(
        server=cluster.server,
        ca_path=config.abs_file(cluster.certificate_auth) if cluster.certificate_auth else None,
        ca_data=None if cluster.certificate_auth else cluster.certificate_auth_data,
        insecure=cluster.insecure,
        username=user.username if user else None,
        password=user.password if user else None,
        token=token,
        certificate_path=config.abs_file(user.client_cert) if user and user.client_cert else None,
        certificate_data=user.client_cert_data if user else None,
        private_key_path=config.abs_file(user.client_key) if user and user.client_key else None,
        private_key_data=user.client_key_data if user else None,
    )
