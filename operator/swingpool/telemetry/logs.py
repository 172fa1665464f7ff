"""Logs of every process: one JSON object a line, or text for a person at a terminal.

Whatever is logged while a cluster is being worked on carries its name, without being told to: it stands in a context
variable that the logging filter reads.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TextIO

from pythonjsonlogger.json import JsonFormatter

LogFormat = Literal["auto", "json", "text"]
"""`auto` is text on a terminal and JSON elsewhere."""

LogLevel = Literal["debug", "info", "warning", "error"]

_cluster: ContextVar[str] = ContextVar("swingpool_cluster", default="")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "cluster", "color_message"}
_TALKATIVE = ("httpx", "httpx2", "httpcore", "aiohttp.access", "kopf", "asyncio")


@contextmanager
def about_cluster(namespace: str, name: str) -> Iterator[None]:
    """Name a cluster in every line that is logged within."""
    token = _cluster.set(f"{namespace}/{name}")
    try:
        yield
    finally:
        _cluster.reset(token)


def configure(log_format: LogFormat = "auto", *, level: LogLevel = "info", stream: TextIO | None = None) -> None:
    """Set up the root logger; what was set up before is replaced.

    Args:
        log_format: see `LogFormat`.
        level: least level that is logged; libraries that talk much log warnings and worse, unless it is `debug`.
        stream: where to; default: standard error.
    """
    stream = stream or sys.stderr
    text = log_format == "text" or (log_format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.addFilter(_add_cluster)
    handler.setFormatter(_TextFormatter() if text else _json_formatter())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel("DEBUG" if level == "debug" else "WARNING")


def _add_cluster(record: logging.LogRecord) -> bool:
    if not hasattr(record, "cluster") and _cluster.get():
        record.cluster = _cluster.get()
    return True


def _json_formatter() -> logging.Formatter:
    return JsonFormatter(
        ["levelname", "name", "message"],
        rename_fields={"levelname": "level", "name": "logger"},
        timestamp="time",
        reserved_attrs=[*_STANDARD - {"cluster"}],
    )


class _TextFormatter(logging.Formatter):
    """Time, level, cluster, message, and the further fields as `key=value`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line without a traceback."""
        cluster = f"[{record.cluster}] " if hasattr(record, "cluster") else ""
        more = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        fields = "".join(f" {key}={value}" for key, value in more.items())
        return f"{self.formatTime(record, self.datefmt)} {record.levelname:7} {cluster}{record.message}{fields}"
