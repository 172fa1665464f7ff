"""Answers of the prefill leg's HTTP, as tests compare them."""

from swingpool.picker.wire import Response


def said(response: Response) -> tuple[int, str, bytes]:
    """Return status, content type and body."""
    return response.status, response.content_type, response.body
