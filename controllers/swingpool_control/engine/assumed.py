"""What profiles assume of a worker that nobody measured; each says in words which of these it stands on."""

from typing import Final

LINK_BYTES_PER_S: Final = 1.25e10
"""What a worker receives of KV cache: 100 Gbit/s."""
LINK_LATENCY_S: Final = 0.005
"""Of a transfer, whatever its size."""
STARTUP_S: Final = 120.0
"""From a pod's creation to its first served request."""
