"""What a check found."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One claim, and whether it held."""

    claim: str
    holds: bool
    figures: dict[str, float] = field(default_factory=dict)
    """Units stand in the names."""
    notes: tuple[str, ...] = ()
    """What a reader must know: differences in full, and what explains them."""
