"""Random problems of the sizing programme, small enough to be looked at whole."""

from hypothesis import strategies as st

from swingpool_control import names
from swingpool_control.sizing.programme import ALL_PRODUCTS, Limits, PoolOption, Problem, Rates, Weights

PREFILL, DECODE = names.ROLE_PREFILL, names.ROLE_DECODE


@st.composite
def rates(draw: st.DrawFn) -> Rates:
    each = sorted(draw(st.lists(st.integers(1, 400), min_size=1, max_size=3)))
    starts = [1, *sorted(draw(st.sets(st.integers(2, 6), min_size=len(each) - 1, max_size=len(each) - 1)))]
    return Rates(steps=tuple((start, rate / 100) for start, rate in zip(starts, each, strict=True)))


@st.composite
def options(draw: st.DrawFn, index: int) -> PoolOption:
    fewest = draw(st.integers(0, 2))
    roles = draw(st.sampled_from([(PREFILL,), (DECODE,), (PREFILL, DECODE)]))
    return PoolOption(
        name=f"pool{index}",
        rates={role: draw(rates()) for role in roles},
        fewest=fewest,
        most=fewest + draw(st.integers(0, 3)),
        price_per_hour=draw(st.integers(1, 60)) / 4,
        product=draw(st.sampled_from(["H100", "H200"])),
        accelerators=draw(st.sampled_from([1, 2, 4])),
        watts={role: float(draw(st.integers(50, 700))) for role in roles},
        carbon_g_per_kwh=float(draw(st.integers(20, 700))),
        kv_tokens=float(draw(st.integers(1, 100))),
        idle=draw(st.integers(0, fewest)),
        surge=draw(st.integers(0, 1)),
        present=draw(st.integers(0, 4)),
    )


@st.composite
def problems(draw: st.DrawFn, *, most_pools: int = 3) -> Problem:
    count = draw(st.integers(1, most_pools))
    products = draw(st.sets(st.sampled_from(["H100", "H200", ALL_PRODUCTS])))
    return Problem(
        pools=tuple(draw(options(index)) for index in range(count)),
        need={role: draw(st.integers(0, 1200)) / 100 for role in (PREFILL, DECODE)},
        kv_tokens=float(draw(st.sampled_from([0, 0, 30, 200]))),
        limits=Limits(
            accelerators={product: draw(st.integers(0, 30)) for product in sorted(products)},
            cost_per_hour=draw(st.none() | st.integers(0, 150).map(float)),
            watts=draw(st.none() | st.integers(0, 8000).map(float)),
        ),
        weights=draw(
            st.sampled_from(
                [Weights(), Weights(cost=0, power=1), Weights(cost=0, carbon=1), Weights(power=2, carbon=3)]
            )
        ),
        spare_worker=draw(st.booleans()),
    )
