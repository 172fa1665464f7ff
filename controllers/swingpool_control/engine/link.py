"""A worker's link for KV cache: pulls come one after the other."""

from swingpool_control.engine.model import PerformanceModel


class Link:
    """What one worker receives through.

    Args:
        model: how long a transfer takes alone.
    """

    def __init__(self, model: PerformanceModel) -> None:
        self._model = model
        self._free_s = 0.0

    def start(self, tokens: int, *, now_s: float) -> float:
        """Begin to pull the KV cache of so many tokens; return after how many seconds it is there."""
        self._free_s = max(now_s, self._free_s) + self._model.transfer_s(tokens=tokens)
        return self._free_s - now_s
