"""One decision of a loop with everything that it stood on, and the same decision made again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

from swingpool_control.replay.codec import CodecError, decode, encode
from swingpool_control.sizing import step as sizing
from swingpool_control.sizing.memory import SizingMemory, SizingResult
from swingpool_control.swing import step as swing
from swingpool_control.swing.memory import SwingMemory, SwingResult
from swingpool_control.view import ClusterView

FORMAT = "swingpool-decisions/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwingDecision:
    """A step of the swing loop."""

    view: ClusterView
    memory: SwingMemory
    now_unix_s: float
    result: SwingResult
    loop: Literal["swing"] = "swing"

    def again(self) -> SwingResult:
        """Decide again."""
        return swing.step(self.view, self.memory, now_unix_s=self.now_unix_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingDecision:
    """A step of the sizing loop."""

    view: ClusterView
    memory: SizingMemory
    now_unix_s: float
    result: SizingResult
    loop: Literal["sizing"] = "sizing"

    def again(self) -> SizingResult:
        """Decide again."""
        return sizing.step(self.view, self.memory, now_unix_s=self.now_unix_s)


Decision = SwingDecision | SizingDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Decisions about one cluster, oldest first, and the version that made them."""

    cluster: str
    """`namespace/name`."""
    version: str
    decisions: tuple[Decision, ...]


def newest(recording: Recording, each: int) -> Recording:
    """Return a recording with no more than the last `each` decisions of each loop."""
    kept = [
        decision
        for loop in ("sizing", "swing")
        for decision in [one for one in recording.decisions if one.loop == loop][-each:]
    ]
    return replace(recording, decisions=tuple(sorted(kept, key=lambda one: one.now_unix_s)))


def write(recording: Recording) -> dict[str, Any]:
    """Return a recording as plain JSON."""
    return {"format": FORMAT, **encode(recording)}


def read(raw: object) -> Recording:
    """Return the recording that plain JSON holds.

    Raises:
        CodecError: it is none, or one that this version cannot read; the message says what is wrong where.
    """
    if not isinstance(raw, dict) or raw.get("format") != FORMAT:
        found = raw.get("format") if isinstance(raw, dict) else type(raw).__name__
        raise CodecError(f"not a recording of decisions: format {FORMAT!r} expected, not {found!r}")
    return decode(Recording, {key: value for key, value in raw.items() if key != "format"})


def differences(decision: Decision) -> tuple[str, ...]:
    """Return where the decision made again differs from the recorded one, path by path; nothing if it is the same."""
    return tuple(_differences(encode(decision.result), encode(decision.again()), ""))


def _differences(recorded: Any, again: Any, path: str) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(again, dict):
        for key in sorted(recorded.keys() | again.keys()):
            yield from _differences(recorded.get(key), again.get(key), f"{path}.{key}" if path else key)
    elif isinstance(recorded, list) and isinstance(again, list) and len(recorded) == len(again):
        for at, (one, two) in enumerate(zip(recorded, again, strict=True)):
            yield from _differences(one, two, f"{path}[{at}]")
    elif recorded != again:
        yield f"{path}: recorded {recorded!r}, now {again!r}"
