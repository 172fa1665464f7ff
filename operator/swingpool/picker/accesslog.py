"""Envoy's access log, streamed to the picker: first tokens while requests run, and how they ended."""

import logging
from functools import lru_cache

from envoy.data.accesslog.v3.accesslog_pb2 import (
    AccessLogCommon,
    AccessLogType,
    HTTPAccessLogEntry,
    ResponseFlags,
)
from envoy.service.accesslog.v3.als_pb2 import StreamAccessLogsMessage, StreamAccessLogsResponse
from google.protobuf.message import DecodeError

from swingpool.picker.accesslog_text import without_texts
from swingpool.picker.request_log import RequestLog
from swingpool.picker.requests import Generation, Generations
from swingpool.picker.rpc import Call
from swingpool.picker.traffic import Traffic
from swingpool_control.figures import Unknown
from swingpool_control.resources.envoy import TAG_FIRST_BODY_US

log = logging.getLogger(__name__)

STREAM = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"

_PERIODIC = AccessLogType.DownstreamPeriodic
_NOTHING = StreamAccessLogsResponse().SerializeToString()


class LogStream:
    """One Envoy's entries, for as long as it is connected."""

    def __init__(self, log: "AccessLog", call: Call) -> None:
        self._log = log
        self._call = call

    def message(self, data: bytes) -> None:
        """Take entries."""
        self._log.message(data)

    def ended(self) -> None:
        """End the call: no further entries come."""
        self._call.send(_NOTHING)
        self._call.end()

    def gone(self) -> None:
        """What was under way is heard of by the next stream, or is forgotten after a while."""
        self._log.broke_off()


class AccessLog:
    """Reads entries; tells the requests' accounting, the traffic's figures, and the request log if there is one."""

    def __init__(self, generations: Generations, traffic: Traffic, request_log: RequestLog | None = None) -> None:
        self._generations = generations
        self._traffic = traffic
        self._request_log = request_log

    def message(self, data: bytes) -> None:
        """Take a message of entries, serialised."""
        for entry in _read(data).http_logs.log_entry:
            self.entry(entry)

    def broke_off(self) -> None:
        """Take note that a stream of entries ended without being told to."""
        self._generations.unheard()

    def entry(self, entry: HTTPAccessLogEntry) -> None:
        """Take one entry: of a request that goes on, or of one that ended."""
        common = entry.common_properties
        upstream = _upstream(common)
        generation = self._generations.find(entry.request.request_id, upstream)
        ended = common.access_log_type != _PERIODIC
        if generation is not None and not generation.first_token_seen:
            first_body_us = common.custom_tags.get(TAG_FIRST_BODY_US, "-")
            if first_body_us.isdecimal():
                self._first_token(generation, int(first_body_us) / 1e6, status=entry.response.response_code.value)
        if ended:
            self._ended(entry, generation, upstream)

    def _first_token(self, generation: Generation, after_s: float, *, status: int) -> None:
        generation.first_token_seen = True
        generation.fetched()
        if status != 200:
            return
        at_unix_s = generation.entry.arrived_unix_s + after_s
        generation.worker.first_token(epoch=generation.epoch, at_unix_s=at_unix_s)
        generation.entry.first_token_unix_s = at_unix_s
        if generation.stream:
            self._traffic.first_token(after_s)
            foreseen_s = generation.entry.predicted_first_token_s
            if foreseen_s is not None and foreseen_s > 0:
                self._traffic.metrics.ttft_off.observe(after_s / foreseen_s)

    def _ended(self, entry: HTTPAccessLogEntry, generation: Generation | None, upstream: str) -> None:
        common, status = entry.common_properties, entry.response.response_code.value
        metrics = self._traffic.metrics
        metrics.requests.labels(str(status)).inc()
        duration_s = common.duration.seconds + common.duration.nanos / 1e9
        metrics.duration.observe(duration_s)
        if common.upstream_request_attempt_count > 1:
            metrics.decode_retries.inc(common.upstream_request_attempt_count - 1)
        reason = _failure(common, status)
        if reason:
            metrics.errors.labels(reason).inc()
        if generation is None:
            return
        left = reason == "client_disconnect" or not upstream
        if left and generation.release is not None and not generation.first_token_seen:
            generation.release()
        handed_over_s = generation.sent_unix_s - generation.entry.arrived_unix_s
        metrics.decode_legs.observe(max(0.0, duration_s - handed_over_s))
        if self._request_log is not None and generation.note is not None:
            first_us = common.custom_tags.get(TAG_FIRST_BODY_US, "-")
            self._request_log.ended(
                generation.note,
                status=status,
                body_bytes=entry.response.response_body_bytes,
                rate=self._traffic.token_rate,
                duration_s=duration_s,
                ttft_s=int(first_us) / 1e6 if generation.stream and first_us.isdecimal() else None,
                worker=upstream,
            )
        served = status == 200 and not reason
        generation.entry.ended(status, reason, at_unix_s=generation.entry.arrived_unix_s + duration_s)
        if served and not generation.stream:
            self._unstreamed(generation, handed_over_s)
        self._generations.ended(generation, served=served)

    def _unstreamed(self, generation: Generation, handed_over_s: float) -> None:
        """Count a first token that no client saw apart: the prefill leg, then what first tokens take on the worker."""
        mean_s = generation.worker.mean_ttft_s
        if not isinstance(mean_s, Unknown):
            self._traffic.first_token(handed_over_s + mean_s)


def _read(data: bytes) -> StreamAccessLogsMessage:
    """Read a message; one that cannot be read is empty, since the stream of all others depends on it."""
    try:
        return StreamAccessLogsMessage.FromString(data)
    except DecodeError:
        pass  # most likely a client's path that is no UTF-8
    try:
        return StreamAccessLogsMessage.FromString(without_texts(data))
    except (DecodeError, ValueError):
        log.warning("Envoy told of requests in a way that cannot be read; they are forgotten after a while")
        return StreamAccessLogsMessage()


def _upstream(common: AccessLogCommon) -> str:
    address = common.upstream_remote_address.socket_address
    return _named(address.address, address.port_value)


@lru_cache(maxsize=10_000)
def _named(host: str, port: int) -> str:
    if not host:
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _failure(common: AccessLogCommon, status: int) -> str:
    """Return in a word why a request ended badly; empty if it did not, or if a worker only refused it."""
    flags = common.response_flags
    if flags.ByteSize() and (said := _flagged(flags)):
        return said
    return "worker_error" if status >= 500 and common.upstream_request_attempt_count else ""


def _flagged(flags: ResponseFlags) -> str:
    if flags.downstream_connection_termination or flags.downstream_remote_reset:
        return "client_disconnect"
    if flags.upstream_connection_termination or flags.upstream_remote_reset:
        return "worker_broke_off"
    if flags.upstream_connection_failure or flags.no_healthy_upstream or flags.upstream_retry_limit_exceeded:
        return "worker_unreachable"
    if flags.stream_idle_timeout or flags.upstream_request_timeout or flags.duration_timeout:
        return "timeout"
    return ""
