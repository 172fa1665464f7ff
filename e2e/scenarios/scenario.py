"""What a scenario is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from e2e.cluster.interface import Progress
from e2e.scenarios.stage import Stage

Facts = dict[str, Any]
"""What a scenario saw and measured, for the report; units in the names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One failure or change, and what must hold."""

    name: str
    about: str
    """What must hold, in one line."""
    run: Callable[[Stage], Facts]
    """Raises AssertionError if something does not hold."""
    prepare: Callable[[Progress], object] | None = None
    """Brings what it needs from outside, before the cluster's network is entered."""
    quick: bool = False
    """Whether it belongs to the short slice, too."""
