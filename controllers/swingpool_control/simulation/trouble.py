"""What happens to workers beside their work: they crash, hang, become slow, or tell no figures any more."""

import math
from collections.abc import Callable
from functools import partial

from swingpool_control.simulation.events import Timeline
from swingpool_control.simulation.pods import Pod, Pods
from swingpool_control.simulation.settings import Settings
from swingpool_control.simulation.traffic import Randomness


class Trouble:
    """Draws when it happens, and lets it happen.

    Args:
        timeline: the clock.
        settings: how often, and for how long.
        random: seeded generator of these times alone.
        pods: what it happens to.
        changed: told of each worker that begins to hang or answers again.
    """

    def __init__(
        self,
        timeline: Timeline,
        settings: Settings,
        random: Randomness,
        pods: Pods,
        *,
        changed: Callable[[Pod], None],
    ) -> None:
        failures = settings.failures
        self._timeline = timeline
        self._failures = failures
        self._notice_s = settings.latencies.probe_s
        self._random = random
        self._pods = pods
        self._changed = changed
        self._drawn: dict[str, int] = {}
        self.crashes = 0
        kinds = (
            (failures.crashes_per_worker_hour, self._crash),
            (failures.hangs_per_worker_hour, self._hang),
            (failures.slow_per_worker_hour, self._slow),
            (failures.silences_per_worker_hour, self._silence),
        )
        self._kinds = [(rate / 3600, strike) for rate, strike in kinds if rate > 0]

    def began(self, pod: Pod) -> None:
        """Draw for a worker that is ready; changes of its role draw nothing."""
        if not self._kinds or self._drawn.get(pod.name) == pod.restarts:
            return
        self._drawn[pod.name] = pod.restarts
        for rate, strike in self._kinds:
            self._later(rate, strike, pod)

    def _later(self, rate: float, strike: Callable[[Pod], float], pod: Pod) -> None:
        lives_s = -math.log(1.0 - self._random.random()) / rate
        self._timeline.after(lives_s, partial(self._strike, rate, strike, pod, pod.restarts))

    def _strike(self, rate: float, strike: Callable[[Pod], float], pod: Pod, restarts: int) -> None:
        if not self._same(pod, restarts):
            return
        lasts_s = strike(pod)
        if self._same(pod, restarts):
            self._timeline.after(lasts_s, partial(self._recover, rate, strike, pod, restarts))

    def _recover(self, rate: float, strike: Callable[[Pod], float], pod: Pod, restarts: int) -> None:
        if self._same(pod, restarts):
            self._later(rate, strike, pod)

    def _same(self, pod: Pod, restarts: int) -> bool:
        """Whether the process is the one that it was drawn for."""
        return pod.restarts == restarts and pod.name in self._pods.pods

    def _crash(self, pod: Pod) -> float:
        self.crashes += 1
        self._pods.crash(pod)
        return 0.0

    def _hang(self, pod: Pod) -> float:
        lasts_s = self._failures.hang_s
        pod.runner.hang(lasts_s)
        pod.hangs_until_s = self._timeline.now_s + lasts_s
        for later_s in (self._notice_s, lasts_s):
            self._timeline.after(later_s, partial(self._changed, pod))
        return lasts_s

    def _slow(self, pod: Pod) -> float:
        lasts_s = self._failures.slow_s
        pod.runner.slow(self._failures.slowness)
        self._timeline.after(lasts_s, partial(pod.runner.slow, 1.0))
        return lasts_s

    def _silence(self, pod: Pod) -> float:
        lasts_s = self._failures.silence_s
        pod.silent_until_s = self._timeline.now_s + lasts_s
        return lasts_s
