"""Ours: the live loops' own functions on their own periods; single features can be left out, to see their worth."""

from dataclasses import dataclass, replace

from swingpool_control.actions import SetLimits
from swingpool_control.api.status import FlipRecord, InferenceClusterStatus
from swingpool_control.simulation.policies.interface import Board, Given, Placing
from swingpool_control.sizing import speed, watch
from swingpool_control.sizing import step as sizing
from swingpool_control.sizing.memory import PERIOD_S, SizingMemory
from swingpool_control.sizing.speed import SpeedMemory
from swingpool_control.swing import step as swing
from swingpool_control.swing.memory import SwingMemory
from swingpool_control.view import ClusterView


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """What of it is used."""

    swing: bool = True
    sizing: bool = True
    forecast: bool = True
    """Whether sizing looks ahead."""
    late_binding: bool = True
    deflection: bool = True


class Live:
    """The manager's rounds."""

    def __init__(self, _: Given, features: Features) -> None:
        self._features = features
        self.placing = Placing(late_binding=features.late_binding, deflection=features.deflection)
        self._status = InferenceClusterStatus()
        self._swing_memory = SwingMemory()
        self._sizing_memory = SizingMemory()
        self.speed = SpeedMemory()
        """How fast the workers are found to be."""
        self._speed_next_unix_s = 0.0
        self._size_next_unix_s = 0.0
        self.flips: tuple[FlipRecord, ...] = ()

    def round(self, board: Board, *, now_unix_s: float) -> None:
        """Look at the workers' speed and size if it is due, swing."""
        if now_unix_s >= self._speed_next_unix_s:
            self.speed = speed.follow(board.view(self._status), self.speed, now_unix_s=now_unix_s)
            self._speed_next_unix_s = now_unix_s + PERIOD_S
        if self._features.sizing:
            self._size(board, now_unix_s)
        if self._features.swing:
            moved = swing.step(self._view(board), self._swing_memory, now_unix_s=now_unix_s)
            self._swing_memory = moved.memory
            actions = tuple(
                action for action in moved.actions if self._features.deflection or not isinstance(action, SetLimits)
            )
            for uid in board.act(actions):
                self._swing_memory = self._swing_memory.refused(uid)
            if moved.memory.flips != self.flips:
                self.flips = moved.memory.flips
                self._status = InferenceClusterStatus(flips=moved.flips)

    def _view(self, board: Board) -> ClusterView:
        return speed.calibrated(board.view(self._status), self.speed)

    def _size(self, board: Board, now_unix_s: float) -> None:
        view = self._view(board)
        self._sizing_memory = watch.follow(view, self._sizing_memory)
        if now_unix_s < self._size_next_unix_s and not watch.is_urgent(
            view, self._sizing_memory, now_unix_s=now_unix_s
        ):
            return
        sized = sizing.step(view, self._sizing_memory, now_unix_s=now_unix_s, forecast=self._features.forecast)
        self._sizing_memory = sized.memory
        self._swing_memory = replace(self._swing_memory, advice=sized.memory.advice)
        self._size_next_unix_s = now_unix_s + sized.next_step_s
        board.act(sized.actions)
