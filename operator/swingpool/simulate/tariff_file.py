"""Prices, power and carbon over time, from a YAML file that `--tariff` names."""

import math
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.alias_generators import to_camel

from swingpool_control.api.quantities import seconds
from swingpool_control.engine.profile import Power
from swingpool_control.simulation.tariff import Steps, Tariff

Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TariffError(ValueError):
    """A tariff that cannot be used: names the file and the field."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class _Step(_Part):
    at: str = "0s"
    """From when on, counted from the simulation's begin."""
    value: Figure

    @field_validator("at")
    @classmethod
    def _is_duration(cls, text: str) -> str:
        seconds(text)
        return text


Changing = Figure | Annotated[tuple[_Step, ...], Field(min_length=1)]


class _Watts(_Part):
    idle: Figure
    prefill: Figure
    decode: Figure

    @model_validator(mode="after")
    def _idle_is_least(self) -> "_Watts":
        if min(self.prefill, self.decode) < self.idle:
            raise ValueError("idle is more than prefill or decode")
        return self


class _File(_Part):
    repeat_every: str | None = None
    """After this time all begins anew."""
    workers: dict[str, Changing] = {}
    """Money per worker and hour, by pool."""
    power: Changing | None = None
    """Money per kilowatt-hour."""
    carbon: Changing | None = None
    """Grams of CO2 per kilowatt-hour."""
    watts: dict[str, _Watts] = {}
    """What a worker draws, by pool."""

    @model_validator(mode="after")
    def _steps_ascend(self) -> "_File":
        for name, changing in (("power", self.power), ("carbon", self.carbon), *self.workers.items()):
            try:
                self.steps(changing)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return self

    def steps(self, changing: Changing | None) -> Steps | None:
        """Return a figure over time."""
        if changing is None:
            return None
        period_s = math.inf if self.repeat_every is None else seconds(self.repeat_every)
        if isinstance(changing, float):
            return Steps(at_s=(0.0,), values=(changing,), period_s=period_s)
        return Steps(
            at_s=tuple(seconds(step.at) for step in changing),
            values=tuple(step.value for step in changing),
            period_s=period_s,
        )


def read(path: Path) -> Tariff:
    """Return what a file says.

    Raises:
        TariffError: it cannot be read, or a field is missing, unknown or out of range.
    """
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        found = _File.model_validate(content)
    except OSError as error:
        raise TariffError(f"{path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TariffError(f"{path}: not YAML: {error}") from error
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise TariffError(f"{path}: {faults}") from error
    workers = {pool: found.steps(changing) for pool, changing in found.workers.items()}
    return Tariff(
        workers={pool: steps for pool, steps in workers.items() if steps is not None},
        power=found.steps(found.power),
        carbon=found.steps(found.carbon),
        draws={
            pool: Power(idle_w=watts.idle, prefill_w=watts.prefill, decode_w=watts.decode, source=str(path))
            for pool, watts in found.watts.items()
        },
    )
