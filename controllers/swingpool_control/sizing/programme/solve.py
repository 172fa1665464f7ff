"""Solving the sizing programme."""

from swingpool_control.sizing.programme.answer import Answer
from swingpool_control.sizing.programme.problem import Problem


def solve(problem: Problem) -> Answer:
    """Return the plan of least objective that keeps every constraint, or the least bad one with what it breaks.

    Bounds and budgets hold in either. The answer does not depend on the order of the pools.
    """
    raise NotImplementedError
