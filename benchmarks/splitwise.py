"""Splitwise (ISCA 2024), reproduced: its published simulator's rules on our timeline, with its decode axis and without.

`compat` repeats the rules of the published simulator, its decode axis included: every design of its table is simulated
at the highest rate at which that simulator was seen to pass the paper's nine objectives and at the lowest at which it
was seen to fail (data: its own runs, one trace of two minutes each). `corrected` takes decode as it was measured, by
batch size: there the published split of 70 A100 machines is compared with one that is matched to the traffic.

Prompt and output lengths are drawn apart from Azure's traces, arrivals are Poisson, as published.
"""

import csv
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

import numpy as np

from benchmarks.harness import DATA, Run, main
from benchmarks.splitwise_rules import times
from benchmarks.splitwise_rules.cluster import PROMPT, TOKEN, PublishedCluster
from benchmarks.splitwise_rules.objectives import LIMITS, Slowdowns, slowdowns
from benchmarks.splitwise_rules.scheduling import MixedPool, ShortestQueue
from swingpool.traffic import azure
from swingpool_control.simulation.traffic import Arrival
from swingpool_control.sizing.sustained import decode_rates, prefill_rates
from swingpool_control.sizing.traffic import Traffic, independent

TABLE = "splitwise/perf_model.csv"
PEER, PEER_CORRECTED = "splitwise/peer_slo_sweep.csv", "splitwise/peer_corrected_runs.csv"
TRACES = {
    "conv": "traces/AzureLLMInferenceTrace_conv.csv",
    "code": "traces/AzureLLMInferenceTrace_code.csv",
}
A100, H100, CAPPED = "a100-80gb", "h100-80gb", "h100-80gb-pcap"
COST_PER_HOUR = {A100: 17.68, H100: 38.08, CAPPED: 38.08}
LASTS_S = 120.0
DESIGN_RATE = 70.0
MACHINES, TOKEN_MACHINES, PEERS_MACHINES = (30, 29, 28, 27), 3, 28
"""The published design has 27 prompt and 3 token machines; its simulator passes with 28 in all, on its trace."""
MOST_TRACES, DESIGN_TRACES = 5, 3
ABOVE = 1.0 + 1e-9
"""A limit's share that is beyond it."""
RATIOS = (
    ("conv AA", "conv Baseline-A100", 2.15),
    ("conv HA", "conv Baseline-H100", 1.18),
    ("code AA", "code Baseline-H100", 1.4),
)
"""Throughput of one design over another's, as published (figure 18 and the abstract)."""
SKETCHED = 100
"""Of so many lengths in their order one stands for all."""
QUICK = ("code AA",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Machines of one design; a baseline has all its machines do both."""

    name: str
    prompt: tuple[str, int]
    token: tuple[str, int]
    splits: bool = True

    @property
    def machines(self) -> str:
        """For people."""
        return f"{self.prompt[1]}/{self.token[1]}" if self.splits else str(self.prompt[1] + self.token[1])

    @property
    def cost_per_hour(self) -> float:
        """Dollars."""
        return sum(COST_PER_HOUR[kind] * count for kind, count in (self.prompt, self.token))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A design under a workload, and the rates between which the published simulator's limit was seen to lie."""

    workload: str
    design: Design
    passes: float
    fails: float

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.workload} {self.design.name}"


def _baseline(kind: str, count: int) -> Design:
    name = {A100: "Baseline-A100", H100: "Baseline-H100"}[kind]
    return Design(name=name, prompt=(kind, count - 1), token=(kind, 1), splits=False)


ROWS = tuple(
    Row(workload=workload, design=design, passes=passes, fails=fails)
    for workload, design, passes, fails in (
        ("conv", _baseline(A100, 70), 55, 60),
        ("conv", _baseline(H100, 40), 120, 130),
        ("conv", Design(name="AA", prompt=(A100, 45), token=(A100, 25)), 120, 130),
        ("conv", Design(name="HH", prompt=(H100, 25), token=(H100, 15)), 120, 130),
        ("conv", Design(name="HA", prompt=(H100, 25), token=(A100, 26)), 140, 150),
        ("conv", Design(name="HHcap", prompt=(H100, 25), token=(CAPPED, 21)), 140, 150),
        ("code", _baseline(A100, 70), 40, 50),
        ("code", _baseline(H100, 40), 50, 60),
        ("code", Design(name="AA", prompt=(A100, 55), token=(A100, 15)), 70, 80),
        ("code", Design(name="HH", prompt=(H100, 35), token=(H100, 5)), 90, 100),
        ("code", Design(name="HA", prompt=(H100, 35), token=(A100, 8)), 90, 100),
        ("code", Design(name="HHcap", prompt=(H100, 35), token=(CAPPED, 7)), 100, 110),
    )
)
PUBLISHED = ROWS[2].design


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """What all runs share."""

    run: Run
    alone: times.Times
    """Of the machine that requests are measured against."""
    times: Mapping[str, times.Times]
    lengths: Mapping[str, tuple[list[int], list[int]]]
    """Prompts and outputs, by workload."""
    peer: Mapping[tuple[str, str, float], Mapping[str, float]]
    """What the published simulator came to, by workload, design and rate."""
    peer_corrected: Mapping[tuple[str, float], Mapping[str, float]]
    """The same with its decode axis corrected, by machines and rate; conversations only."""
    counts: Mapping[tuple[str, float], int]
    """How many requests its traces had, by workload and rate."""

    def arrivals(self, workload: str, rate: float, trace: int) -> list[Arrival]:
        """Return a trace: Poisson arrivals of a given number, lengths drawn from the sample.

        The number is that of the published simulator's own trace for that rate: by chance it has some percent more or
        less than the rate says, which decides at a bracket's end.
        """
        random = Random(f"{workload} {rate:g} {self.run.seed} {trace}")
        count = self.counts.get((workload, rate), round(rate * LASTS_S))
        moments = sorted(random.uniform(0.0, LASTS_S) for _ in range(count))
        prompts, outputs = self.lengths[workload]
        return [Arrival(at_s, random.choice(prompts), random.choice(outputs)) for at_s in moments]

    def simulate(
        self, workload: str, design: Design, rate: float, *, corrected: bool = False, trace: int = 0
    ) -> Slowdowns:
        """Simulate one design at one rate."""
        began_s = time.monotonic()
        arrivals = self.arrivals(workload, rate, trace)
        scheduler = (MixedPool if design.splits else ShortestQueue)([one.output_tokens for one in arrivals])
        pools = {PROMPT: design.prompt, TOKEN: design.token}
        cluster = PublishedCluster(
            {name: count for name, (_, count) in pools.items()},
            {
                name: times.PublishedModel(kind, self.times[kind], corrected=corrected)
                for name, (kind, _) in pools.items()
            },
            arrivals,
            scheduler,
        )
        cluster.run()
        found = slowdowns(cluster.outcomes, scheduler.first_s, self.alone)
        theirs = (
            self.peer_corrected.get((design.machines, rate), {})
            if corrected
            else self.peer.get((workload, design.name, rate), {})
        )
        ran = f"{len(arrivals):,} requests, {time.monotonic() - began_s:.0f} s"
        self._say(f"{workload} {design.name} {design.machines} at {rate:g}/s", found, theirs, ran)
        return found

    def _say(self, what: str, found: Slowdowns, theirs: Mapping[str, float], ran: str) -> None:
        values = " ".join(
            f"{metric} "
            + "/".join(f"{found.values[f'{metric}_p{percentile}']:.2f}" for percentile in (50, 90, 99))
            + (
                " (" + "/".join(f"{theirs[f'{metric}_p{percentile}']:.2f}" for percentile in (50, 90, 99)) + ")"
                if theirs
                else ""
            )
            for metric in ("ttft", "tbt", "e2e")
        )
        verdict = "passes" if found.holds else f"fails {', '.join(found.broken)}"
        self.run.say(f"  {what}: {values}: {verdict}  [{ran}]")


def measure(run: Run) -> None:
    files = run.data(TABLE, PEER, PEER_CORRECTED, *TRACES.values())
    if files is None:
        return
    lab = lab_of(run, files)
    run.say("slowdowns at p50/p90/p99, in brackets the published simulator's own at that rate where it was run")
    limits = _compat(lab)
    if not run.quick:
        _ratios(run, limits)
        _fewest(lab)
    _corrected(lab)


def _compat(lab: Lab) -> dict[str, tuple[float, float]]:
    """Simulate every row at both ends of its bracket; return the highest rate that passed and the lowest that failed.

    A bracket's end is the verdict on one trace, and at some ends another trace of the same kind has another verdict. So
    ours agrees if one of a few traces has the published verdict, and how many it took is told. Where none has, the
    rate is 0 or infinite: more was not looked at.
    """
    run = lab.run
    limits: dict[str, tuple[float, float]] = {}
    shares: dict[str, dict[str, list[float]]] = {}
    for row in [row for row in ROWS if row.name in QUICK] if run.quick else ROWS:
        ends = {rate: _end(lab, row, rate, holds=holds) for rate, holds in ((row.passes, True), (row.fails, False))}
        passed, failed = (found[-1].holds for found in ends.values())
        limits[row.name] = row.passes if passed else 0.0, math.inf if failed else row.fails
        shares[row.name] = {f"{rate:g}": [round(one.tightest, 3) for one in found] for rate, found in ends.items()}
    _table(run, shares)
    run.figures["compat_largest_share_of_a_limit_by_rate_and_trace"] = shares
    run.figures["compat_passes_and_fails_per_s"] = {
        name: [rate if 0 < rate < math.inf else None for rate in pair] for name, pair in limits.items()
    }
    return limits


def _table(run: Run, shares: Mapping[str, Mapping[str, list[float]]]) -> None:
    """Say the rows beside what was published: the last trace at each end decides, the first is any trace."""
    run.say("row                 machines  published: passes, fails  ours: largest share of a limit, by trace")
    for row in ROWS:
        if row.name in shares:
            ours = "; ".join(
                f"{rate}/s {', '.join(f'{share:.2f}' for share in found)}" for rate, found in shares[row.name].items()
            )
            run.say(f"{row.name:20s}{row.design.machines:10s}{row.passes:6g}/s, {row.fails:g}/s{'':10s}{ours}")


def _end(lab: Lab, row: Row, rate: float, *, holds: bool) -> list[Slowdowns]:
    """Simulate a row at one end of its bracket, on traces until the verdict is the published one."""
    found: list[Slowdowns] = []
    for trace in range(MOST_TRACES):
        found.append(lab.simulate(row.workload, row.design, rate, trace=trace))
        if found[-1].holds == holds:
            break
    name = f"compat, {row.name} {'passes' if holds else 'fails'} at {rate:g}/s as published: traces looked at"
    lab.run.at_most(name, len(found) if found[-1].holds == holds else MOST_TRACES + 1, MOST_TRACES)
    return found


def _ratios(run: Run, limits: Mapping[str, tuple[float, float]]) -> None:
    """Compare throughputs as the paper does."""
    costs = {row.name: row.design.cost_per_hour for row in ROWS}
    for ours, theirs, published in RATIOS:
        (passes, fails), (base_passes, base_fails) = limits[ours], limits[theirs]
        if not 0 < min(passes, base_passes) <= max(fails, base_fails) < math.inf:
            run.say(f"{ours} over {theirs}: one of them is out of its bracket, so there is nothing to compare")
            continue
        least, most = passes / base_fails, fails / base_passes
        name = f"compat, {ours} over {theirs}"
        cost = costs[ours] / costs[theirs]
        run.say(f"{name}: {least:.2f} to {most:.2f} at {cost:.2f} of the cost; published {published}")
        run.at_most(f"{name}: least", least, published)
        run.at_least(f"{name}: most", most, published)
        run.figures[f"{name}: least, most, published, cost share"] = [
            round(least, 2),
            round(most, 2),
            published,
            round(cost, 4),
        ]


def _fewest(lab: Lab) -> None:
    """Look for the fewest machines that pass the published design point, 70 requests of code per second."""
    passing: dict[int, str] = {}
    for machines in MACHINES:
        design = Design(name="HH", prompt=(H100, machines - TOKEN_MACHINES), token=(H100, TOKEN_MACHINES))
        held = sum(lab.simulate("code", design, DESIGN_RATE, trace=trace).holds for trace in range(DESIGN_TRACES))
        lab.run.say(f"{machines} machines for {DESIGN_RATE:g}/s of code: pass on {held} of {DESIGN_TRACES} traces")
        if held:
            passing[machines] = f"{held} of {DESIGN_TRACES}"
    lab.run.figures["compat_machines_for_70_per_s_of_code_that_pass_on_traces"] = passing
    fewest = min(passing, default=max(MACHINES) + 1)
    lab.run.at_most(f"compat, machines for {DESIGN_RATE:g}/s of code that pass on a trace", fewest, PEERS_MACHINES)


def _corrected(lab: Lab) -> None:
    """Compare the published split of 70 machines with ours, decode taken as it was measured."""
    run = lab.run
    ours = matched(lab)
    run.say(
        f"corrected: of 70 A100 machines ours computes prompts on {ours.prompt[1]} and generates on {ours.token[1]}"
    )
    rates = (50.0,) if run.quick else (30.0, 40.0, 45.0, 50.0, 60.0, 70.0)
    published = {rate: lab.simulate("conv", PUBLISHED, rate, corrected=True) for rate in rates}
    mine = {rate: lab.simulate("conv", ours, rate, corrected=True) for rate in ((70.0,) if run.quick else (70.0, 80.0))}
    run.figures["corrected_largest_share_of_a_limit_by_rate"] = {
        design.machines: {f"{rate:g}": round(found.tightest, 3) for rate, found in runs.items()}
        for design, runs in ((PUBLISHED, published), (ours, mine))
    }
    run.at_least("corrected, AA 45/25 at 50/s: largest share of a limit", published[50.0].tightest, ABOVE)
    run.at_most(
        f"corrected, {ours.name} at {DESIGN_RATE:g}/s: largest share of a limit", mine[DESIGN_RATE].tightest, 1.0
    )


def matched(lab: Lab) -> Design:
    """Split the published design's machines by the queueing model that sizing goes by, for the rate that both sustain.

    Sizing's objectives are in seconds: the paper's leave the median prompt so long to wait and to generate.
    """
    machines = PUBLISHED.prompt[1] + PUBLISHED.token[1]
    prompts, outputs = lab.lengths["conv"]
    # No prompt is split there, which sizing must know: it would share out long ones over iterations of 2,048 tokens.
    model = times.PublishedModel(A100, lab.times[A100], corrected=True, max_batched_tokens=max(prompts))
    lengths = independent(*([(tokens, 1.0) for tokens in sorted(one)[::SKETCHED]] for one in (prompts, outputs)))
    traffic = Traffic(requests_per_s=DESIGN_RATE, lengths=lengths)
    alone_s = {percentile: lab.alone.prompt.at(np.percentile(prompts, percentile)) for percentile in LIMITS["ttft"]}
    token_s = lab.alone.token.at(median(prompts))
    prefill = _least(
        prefill_rates(
            model,
            traffic=traffic,
            level=percentile / 100,
            ttft_s=alone_s[percentile] + (limit - 1) * alone_s[50],
            handover_s=0.0,
            most=machines,
        )
        for percentile, limit in LIMITS["ttft"].items()
    )
    decode = _least(
        decode_rates(model, traffic=traffic, level=percentile / 100, itl_s=limit * token_s, most=machines)
        for percentile, limit in LIMITS["tbt"].items()
    )
    prompt = max(range(1, machines), key=lambda count: min(prefill[count - 1], decode[machines - count - 1]))
    lab.run.figures["corrected_split_sustains_per_s"] = [
        round(prefill[prompt - 1], 1),
        round(decode[machines - prompt - 1], 1),
    ]
    return Design(name="AA", prompt=(A100, prompt), token=(A100, machines - prompt))


def _least(rates: Iterable[Sequence[float]]) -> list[float]:
    """Return what all percentiles sustain, by number of machines."""
    return [min(each) for each in zip(*rates, strict=True)]


def _lengths(name: str) -> tuple[list[int], list[int]]:
    pairs = [(one.prompt_tokens, one.output_tokens) for one in azure.read(DATA / name)]
    return [prompt for prompt, _ in pairs], [output for _, output in pairs]


def _percentiles(row: Mapping[str, str]) -> dict[str, float]:
    return {name: float(row[name]) for name in row if name.startswith(("ttft_p", "tbt_p", "e2e_p"))}


def lab_of(run: Run, files: Mapping[str, bytes]) -> Lab:
    """Return what all runs share, from the data files."""
    found = times.read(files[TABLE])
    rows = list(csv.DictReader(files[PEER].decode().splitlines()))
    return Lab(
        run=run,
        alone=found[A100],
        times=found,
        lengths={workload: _lengths(name) for workload, name in TRACES.items()},
        peer={(row["kind"], row["design"], float(row["rate"])): _percentiles(row) for row in rows},
        peer_corrected={
            (row["start_state"].removeprefix("splitwise_").replace("_", "/"), float(row["trace"].split("_")[2])): (
                _percentiles(row)
            )
            for row in csv.DictReader(files[PEER_CORRECTED].decode().splitlines())
        },
        counts={(row["kind"], float(row["rate"])): int(row["n"]) for row in rows},
    )


if __name__ == "__main__":
    sys.exit(main("splitwise", measure, takes="some six minutes"))
