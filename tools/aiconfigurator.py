"""Make an environment with AIConfigurator, apart from `.venv`, and print where its interpreter is.

It takes 850 MB, below the user's cache folder; nothing is downloaded if it is there already.
"""

import subprocess
import sys
import venv

from swingpool.aiconfigurator.client import VERSION, home


def main() -> int:
    place = home()
    python = place / "bin" / "python"
    done = place / ".installed"
    if not done.is_file():
        print(f"installing aiconfigurator {VERSION} into {place}", file=sys.stderr)
        venv.create(place, with_pip=True)
        subprocess.run(
            [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                f"aiconfigurator=={VERSION}",
                f"aiconfigurator-core=={VERSION}",
            ],
            check=True,
        )
        done.touch()
    print(python)
    return 0


if __name__ == "__main__":
    sys.exit(main())
