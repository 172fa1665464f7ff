"""A linear programme in the making: columns and rows, handed to HiGHS."""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

Terms = list[tuple[int, float]]
"""`(column, coefficient)`."""

INFEASIBLE = 2
"""Status of HiGHS in scipy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """What HiGHS found."""

    values: tuple[float, ...]
    """By column."""
    objective: float
    gap: float
    """Share of the objective by which a better one might exist; 0 is proved."""

    def whole(self, column: int) -> int:
        """Return the value of an integer column."""
        return round(self.values[column])


@dataclass(slots=True)
class Columns:
    """Unknowns, each with bounds and whether it must be whole."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    whole: list[Literal[0, 1]] = field(default_factory=list)

    def add(self, low: float, high: float, *, whole: bool) -> int:
        """Add one; return its index."""
        self.low.append(low)
        self.high.append(high)
        self.whole.append(1 if whole else 0)
        return len(self.low) - 1


@dataclass(slots=True)
class Rows:
    """Constraints: `low <= sum of terms <= high`."""

    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    _row: list[int] = field(default_factory=list)
    _column: list[int] = field(default_factory=list)
    _value: list[float] = field(default_factory=list)

    def add(self, terms: Terms, *, low: float = -math.inf, high: float = math.inf) -> int:
        """Add one; return its index. A column may occur in several terms."""
        row = len(self.low)
        for column, value in terms:
            self._row.append(row)
            self._column.append(column)
            self._value.append(value)
        self.low.append(low)
        self.high.append(high)
        return row

    def matrix(self, columns: Columns) -> csr_array:
        """Return the coefficients, row by row."""
        return csr_array((self._value, (self._row, self._column)), shape=(len(self.low), len(columns.low)))


def minimise(columns: Columns, rows: Rows, objective: dict[int, float], *, within: float = 0.0) -> Solution | None:
    """Return a solution of least objective, or None if nothing satisfies the rows.

    Args:
        columns: the unknowns.
        rows: the constraints.
        objective: cost by column.
        within: share of the objective by which the solution may miss the least.

    Raises:
        ArithmeticError: HiGHS gave up without a solution.
    """
    found = milp(
        _dense(columns, objective),
        constraints=LinearConstraint(rows.matrix(columns), rows.low, rows.high),
        integrality=columns.whole,
        bounds=Bounds(columns.low, columns.high),
        options={"mip_rel_gap": within},
    )
    if found.x is None:
        if found.status == INFEASIBLE:
            return None
        raise ArithmeticError(f"the sizing programme was not solved: {found.message}")
    return Solution(values=tuple(found.x), objective=float(found.fun), gap=float(found.mip_gap or 0.0))


def _dense(columns: Columns, objective: dict[int, float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    costs = np.zeros(len(columns.low))
    for column, cost in objective.items():
        costs[column] = cost
    return costs
