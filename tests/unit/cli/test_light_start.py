"""What only few clusters need is not imported by those that do not."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["swingpool.picker.run", "swingpool.worker.process", "swingpool.cli.picker"])
def test_sockets_for_kv_events_are_imported_only_where_they_are_followed(module: str) -> None:
    check = f"import sys, {module}; sys.exit('zmq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
