"""The simulator against what it can be checked with: closed forms, a live process, and what others published.

One worker against queueing theory (M/D/1, M/G/1, processor sharing); against the simulated worker as a process that is
driven over HTTP in real time; DistServe's worked example; the best static split of Mooncake's sweep; the sign of
disaggregation's gain by prompt length that Dynamo's users measured. What each assumes stands in `benchmarks/checks/`.
"""

import sys

from benchmarks.checks import mooncake, published, queues, real_time
from benchmarks.harness import Run, main


def measure(run: Run) -> None:
    real_time.check(run)
    queues.check(run)
    published.check_distserve(run)
    published.check_dynamo(run)
    mooncake.check(run)


if __name__ == "__main__":
    sys.exit(main("cross_checks", measure, takes="some eight minutes"))
