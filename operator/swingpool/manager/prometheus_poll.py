"""Reads the load of workers before an external router from Prometheus, where the manager cannot reach the workers.

What Prometheus scraped of a worker is put together again to the page that it scraped, and then goes the way of a page
that the manager read itself. Its time is the scrape's: figures count once for each scrape, and old ones as silence.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from swingpool.kube.objects import Object
from swingpool.manager.external_traffic import SILENT_AFTER_S, WINDOW_S, Asked, ExternalTraffic
from swingpool.manager.store import Key
from swingpool.manager.worker_poll import asked_of, workers_of
from swingpool.telemetry.prometheus import Prometheus, PrometheusError, Series, selector
from swingpool.telemetry.vllm_page import SERIES_NAMES, WorkerFigures, parse
from swingpool_control.api.router import PrometheusSeries
from swingpool_control.figures import Unknown
from swingpool_control.observation import RouterObservation
from swingpool_control.vllm.metrics import names_of

PICKER = "prometheus"
EVERY_S = 2.0
"""How often it is asked: a scrape is seen soon after it was made, and a round of the swing loop needs no question."""
SCRAPES = 4.0
"""Scrapes that a window of rates covers at the least."""
MISSED = 2.5
"""Scrape intervals after which a worker counts as silent."""
LOOK_BACK = "3m"
"""In which scrapes are looked for: their times tell how often there are some."""
SAME = 1.1
"""Times the present window up to which another scrape interval changes nothing; down to half of it, neither."""
SILENCE = "Prometheus has no recent scrape of it"
NO_SERVER = "the manager was started without --prometheus-url (Helm value prometheus.url)"


@dataclass(slots=True)
class _Cluster:
    traffic: ExternalTraffic
    asked_at: float | None = None
    newest_unix_s: float = -math.inf
    trouble: str = ""


class PrometheusPoll:
    """Asks for the series of clusters' workers.

    Args:
        prometheus: the server; None if the manager was given none.
        monotonic: a clock in seconds that never goes back.
        now_unix_s: the wall clock.
    """

    def __init__(
        self, prometheus: Prometheus | None, *, monotonic: Callable[[], float], now_unix_s: Callable[[], float]
    ) -> None:
        self._prometheus = prometheus
        self._monotonic = monotonic
        self._now_unix_s = now_unix_s
        self._clusters: dict[Key, _Cluster] = {}

    async def close(self) -> None:
        """Close the connections."""
        if self._prometheus:
            await self._prometheus.close()

    def forget(self, key: Key) -> None:
        """Drop the memory of a cluster."""
        self._clusters.pop(key, None)

    async def observe(self, key: Key, pods: Sequence[Object], of: PrometheusSeries) -> RouterObservation:
        """Return what Prometheus has of a cluster's workers; what it has not, or not any more, is unknown.

        Args:
            key: the cluster.
            pods: its pods; those that are no workers are left out.
            of: which series are the cluster's.
        """
        known = self._clusters.setdefault(key, _Cluster(ExternalTraffic(picker=PICKER, silence=SILENCE)))
        now_unix_s = self._now_unix_s()
        if known.asked_at is None or self._monotonic() - known.asked_at >= EVERY_S:
            try:
                known.trouble = ""
                await self._look(key, known, workers_of(pods), of, now_unix_s)
            except PrometheusError as error:
                known.trouble = str(error)
            known.asked_at = self._monotonic()
        seen = known.traffic.observation(now_unix_s=now_unix_s)
        if math.isfinite(known.newest_unix_s):
            seen = replace(seen, at_unix_s=known.newest_unix_s)
        return _unknown(seen, known.trouble) if known.trouble else seen

    async def _look(
        self, key: Key, known: _Cluster, pods: Sequence[Object], of: PrometheusSeries, now_unix_s: float
    ) -> None:
        if self._prometheus is None:
            raise PrometheusError(NO_SERVER)
        asked = [asked_of(pod) for pod in pods]
        if not asked:
            known.traffic.saw((), now_unix_s=now_unix_s)
            return
        labels = {one.name: one.value for one in of.labels} | {of.namespace_label: key.namespace}
        these = {of.pod_label: [one.pod for one in asked]}
        running = names_of("running")[0]
        scrapes = await self._prometheus.query(
            f"{selector({'__name__': running, **labels}, these)}[{LOOK_BACK}]", at_unix_s=now_unix_s
        )
        times = _times(scrapes, of.pod_label)
        if not times:
            raise PrometheusError(
                f"Prometheus has no series {running} with the labels {_told(labels)} and a worker of this cluster as "
                f"{of.pod_label}: see router.external.metrics.prometheus, and whether it scrapes the workers"
            )
        known.traffic = _fitting(known.traffic, times)
        series = await self._prometheus.query(
            selector(labels, {"__name__": SERIES_NAMES, **these}), at_unix_s=now_unix_s
        )
        pages = _pages(series, of.pod_label)
        newest = max((found[-1] for found in times.values()), default=-math.inf)
        if newest <= known.newest_unix_s:
            known.traffic.look(now_unix_s=now_unix_s)
            return
        known.newest_unix_s = newest
        known.traffic.saw([_with_page(one, pages, times) for one in asked], now_unix_s=now_unix_s)


def _with_page(asked: Asked, pages: Mapping[str, str], times: Mapping[str, Sequence[float]]) -> Asked:
    figures: WorkerFigures | None = None
    if asked.pod in pages and asked.pod in times:
        figures = parse(pages[asked.pod], now_unix_s=times[asked.pod][-1])
    return replace(asked, figures=figures)


def _times(scrapes: Sequence[Series], pod_label: str) -> dict[str, list[float]]:
    """Return when each pod was scraped."""
    found: dict[str, set[float]] = {}
    for one in scrapes:
        found.setdefault(one.labels.get(pod_label, ""), set()).update(at for at, _ in one.samples)
    return {pod: sorted(times) for pod, times in found.items() if times}


def _pages(series: Sequence[Series], pod_label: str) -> dict[str, str]:
    """Return each pod's page, as far as it was asked for."""
    lines: dict[str, list[str]] = {}
    for one in series:
        labels = ",".join(f"{name}={json.dumps(value)}" for name, value in one.labels.items() if name != "__name__")
        line = f"{one.labels.get('__name__', '')}{{{labels}}} {one.samples[-1][1]}"
        lines.setdefault(one.labels.get(pod_label, ""), []).append(line)
    return {pod: "\n".join(found) for pod, found in lines.items()}


def _fitting(traffic: ExternalTraffic, times: Mapping[str, Sequence[float]]) -> ExternalTraffic:
    """Return traffic with a window that fits how often workers are scraped: the same if it does, else a new one."""
    gaps = [later - before for found in times.values() for before, later in pairwise(found)]
    interval_s = median(gaps) if gaps else 0.0
    window_s = max(WINDOW_S, SCRAPES * interval_s)
    if traffic.window_s / 2 <= window_s <= traffic.window_s * SAME:
        return traffic
    silent_after_s = max(SILENT_AFTER_S, MISSED * interval_s)
    return ExternalTraffic(window_s=window_s, silent_after_s=silent_after_s, picker=PICKER, silence=SILENCE)


def _unknown(seen: RouterObservation, why: str) -> RouterObservation:
    """Return an observation of which the traffic is unknown."""
    no = Unknown(why)
    return replace(seen, requests_per_s=no, prompt_tokens_per_s=no, arrived_requests=no, arrived_prompt_tokens=no)


def _told(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in labels.items())
