"""What kopf is told: each setting, and credentials from our own."""

from pathlib import Path

import kopf
import pytest
from lightkube import KubeConfig

from swingpool.manager.registry import connection, settings
from swingpool.manager.resync import WATCHED

LABEL = "app.kubernetes.io/managed-by=swingpool"


def test_each_setting_is_chosen() -> None:
    chosen = settings()
    assert chosen.peering.standalone
    assert not chosen.posting.enabled
    assert chosen.scanning.disabled
    assert (chosen.networking.connect_timeout, chosen.networking.request_timeout) == (5, 30)
    assert sum(chosen.networking.error_backoffs or ()) == pytest.approx(19.5)  # type: ignore[arg-type]
    assert (chosen.watching.server_timeout, chosen.watching.client_timeout) == (300, 330)
    assert (chosen.watching.reconnect_backoff, chosen.watching.chunk_size) == (1.0, 500)
    assert chosen.execution.default_backoff == 5
    assert chosen.process.ultimate_exiting_timeout == 25
    assert chosen.persistence.finalizer == "swingpool.dev/finalizer"
    assert chosen.queueing.worker_limit is None


def test_children_are_filtered_by_the_server_and_clusters_are_not() -> None:
    selectors = settings().watching.label_selectors
    filters = {kind.plural: selectors.get((kind.group, kind.version, kind.plural)) for kind in WATCHED}
    assert filters.pop("inferenceclusters") is None
    assert set(filters.values()) == {LABEL}


def test_a_token_file_is_read_anew_each_time(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    (tmp_path / "namespace").write_text("ns")
    cluster = {"server": "https://10.0.0.1:443", "certificate-authority": "/ca.crt"}
    config = KubeConfig.from_dict(
        {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"tokenFile": str(token)}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
    ).get()
    assert config is not None
    assert (connection(config).token, connection(config).server) == ("first", "https://10.0.0.1:443")
    token.write_text("second")
    assert connection(config).token == "second"


def test_a_user_by_a_program_is_refused_with_a_remedy() -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "x"}}
    config = KubeConfig.from_dict(
        {
            "clusters": [{"name": "c", "cluster": {"server": "https://x"}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
    ).get()
    assert config is not None
    with pytest.raises(kopf.PermanentError, match="use a token or a client certificate"):
        connection(config)
