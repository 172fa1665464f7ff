"""What caches that never forget would save of a trace's prompts: all that any placement could."""

from collections.abc import Iterable, Iterator

from swingpool_control.simulation.traffic import Arrival


def cached_tokens(requests: Iterable[Arrival]) -> Iterator[int]:
    """Yield how many tokens of each prompt have been computed before, by whoever; the last one never counts."""
    seen: set[int] = set()
    for one in requests:
        known = 0
        for block in one.prefix:
            if block not in seen:
                break
            known += 1
        seen.update(one.prefix)
        yield min(known * one.prefix_tokens, one.prompt_tokens - 1)
