"""The picture of a cluster again and again, until somebody has seen enough."""

import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live

from swingpool.explain.fetch import FetchError
from swingpool.top.screen import Shown, picture
from swingpool_control.replay.codec import CodecError
from swingpool_control.replay.decision import Decision, read

KEPT = 32
"""Decisions that are remembered for the list of the last ones."""

Fetch = Callable[[int | None], Any]
"""From how many decisions of each loop are wanted (None: all) to what the manager wrote."""


class Watched:
    """What was fetched so far."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._decisions: tuple[Decision, ...] = ()

    def look(self) -> Shown:
        """Fetch the newest, and remember what came before.

        Raises:
            FetchError: the manager could not be asked, or has decided nothing yet.
            CodecError: its answer cannot be read.
        """
        fresh = read(self._fetch(1 if self._decisions else None)).decisions
        if not fresh:
            raise FetchError("the manager has decided nothing about this cluster yet")
        # A decision that is made again every few seconds is one line, of its last time.
        known = {(one.loop, one.result.summary): one for one in (*self._decisions, *fresh)}
        ordered = sorted(known.values(), key=lambda one: one.now_unix_s)
        self._decisions = tuple(ordered[-KEPT:])
        last = max(fresh, key=lambda one: one.now_unix_s)
        return Shown(view=last.view, seen_unix_s=last.now_unix_s, decisions=self._decisions)


def watch(fetch: Fetch, console: Console, *, every_s: float) -> None:
    """Show the picture every `every_s` seconds until Ctrl-C; what cannot be fetched is said and tried again.

    Raises:
        FetchError: not even the first picture could be had.
        CodecError: the first answer cannot be read.
    """
    watched = Watched(fetch)
    shown, trouble = watched.look(), ""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(picture(shown, now_unix_s=time.time(), trouble=trouble), refresh=True)
            time.sleep(every_s)
            try:
                shown, trouble = watched.look(), ""
            except (FetchError, CodecError) as error:
                trouble = f"{error}; trying again"


def once(fetch: Fetch, console: Console) -> None:
    """Print one picture.

    Raises:
        FetchError: it could not be had.
        CodecError: the answer cannot be read.
    """
    console.print(picture(Watched(fetch).look(), now_unix_s=time.time()))
