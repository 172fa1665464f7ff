"""What a placement decision costs: one core, clusters of 100 and 2,000 workers under load, every kind of event timed.

A decision is everything that the router does for a request between its arrival and its end: it is offered, dispatched
(again whenever something ends or opens), its prompt's end is accounted for, and its decode worker is chosen. Prompts
share prefixes, so that caches are looked at. The bar is on the 99th percentile over calls that place something, each
call's processor time divided by the requests that it places. The same run is repeated and the least of each call
counts: what other processes disturb is not the decision's. It runs what is installed here, compiled or not, and says
which.
"""

import gc
import sys
import time
from heapq import heappop, heappush
from random import Random

from benchmarks.harness import Run, main
from swingpool_control import names
from swingpool_control.engine.profile import built_in
from swingpool_control.placement import dispatcher as module
from swingpool_control.placement.account import Account, Leg
from swingpool_control.placement.dispatcher import Assignment, Dispatcher
from swingpool_control.placement.limits import DeflectionLimits
from swingpool_control.placement.settings import PlacementSettings
from swingpool_control.placement.ticket import Ticket

PROFILE = "llama-3.1-8b-fp8-h200"
LIMITS = {100: 100e-6, 2_000: 1e-3}
LOAD = 0.85
BLOCK_TOKENS = 512
PROMPTS_PER_S = 45.0
"""What one prefill worker computes, about."""
GROUPS = 200
"""Different beginnings of prompts."""


class Cluster:
    """Workers that take as long as the model says, and the router's calls, timed."""

    def __init__(self, workers: int, seed: int) -> None:
        self.random = Random(seed)
        self.model = built_in(PROFILE).model()
        self.dispatcher = Dispatcher(PlacementSettings(limits=DeflectionLimits(itl_s=0.03, over_share=0.01)))
        self.costs_s: list[float] = []
        """Of each call that placed something, per request that it placed."""
        self.total_s = 0.0
        self.ends: list[tuple[float, int, Assignment | Ticket, Account]] = []
        self.count = 0
        self.now_s = 0.0
        self.prefill = max(1, round(0.6 * workers))
        for number in range(workers):
            role = names.ROLE_PREFILL if number < self.prefill else names.ROLE_DECODE
            account = Account(f"10.0.{number // 250}.{number % 250}:8000", self.model)
            self.dispatcher.changed(account, role=role, in_rotation=True)

    def run(self, count: int) -> None:
        """Let so many requests arrive, at the load."""
        rate = LOAD * self.prefill * PROMPTS_PER_S
        for _ in range(count):
            self.until(self.now_s + self.random.expovariate(rate))
            self.arrive()

    def arrive(self) -> None:
        """Let a request arrive."""
        self.count += 1
        tokens = max(64, min(16_000, round(self.random.lognormvariate(6.8, 0.8))))
        group = self.random.randrange(GROUPS)
        blocks = tuple(hash((group, index)) for index in range(tokens // BLOCK_TOKENS))
        ticket = Ticket(self.count, tokens, arrived_s=self.now_s, hashes=blocks, block_tokens=BLOCK_TOKENS)
        started = time.thread_time()
        self.dispatcher.offer(ticket, self.now_s)
        self.placed(self.dispatcher.dispatch(self.now_s), time.thread_time() - started)

    def until(self, time_s: float) -> None:
        """Let everything happen that happens before a time."""
        while True:
            end_s = self.ends[0][0] if self.ends else float("inf")
            wake_s = self.dispatcher.next_s
            if min(end_s, wake_s) > time_s:
                break
            self.now_s = min(end_s, wake_s)
            if end_s <= wake_s:
                self.end(*heappop(self.ends)[2:])
            else:
                started = time.thread_time()
                found = self.dispatcher.dispatch(self.now_s)
                self.placed(found, time.thread_time() - started)
        self.now_s = time_s

    def end(self, what: Assignment | Ticket, account: Account) -> None:
        """Let a prompt or an answer end."""
        started = time.thread_time()
        chosen = None
        if isinstance(what, Assignment):
            leg = what.leg
            assert isinstance(leg, Leg)  # noqa: S101 - by construction
            self.dispatcher.prefill_ended(account, leg, now_s=self.now_s, served=True)
            chosen = self.dispatcher.generate(what.ticket, account, self.now_s)
        else:
            self.dispatcher.decode_ended(account, what.tokens)
        found = self.dispatcher.dispatch(self.now_s)
        self.placed(found, time.thread_time() - started, chose=chosen is not None)
        if isinstance(what, Assignment) and chosen is not None:
            self.generates(what.ticket, chosen)

    def placed(self, found: list[Assignment], cost_s: float, *, chose: bool = False) -> None:
        """Count a call, and let what it placed go its way."""
        self.total_s += cost_s
        if found or chose:
            self.costs_s.append(cost_s / (len(found) + chose))
        for one in found:
            if one.leg is None:
                self.generates(one.ticket, one.account)
            else:
                self.count += 1
                heappush(self.ends, (one.leg.predicted_s, self.count, one, one.account))

    def generates(self, ticket: Ticket, account: Account) -> None:
        """Let a request generate for a while."""
        self.count += 1
        lasts_s = self.random.expovariate(1 / 2.0)
        heappush(self.ends, (self.now_s + lasts_s, self.count, ticket, account))


def measure(run: Run) -> None:
    compiled = not str(getattr(module, "__file__", "")).endswith(".py")
    run.figures["compiled"] = compiled
    run.say(f"placement is {'compiled' if compiled else 'interpreted'} here")
    count, repeats = (3_000, 3) if run.quick else (20_000, 5)
    for workers, limit_s in LIMITS.items():
        runs = [Cluster(workers, run.seed) for _ in range(repeats)]
        for cluster in runs:
            gc.collect()
            cluster.run(count)
        least = [min(same) for same in zip(*(cluster.costs_s for cluster in runs), strict=True)]
        costs = sorted(least[len(least) // 10 :])
        p50, p99 = costs[len(costs) // 2], costs[int(0.99 * len(costs))]
        per_request = min(cluster.total_s for cluster in runs) / count
        run.say(
            f"{workers} workers, {count} requests: a call that places something takes p50 {1e6 * p50:.0f} µs, p99 "
            f"{1e6 * p99:.0f} µs; all calls for one request {1e6 * per_request:.0f} µs; at the end "
            f"{runs[0].dispatcher.queued} wait"
        )
        run.figures |= {
            f"p50_us_at_{workers}": round(1e6 * p50, 1),
            f"p99_us_at_{workers}": round(1e6 * p99, 1),
            f"per_request_us_at_{workers}": round(1e6 * per_request, 1),
        }
        run.at_most(f"p99 of a decision at {workers} workers, µs", 1e6 * p99, 1e6 * limit_s)


if __name__ == "__main__":
    sys.exit(main("decision_cost", measure, takes="about a minute"))
