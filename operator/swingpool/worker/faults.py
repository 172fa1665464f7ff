"""Faults on request, so that tests and demos can see how the rest of the system takes them."""

import math
import random
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

KINDS = ("crash", "hang", "slow", "transfer", "forget", "error")


class FaultError(ValueError):
    """A fault that cannot be had: names the field."""


class Fault(BaseModel):
    """One fault, as `POST /faults` takes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["crash", "hang", "slow", "transfer", "forget", "error"]
    """crash: the process dies at once. hang: it stands still, as if stopped. slow: iterations take longer. transfer:
    pulls of KV cache fail. forget: no KV cache is kept for another worker, and no answer says where one is. error:
    requests are answered with an error."""
    duration_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """How long; None is until it is cleared (a hang, for ever)."""
    factor: float = Field(default=4.0, ge=1, allow_inf_nan=False)
    """slow: how much longer iterations take."""
    rate: float = Field(default=1.0, gt=0, le=1)
    """transfer, forget, error: share of pulls or requests that fail."""
    status: int = Field(default=500, ge=400, le=599)
    """error: what they are answered with."""


@dataclass(slots=True)
class _Active:
    fault: Fault
    ends_s: float


class Faults:
    """The faults that hold now; one of each kind.

    Args:
        seed: of which pulls and requests fail, where not all do.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a simulation, not a secret
        self._active: dict[str, _Active] = {}

    @staticmethod
    def parse(data: object) -> Fault:
        """Return the fault in a request's body.

        Raises:
            FaultError: a field is missing, unknown or out of range.
        """
        try:
            return Fault.model_validate(data)
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'body'}: {each['msg']}" for each in error.errors())
            raise FaultError(faults) from error

    def set(self, fault: Fault, *, now_s: float) -> None:
        """Let a fault hold from now on, instead of another of its kind."""
        self._active[fault.kind] = _Active(fault, math.inf if fault.duration_s is None else now_s + fault.duration_s)

    def clear(self) -> None:
        """End all faults."""
        self._active.clear()

    def listing(self, *, now_s: float) -> list[dict[str, Any]]:
        """Return the faults that hold now."""
        return [fault.model_dump() for kind in KINDS if (fault := self._now(kind, now_s)) is not None]

    def slowness(self, *, now_s: float) -> float:
        """Return how much longer iterations take; 1 if all is well."""
        fault = self._now("slow", now_s)
        return fault.factor if fault else 1.0

    def fails_transfer(self, *, now_s: float) -> bool:
        """Tell whether the pull that starts now fails."""
        return self._strikes("transfer", now_s) is not None

    def keeps_nothing(self, *, now_s: float) -> bool:
        """Tell whether nothing is kept for another worker of the prompt that comes now."""
        return self._strikes("forget", now_s) is not None

    def error_status(self, *, now_s: float) -> int | None:
        """Return what the request that comes now is answered with, or None if it is served."""
        fault = self._strikes("error", now_s)
        return fault.status if fault else None

    def _strikes(self, kind: str, now_s: float) -> Fault | None:
        fault = self._now(kind, now_s)
        if fault is None or (fault.rate < 1 and self._random.random() >= fault.rate):
            return None
        return fault

    def _now(self, kind: str, now_s: float) -> Fault | None:
        active = self._active.get(kind)
        if active is None:
            return None
        if active.ends_s <= now_s:
            del self._active[kind]
            return None
        return active.fault
