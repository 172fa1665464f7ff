"""The simulated worker and vLLM answer one conversation of protocol checks alike."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from e2e.cluster.paths import ROOT
from e2e.vllm.finding import Finding
from e2e.vllm.stand import Stand

_TESTS = "tests/integration/worker/test_contract.py"
_LIMIT_S = 600


def check(stand: Stand, first: str, second: str) -> list[Finding]:
    """Run the contract's tests against simulated workers, then against two vLLM servers."""
    real = {
        "SWINGPOOL_WORKER_URL": stand.servers[first].url,
        "SWINGPOOL_WORKER_URL_2": stand.servers[second].url,
    }
    return [
        _run("the contract's tests pass against simulated workers", stand.directory / "contract-simulated.xml", {}),
        _run("the contract's tests pass against vLLM", stand.directory / "contract-vllm.xml", real),
    ]


def _run(claim: str, report: Path, variables: dict[str, str]) -> Finding:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--timeout=400",
        f"--junitxml={report}",
        _TESTS,
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=_LIMIT_S,
    )
    if not report.exists():
        return Finding(claim=claim, holds=False, notes=tuple(done.stdout.splitlines()[-10:]))
    suite = ET.parse(report).getroot()[0]  # noqa: S314 - pytest wrote it just now
    failed = [case.get("name", "") for case in suite.iter("testcase") if list(case)]
    return Finding(
        claim=claim,
        holds=done.returncode == 0,
        figures={
            "tests": float(suite.get("tests", 0)),
            "failed": float(len(failed)),
            "seconds": float(suite.get("time", 0)),
        },
        notes=tuple(failed),
    )
