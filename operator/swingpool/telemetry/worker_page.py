"""Reads a worker's metrics page, for whoever asks a worker: never more of it than any worker tells."""

import aiohttp

MOST_BYTES = 4 * 1024 * 1024
"""Longest text that is read."""


async def read(response: aiohttp.ClientResponse) -> str | None:
    """Return the page, cut where it is too long; None if the worker did not answer with one.

    Raises:
        aiohttp.ClientError: it broke off.
    """
    if response.status != 200:
        return None
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            break
    return b"".join(parts).decode("utf-8", errors="replace")
