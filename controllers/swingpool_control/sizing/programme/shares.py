"""Which share of the traffic each pool serves by a plan: as much as it adds, as far as links between sites allow."""

from collections.abc import Mapping

from swingpool_control import names
from swingpool_control.sizing.programme.coverage import able
from swingpool_control.sizing.programme.problem import ROLES, Problem
from swingpool_control.sizing.programme.rows import Columns, Rows, Terms, minimise
from swingpool_control.sizing.programme.totals import Serving, Totals, totals


def shares(problem: Problem, serving: Serving, known: Totals) -> dict[tuple[str, str], float]:
    """Return shares by pool and role; those of a role that has workers add up to 1."""
    adds = _adds(problem, serving, known)
    of_site = _by_site(problem, adds) if problem.links else None
    found = {}
    for role in ROLES:
        pools = able(problem, role)
        for pool in pools:
            group = [other for other in pools if of_site is None or other.site == pool.site]
            whole = sum(adds[other.name, role] for other in group)
            part = 1.0 if of_site is None else of_site[pool.site, role]
            found[pool.name, role] = part * adds[pool.name, role] / whole if whole > 0 else 0.0
    return found


def _adds(problem: Problem, serving: Serving, known: Totals) -> dict[tuple[str, str], float]:
    """What each pool adds to each role; where nobody sustains anything, its workers."""
    found = {}
    for role in ROLES:
        dead = known.sustained[role] <= 0
        for pool in able(problem, role):
            count = serving.get((pool.name, role), 0)
            found[pool.name, role] = float(count) if dead else count * pool.rates[role].at(known.workers[role])
    return found


def are_carried(problem: Problem, serving: Serving) -> bool:
    """Tell whether links carry the KV cache between the sites of a plan that otherwise keeps everything."""
    if not problem.links:
        return True
    known = totals(problem, serving)
    carried = _by_site(problem, _adds(problem, serving, known))
    whole = {role: sum(carried[site, at] for site, at in carried if at == role) for role in ROLES}
    fits = all(
        carried[site, role] * problem.need.get(role, 0.0)
        <= (1 + 1e-6) * _sustained_at(problem, serving, known, site, role)
        for site, role in carried
    )
    return fits and min(whole.values()) >= 1 - 1e-6


def _sustained_at(problem: Problem, serving: Serving, known: Totals, site: str, role: str) -> float:
    return sum(
        serving.get((pool.name, role), 0) * pool.rates[role].at(known.workers[role])
        for pool in able(problem, role)
        if pool.site == site
    )


def _by_site(problem: Problem, adds: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Shares by site and role that links carry, with the most loaded site as little loaded as can be."""
    sites = sorted({pool.site for pool in problem.pools})
    columns, rows = Columns(), Rows()
    flow = {(source, target): columns.add(0, 1, whole=False) for source in sites for target in sites}
    load, lost = columns.add(0, 1e9, whole=False), columns.add(0, 1, whole=False)
    rows.add([(column, 1.0) for column in (*flow.values(), lost)], low=1, high=1)
    arriving = problem.need.get(names.ROLE_PREFILL, 0.0) * problem.kv_bytes_per_request
    for link in problem.links:
        column = flow.get((link.from_site, link.to_site))
        if column is not None and arriving > 0:
            rows.add([(column, 1.0)], high=min(1.0, link.bytes_per_s / arriving))
    through: dict[tuple[str, str], Terms] = {}
    for side, role in enumerate((names.ROLE_PREFILL, names.ROLE_DECODE)):
        whole = sum(adds[pool.name, role] for pool in able(problem, role))
        for site in sites:
            part = sum(adds[pool.name, role] for pool in able(problem, role) if pool.site == site)
            terms: Terms = [(column, 1.0) for pair, column in flow.items() if pair[side] == site]
            through[site, role] = terms
            rows.add([*terms, (load, -part / whole if whole > 0 else 0.0)], high=0)
    found = minimise(columns, rows, {load: 1.0, lost: 1e6})
    if found is None:
        return dict.fromkeys(through, 0.0)
    return {key: sum(found.values[column] for column, _ in terms) for key, terms in through.items()}
