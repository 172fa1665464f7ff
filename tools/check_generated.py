"""Fail if a generated file is not what its source says now: part of `make verify`."""

import difflib
import sys

from tools.generate import ROOT, TARGETS

SHOWN_LINES = 20


def main() -> int:
    stale = 0
    for path, content in TARGETS.items():
        name = str(path.relative_to(ROOT))
        if not path.exists():
            stale += 1
            print(f"{name}: missing; run `make generate` and commit it")
            continue
        difference = list(
            difflib.unified_diff(
                path.read_text().splitlines(),
                content().splitlines(),
                f"{name} as committed",
                f"{name} as generated",
                lineterm="",
                n=1,
            )
        )
        if difference:
            stale += 1
            print(f"{name}: not what its source says; run `make generate` and commit it")
            print("\n".join(difference[:SHOWN_LINES]))
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
