"""What workers draw: energy, what it costs, and the carbon that it stands for, summed up as time passes."""

from collections.abc import Iterable, Mapping

from swingpool_control.engine.profile import Power
from swingpool_control.simulation.pods import Pod
from swingpool_control.simulation.tariff import Tariff

_J_PER_KWH = 3.6e6


class _Reading:
    """One worker's meter when it was read last."""

    __slots__ = ("at_s", "decoded_s", "prefilled_s")

    def __init__(self, at_s: float) -> None:
        self.at_s = at_s
        self.prefilled_s = 0.0
        self.decoded_s = 0.0


class Meter:
    """All workers' meters. A worker draws from when it has its accelerators on.

    Args:
        powers: what a worker draws, by pool; energy is unknown unless all pools are there.
        tariff: what energy costs, and stands for.
        pools: names of all pools.
    """

    def __init__(self, powers: Mapping[str, Power], tariff: Tariff, pools: Iterable[str]) -> None:
        self._powers = dict(powers)
        self._tariff = tariff
        self.known = all(pool in self._powers for pool in pools)
        self._readings: dict[str, _Reading] = {}
        self._energy_j = 0.0
        self._cost = 0.0
        self._carbon_g = 0.0
        self.watts = 0.0
        """What all drew on the average between the last two readings of all."""

    @property
    def energy_kwh(self) -> float | None:
        """Energy up to the last reading; None if it is unknown."""
        return self._energy_j / _J_PER_KWH if self.known else None

    @property
    def cost(self) -> float | None:
        """What that cost; None if nobody says."""
        return self._cost if self.known and self._tariff.power is not None else None

    @property
    def carbon_kg(self) -> float | None:
        """What that stands for; None if nobody says."""
        return self._carbon_g / 1000 if self.known and self._tariff.carbon is not None else None

    def read(self, pods: Iterable[Pod], *, now_s: float) -> None:
        """Read all workers' meters."""
        if not self.known:
            return
        self.watts = sum(self._of(pod, now_s) for pod in pods)

    def gone(self, pod: Pod, *, now_s: float) -> None:
        """Read a worker's meter for the last time."""
        if self.known:
            self._of(pod, now_s)
            self._readings.pop(pod.name, None)

    def _of(self, pod: Pod, now_s: float) -> float:
        """Count what a worker drew since it was read last; return the watts."""
        if pod.placed_s is None:
            return 0.0
        reading = self._readings.get(pod.name)
        if reading is None:
            reading = self._readings[pod.name] = _Reading(pod.placed_s)
        passed_s = now_s - reading.at_s
        if passed_s <= 0:
            return 0.0
        prefilled_s, decoded_s = pod.runner.busy_s()
        watts = self._powers[pod.pool.name].watts(
            prefill_load=(prefilled_s - reading.prefilled_s) / passed_s,
            decode_load=(decoded_s - reading.decoded_s) / passed_s,
        )
        energy_j = watts * passed_s
        self._energy_j += energy_j
        tariff, kwh_per_s = self._tariff, energy_j / _J_PER_KWH / passed_s
        if tariff.power is not None:
            self._cost += kwh_per_s * tariff.power.over(reading.at_s, now_s)
        if tariff.carbon is not None:
            self._carbon_g += kwh_per_s * tariff.carbon.over(reading.at_s, now_s)
        reading.at_s, reading.prefilled_s, reading.decoded_s = now_s, prefilled_s, decoded_s
        return watts
