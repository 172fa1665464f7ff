"""Reading JSON from an address within the cluster."""

import json
import urllib.request
from typing import Any


def get_json(url: str, *, timeout_s: float = 3.0) -> Any:
    """Return the JSON that an address answers. Raises OSError if it does not answer with success."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=timeout_s) as answer:
        return json.load(answer)
