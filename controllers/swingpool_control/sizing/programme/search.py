"""A good plan quickly: from one nearby, by single moves while they help.

What it finds is as good as `bound` says.
"""

from dataclasses import dataclass

import numpy as np

from swingpool_control.sizing.programme.arrays import Reals, Wholes
from swingpool_control.sizing.programme.neighbourhood import NOTHING, Moves, Neighbourhood

EPSILON = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A plan that no single move improves, or the best one when moves ran out."""

    serving: dict[tuple[str, str], int]
    missed: float
    """How much of what is needed is missed, weighed as `slack` says."""
    objective: float


@dataclass(frozen=True, slots=True)
class _Plan:
    serving: Wholes
    over: float
    missed: float
    objective: float

    def better_than(self, other: "_Plan") -> bool:
        """Compare by broken budgets, then by what is missed, then by the objective."""
        for mine, theirs in ((self.over, other.over), (self.missed, other.missed)):
            if abs(mine - theirs) > EPSILON:
                return mine < theirs
        return self.objective < other.objective - EPSILON


def improve(near: Neighbourhood, start: Wholes, *, prices: Reals, looks: int) -> Found | None:
    """Return a plan near another; None if the search found none that keeps the budgets.

    It makes the best move while there is one. Then it takes a worker away where that saves most, does not give it back
    at once, and mends what it broke otherwise; that may come out cheaper.

    Args:
        near: the problem.
        start: workers by place.
        prices: what a worker in each place costs, with the price of the budgets that it uses up.
        looks: how often neighbours may be looked at; a count, so that a replay finds the same.
    """
    walk = _Walk(near, prices, looks)
    best = walk.down(start)
    tried: set[int] = set()
    while walk.looks > 0:
        worth = np.where(best.serving > 0, near.arrays.unit, -1.0)
        worth[list(tried)] = -1.0
        place = int(worth.argmax())
        if worth[place] < 0:
            break
        tried.add(place)
        other = walk.down(after(best.serving, (place, NOTHING)), barred=place)
        if other.better_than(best):
            best, tried = other, set()
    if best.over > EPSILON:
        return None
    return Found(serving=near.by_place(best.serving), missed=best.missed, objective=best.objective)


def after(serving: Wholes, move: tuple[int, int]) -> Wholes:
    """Return a plan after a move: the place that loses a worker, and the one that gains it."""
    moved = np.append(serving, 0)
    moved[move[0]] -= 1
    moved[move[1]] += 1
    return moved[:-1]


class _Walk:
    """Moves while they help, and a count of looks that is left."""

    def __init__(self, near: Neighbourhood, prices: Reals, looks: int) -> None:
        self._near = near
        whole = np.append(prices, 0.0)
        self._dearer = whole[None, :] - whole[:, None]
        self.looks = looks

    def down(self, serving: Wholes, *, barred: int | None = None) -> _Plan:
        """Return the plan where no move helps any more, or looks ran out.

        Args:
            serving: where to start.
            barred: place that gets no worker before everything is mended.
        """
        while True:
            moves = self._near.moves(serving)
            self.looks -= 1
            here = _Plan(
                serving,
                float(moves.over[NOTHING, NOTHING]),
                float(moves.missed[NOTHING, NOTHING]),
                float(moves.objective[NOTHING, NOTHING]),
            )
            if barred is not None and here.missed > EPSILON:
                moves.possible[:, barred] = False
            move = self._best(moves, here)
            if move is None or self.looks <= 0:
                return here
            serving = after(serving, move)

    def _best(self, moves: Moves, here: _Plan) -> tuple[int, int] | None:
        """The move to make: what keeps budgets, then what mends most for its price, then what saves most."""
        if here.over > EPSILON:
            score = here.over - moves.over - EPSILON * moves.missed
            return _at(np.where(moves.possible & (moves.over < here.over - EPSILON), score, -np.inf))
        allowed = moves.possible & (moves.over <= EPSILON)
        less = np.where(allowed, here.missed - moves.missed, -np.inf)
        dearer = moves.objective - here.objective
        if here.missed > EPSILON and less.max() > EPSILON:
            whole = less >= here.missed - EPSILON
            if whole.any():
                return _at(np.where(whole, -dearer, -np.inf))
            return _at(np.where(less > EPSILON, less / np.maximum(self._dearer, EPSILON), -np.inf))
        return _at(np.where((less >= -EPSILON) & (dearer < -EPSILON), -dearer, -np.inf))


def _at(score: Reals) -> tuple[int, int] | None:
    """The move of the highest score; None if none has any."""
    row, column = np.unravel_index(score.argmax(), score.shape)
    if score[row, column] == -np.inf:
        return None
    return int(row), int(column)
