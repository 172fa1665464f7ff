"""Fail if a Python file has grown past the length at which one reads it in one go."""

import subprocess
import sys
from pathlib import Path

LIMIT = 400


def main() -> int:
    files = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    long = [
        (name, lines)
        for name in files
        if Path(name).exists() and (lines := len(Path(name).read_text().splitlines())) > LIMIT
    ]
    for name, lines in long:
        print(f"{name}: {lines} lines; split it by concern (limit {LIMIT})")
    stray = [name for name in files if name.startswith("operator/") and name.count("/") == 1]
    for name in stray:
        print(f"{name}: no Python file may lie directly in operator/, the standard library has a module of that name")
    return 1 if long or stray else 0


if __name__ == "__main__":
    sys.exit(main())
