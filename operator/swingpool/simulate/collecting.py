"""Long simulations make millions of objects and no cycles: Python's collector would look for some again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

AFTER_OBJECTS = 500_000


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Let the cyclic collector run seldom, and pass over what exists already, until the block is left."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(AFTER_OBJECTS, before[1], before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
