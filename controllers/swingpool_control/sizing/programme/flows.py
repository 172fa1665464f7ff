"""Links between sites: which share of the traffic is computed where, and where its tokens are generated.

One unknown for each pair of sites: the share of all requests whose prompt one computes and whose tokens the other
generates. Without links given, anything flows anywhere and there is nothing to add.
"""

from collections.abc import Mapping

from swingpool_control import names
from swingpool_control.sizing.programme.coverage import Step, able
from swingpool_control.sizing.programme.problem import Problem
from swingpool_control.sizing.programme.rows import Columns, Rows, Terms
from swingpool_control.sizing.programme.slack import Slack, term

Flows = dict[tuple[str, str], int]
"""Column by site of prefill and site of decode."""


def add(
    problem: Problem,
    columns: Columns,
    rows: Rows,
    *,
    steps: Mapping[str, tuple[Step, ...]],
    slack: Slack,
) -> Flows:
    """Add the flows between sites; return their columns.

    Args:
        problem: the problem.
        columns: where flows go.
        rows: where rows go.
        steps: what `coverage` returned, by role.
        slack: what may be missed.
    """
    if not problem.links:
        return {}
    sites = sorted({pool.site for pool in problem.pools})
    flows = {(source, target): columns.add(0, 1, whole=False) for source in sites for target in sites}
    rows.add([(column, 1.0) for column in flows.values()] + term(slack.carried), low=1)
    arriving = problem.need.get(names.ROLE_PREFILL, 0.0) * problem.kv_bytes_per_request
    for link in problem.links:
        column = flows.get((link.from_site, link.to_site))
        if column is not None and arriving > 0:
            rows.add([(column, 1.0)], high=min(1.0, link.bytes_per_s / arriving))
    for side, role in enumerate((names.ROLE_PREFILL, names.ROLE_DECODE)):
        for site in sites:
            through: Terms = [(column, -1.0) for pair, column in flows.items() if pair[side] == site]
            _within(problem, role, site, through, rows, steps=steps[role])
    return flows


def _within(
    problem: Problem,
    role: str,
    site: str,
    through: Terms,
    rows: Rows,
    *,
    steps: tuple[Step, ...],
) -> None:
    """Add: what flows through a site is what its workers sustain."""
    inside = {pool.name for pool in able(problem, role) if pool.site == site}
    sustained: Terms = [
        (column, step.rates[name]) for step in steps for name, column in step.parts.items() if name in inside
    ]
    if steps:
        rows.add(sustained + through, low=0)
