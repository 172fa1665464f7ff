"""The sizing programme: how many workers of which pool, in which role, for the least cost, and why.

`solve(problem)` is all that others call: the live sizing loop, offline planning and the benchmarks alike.
"""

from swingpool_control.sizing.programme.answer import Alternative, Answer, Constraint, PlannedWorkers, Threshold
from swingpool_control.sizing.programme.problem import (
    ALL_PRODUCTS,
    ROLES,
    Limits,
    Link,
    PoolOption,
    Problem,
    Rates,
    Weights,
)
from swingpool_control.sizing.programme.solver import judge, solve
from swingpool_control.sizing.programme.split import split

__all__ = [
    "ALL_PRODUCTS",
    "ROLES",
    "Alternative",
    "Answer",
    "Constraint",
    "Limits",
    "Link",
    "PlannedWorkers",
    "PoolOption",
    "Problem",
    "Rates",
    "Threshold",
    "Weights",
    "judge",
    "solve",
    "split",
]
