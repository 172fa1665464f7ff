"""Random problems for the sizing benchmarks: plausible accelerators, pools, prices and needs."""

import math
import random
from dataclasses import dataclass

from swingpool_control import names
from swingpool_control.sizing.programme import ALL_PRODUCTS, Limits, Link, PoolOption, Problem, Rates, Weights

PREFILL, DECODE = names.ROLE_PREFILL, names.ROLE_DECODE

GRID = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Workers of a role at which rates are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One accelerator type."""

    product: str
    prefill_per_s: float
    """Requests per second that one computes the prompts of."""
    decode_per_s: float
    price_per_hour: float
    watts: float
    kv_tokens: float


def accelerators(rng: random.Random, count: int) -> tuple[Accelerator, ...]:
    """Return accelerator types between an L4 and the newest: faster ones cost more, never in proportion."""
    found = []
    for index in range(count):
        size = 10 ** rng.uniform(0, 1.2)
        found.append(
            Accelerator(
                product=f"gpu-{index}",
                prefill_per_s=0.2 * size * rng.uniform(0.7, 1.4),
                decode_per_s=0.15 * size * rng.uniform(0.6, 1.6),
                price_per_hour=round(0.7 * size**0.9 * rng.uniform(0.7, 1.5), 2),
                watts=round(72 * size**0.8 * rng.uniform(0.8, 1.2)),
                kv_tokens=round(30_000 * size * rng.uniform(0.5, 2.0)),
            )
        )
    return tuple(found)


def rates(rng: random.Random, per_s: float, most: int) -> Rates:
    """Return rates that rise with the workers as queues do: what is lost to waiting falls as one over their root."""
    loss = rng.uniform(0.05, 0.6)
    steps = [(n, per_s * (1 - loss / math.sqrt(n))) for n in GRID if n == 1 or n <= most]
    return Rates(steps=tuple(steps))


def pool(
    rng: random.Random, index: int, kind: Accelerator, *, most: int, per_worker: tuple[int, ...], sites: int
) -> PoolOption:
    """Return a pool of an accelerator type in a random role."""
    each = rng.choice(per_worker)
    scale = each * each**-0.05
    roles = rng.choice(((PREFILL,), (DECODE,), (PREFILL, DECODE)))
    per_s = {PREFILL: kind.prefill_per_s * scale, DECODE: kind.decode_per_s * scale}
    fewest = rng.choice((0, 0, 0, 1, 2))
    fewest = min(fewest, most)
    return PoolOption(
        name=f"pool-{index}",
        rates={role: rates(rng, per_s[role], 512) for role in roles},
        fewest=fewest,
        most=most,
        price_per_hour=round(kind.price_per_hour * each, 2),
        product=kind.product,
        accelerators=each,
        watts={PREFILL: kind.watts * each, DECODE: kind.watts * each * 0.6},
        carbon_g_per_kwh=rng.choice((30.0, 250.0, 400.0, 700.0)),
        kv_tokens=kind.kv_tokens * each,
        site=f"site-{rng.randrange(sites)}",
        surge=rng.choice((0, 0, 1)),
        present=min(fewest, rng.choice((0, 1))),
    )


def weights(rng: random.Random) -> Weights:
    """Return one objective, or a mix of all."""
    return rng.choice(
        (
            Weights(),
            Weights(cost=0.0, power=1.0),
            Weights(cost=0.0, carbon=1.0),
            Weights(cost=1.0, power=0.3, carbon=2.0),
        )
    )


def problem(
    rng: random.Random, *, kinds: int, pools: int, most: tuple[int, int], accelerator_limit: int, sites: int
) -> Problem:
    """Return a problem of which most, not all, have a plan that keeps everything.

    Args:
        rng: randomness.
        kinds: accelerator types.
        pools: pools; they may use a type several times.
        most: least and most of the pools' `most`.
        accelerator_limit: accelerators in all, split over the types.
        sites: sites over which the pools are spread; more than one has links between them.
    """
    types = accelerators(rng, kinds)
    made = [
        pool(rng, index, types[index % kinds], most=rng.randint(*most), per_worker=(1, 2, 4, 8), sites=sites)
        for index in range(pools)
    ]
    made = _both_roles(rng, made)
    each = accelerator_limit // kinds
    limits = {kind.product: rng.randint(max(1, each // 2), each * 3 // 2) for kind in types}
    limits[ALL_PRODUCTS] = accelerator_limit
    reach = {role: _reach(made, limits, role) for role in (PREFILL, DECODE)}
    # Roles compete for the same accelerators: what one gets of the reach, the other cannot have.
    share, split = rng.uniform(0.05, 1.0), rng.uniform(0.25, 0.75)
    part = {PREFILL: share * split, DECODE: share * (1 - split)}
    return Problem(
        pools=tuple(made),
        need={role: reach[role] * part[role] for role in reach},
        kv_tokens=rng.choice((0.0, sum(one.kv_tokens * one.most for one in made) * 0.1)),
        kv_bytes_per_request=1e9,
        links=_links(rng, reach[PREFILL], sites),
        limits=Limits(
            accelerators=limits,
            cost_per_hour=rng.choice((None, sum(one.price_per_hour * one.most for one in made) * rng.uniform(0.3, 1))),
            watts=rng.choice((None, sum(one.watts_at_most * one.most for one in made) * rng.uniform(0.3, 1))),
        ),
        weights=weights(rng),
        spare_worker=rng.random() < 0.3,
    )


def _both_roles(rng: random.Random, made: list[PoolOption]) -> list[PoolOption]:
    """Give one pool both roles if one of them has none."""
    able = {role for one in made for role in one.rates}
    if len(able) == 2:
        return made
    first = made[0]
    per_s = next(iter(first.rates.values())).best
    both = {role: rates(rng, per_s, 512) for role in (PREFILL, DECODE)}
    return [
        PoolOption(
            name=first.name,
            rates=both,
            fewest=first.fewest,
            most=max(2, first.most),
            price_per_hour=first.price_per_hour,
            product=first.product,
            accelerators=first.accelerators,
            watts=first.watts,
            kv_tokens=first.kv_tokens,
            site=first.site,
        ),
        *made[1:],
    ]


def _reach(pools: list[PoolOption], limits: dict[str, int], role: str) -> float:
    """What a role could sustain at most, each product used up for it."""
    by_product: dict[str, float] = {}
    for one in pools:
        if role in one.rates and one.product is not None:
            workers = min(one.most, limits[one.product] // one.accelerators)
            rate = workers * one.rates[role].best
            by_product[one.product] = max(by_product.get(one.product, 0.0), rate)
    return sum(by_product.values())


def _links(rng: random.Random, rate: float, sites: int) -> tuple[Link, ...]:
    names_of = [f"site-{index}" for index in range(sites)]
    return tuple(
        Link(from_site=source, to_site=target, bytes_per_s=1e9 * rate * rng.uniform(0.0, 0.8))
        for source in names_of
        for target in names_of
        if source != target
    )
