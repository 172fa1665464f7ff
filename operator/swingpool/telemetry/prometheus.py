"""Asks a Prometheus server, by its HTTP API, for series as they were scraped.

Only what was scraped is asked for, never a rate or a quantile: growth, restarts, gaps and missing series are judged
where workers' own pages are, by the same code.
"""

import asyncio
import json
import math
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

TIMEOUT_S = 4.0
MOST_BYTES = 64 * 1024 * 1024
"""Longest answer that is read."""


class PrometheusError(Exception):
    """Prometheus gave no usable answer; says why, and what to look at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a Prometheus is, and how it knows us."""

    url: str
    """Without the `/api/v1` part."""
    token_file: Path | None = None
    """Holds a bearer token; read anew for each question, since tokens are renewed."""
    ca_file: Path | None = None
    """Certificates to trust instead of the system's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series and its samples."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]
    """Times, seconds since 1970, and values, oldest first; values may be NaN or infinite, as they were scraped."""


class Prometheus:
    """Asks one server.

    Args:
        address: the server.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session:
            await self._session.close()

    async def query(self, expression: str, *, at_unix_s: float) -> tuple[Series, ...]:
        """Return the series of an expression at a moment: instant vectors with one sample, ranges with several.

        Raises:
            PrometheusError: no usable answer.
        """
        where = f"Prometheus at {self.address.url}"
        try:
            status, text = await self._post({"query": expression, "time": f"{at_unix_s:.3f}"})
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise PrometheusError(f"{where} does not answer: {error or type(error).__name__}") from error
        if status in (401, 403):
            raise PrometheusError(f"{where} refuses us with status {status}: see the manager's --prometheus-token-file")
        try:
            answer = json.loads(text)
            if answer["status"] != "success":
                raise PrometheusError(f"{where} refuses the question: {answer.get('error', 'it does not say why')}")
            return tuple(_series(one) for one in answer["data"]["result"])
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise PrometheusError(f"{where} answers with status {status} and no result of a query") from error

    async def _post(self, form: Mapping[str, str]) -> tuple[int, str]:
        if self._session is None:
            trusted = await asyncio.to_thread(self._trusted)
            timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
            self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(ssl=trusted))
        headers = {}
        if self.address.token_file is not None:
            token = await asyncio.to_thread(self.address.token_file.read_text)
            headers["Authorization"] = f"Bearer {token.strip()}"
        url = f"{self.address.url.rstrip('/')}/api/v1/query"
        async with self._session.post(url, data=form, headers=headers, allow_redirects=False) as response:
            body = await response.content.read(MOST_BYTES)
            while len(body) < MOST_BYTES and (more := await response.content.read(MOST_BYTES - len(body))):
                body += more
            return response.status, body.decode("utf-8", errors="replace")

    def _trusted(self) -> ssl.SSLContext | bool:
        """What certificates are checked by; True: the system's."""
        if self.address.ca_file is None:
            return True
        return ssl.create_default_context(cafile=str(self.address.ca_file))


def selector(labels: Mapping[str, str], any_of: Mapping[str, Sequence[str]]) -> str:
    """Return a series selector.

    Args:
        labels: values that labels must have.
        any_of: values of which a label must have one.
    """
    same = [f"{name}={_quoted(value)}" for name, value in labels.items()]
    one_of = [f"{name}=~{_quoted('|'.join(_literal(value) for value in values))}" for name, values in any_of.items()]
    return "{" + ",".join((*same, *one_of)) + "}"


def _series(one: Mapping[str, Any]) -> Series:
    pairs = one["values"] if "values" in one else [one["value"]]
    samples = tuple((float(at), _number(value)) for at, value in pairs)
    return Series(labels={str(name): str(value) for name, value in one["metric"].items()}, samples=samples)


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return math.nan


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _literal(value: str) -> str:
    """Return a pattern that matches just a value."""
    return "".join(f"\\{one}" if one in r"\.+*?()|[]{}^$" else one for one in value)
