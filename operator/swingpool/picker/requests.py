"""Requests from arrival to end: where each was sent, and what the access log told of it.

The access log is the only witness of a request's later life, since its tokens never pass here: Envoy tells of each
request each second until some of its answer has come, then now and then, and of its end. A request of which nothing is
heard any more (Envoy was killed) is forgotten.
"""

import time
from collections.abc import Callable

from swingpool.picker.fleet import Fleet
from swingpool.picker.journal import Entry
from swingpool.picker.request_log import Note
from swingpool.picker.worker import Worker

FORGET_AFTER_S = 120.0
"""A request that Envoy has not told of for so long has ended: of a long one it tells every ten seconds, at random."""

FORGET_SOON_S = 15.0
"""The same once a stream of entries broke off, as all of them do when Envoy is killed."""

RELEASE_WITHIN_S = 2.0
"""A worker that was sent a request longer ago has begun with it, and frees by itself what it does not need any more."""

_LOOK_EVERY_S = 1.0


class Generation:
    """One request that a worker generates for, from the moment when it is sent there.

    Args:
        request_id: of the request.
        worker: where to.
        context_tokens: its prompt's.
        stream: whether its answer comes token by token.
        entry: its place in the journal.
        moved_s: predicted seconds in which its KV cache comes there; 0 if none does.
        release: frees the KV cache that waits for it, should its client leave before a worker has surely begun with it.
        note: for the request log, if there is one.
    """

    __slots__ = (
        "context_tokens",
        "entry",
        "epoch",
        "first_token_seen",
        "moved_s",
        "note",
        "release",
        "request_id",
        "sent_unix_s",
        "stream",
        "told_s",
        "worker",
    )

    def __init__(
        self,
        request_id: str,
        worker: Worker,
        *,
        context_tokens: int,
        stream: bool,
        entry: Entry,
        moved_s: float,
        release: Callable[[], None] | None,
        note: Note | None,
    ) -> None:
        self.request_id = request_id
        self.worker = worker
        self.epoch = worker.epoch
        """The worker's role epoch when the request was sent."""
        self.context_tokens = context_tokens
        self.stream = stream
        self.entry = entry
        self.sent_unix_s = time.time()
        self.told_s = time.monotonic()
        """When Envoy last told of it, or it was sent."""
        self.moved_s = moved_s
        """0 once its KV cache has come."""
        self.first_token_seen = False
        self.release = release
        self.note = note

    def fetched(self) -> None:
        """Account for the end of its transfer: its first token is there, or never will be."""
        self.worker.account.transfer_ended(self.moved_s)
        self.moved_s = 0.0


class Generations:
    """Requests under way, by request id; a client may use one id twice at a time."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._by_id: dict[str, list[Generation]] = {}
        self._looked_s = 0.0

    def sent(
        self,
        request_id: str,
        worker: Worker,
        *,
        context_tokens: int,
        stream: bool,
        entry: Entry,
        moved_s: float = 0.0,
        release: Callable[[], None] | None = None,
        note: Note | None = None,
    ) -> None:
        """Follow a request that was just sent to a worker, and is accounted for there."""
        generation = Generation(
            request_id,
            worker,
            context_tokens=context_tokens,
            stream=stream,
            entry=entry,
            moved_s=moved_s,
            release=release,
            note=note,
        )
        if entry.predicted_prompt_s is not None:
            entry.predicted_first_token_s = entry.predicted_prompt_s + moved_s + worker.account.step_s
        worker.sent_in_epoch += 1
        self._by_id.setdefault(request_id, []).append(generation)

    def find(self, request_id: str, address: str) -> Generation | None:
        """Return the request of this id, on the worker that Envoy says it is on: after a retry, that is another one."""
        alike = self._by_id.get(request_id)
        if not alike:
            return None
        generation = next((one for one in alike if one.worker.member.address == address), alike[0])
        generation.told_s = time.monotonic()
        if address and time.time() - generation.sent_unix_s > RELEASE_WITHIN_S:
            generation.release = None
        if generation.worker.member.address != address:
            self._move(generation, address)
        return generation

    def ended(self, generation: Generation, *, served: bool) -> None:
        """Account for a request's end."""
        generation.fetched()
        alike = self._by_id.get(generation.request_id, [])
        if generation in alike:
            alike.remove(generation)
            if not alike:
                del self._by_id[generation.request_id]
            self._fleet.decode_ended(generation.worker, generation.context_tokens, served=served)

    def unheard(self) -> None:
        """Take note that some of the requests may have lost their witness: forget soon whoever is not told of again."""
        latest_s = time.monotonic() - (FORGET_AFTER_S - FORGET_SOON_S)
        for alike in self._by_id.values():
            for one in alike:
                one.told_s = min(one.told_s, latest_s)

    def forget_lost(self, *, now_s: float) -> None:
        """Forget the requests of which nothing is heard any more; call as often as you like."""
        if now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = now_s
            self._forget(lambda one: now_s - one.told_s > FORGET_AFTER_S)

    def forget_gone(self) -> None:
        """Forget the requests of workers that are gone."""
        self._forget(lambda one: self._fleet.get(one.worker.member.address) is not one.worker)

    def _forget(self, lost: Callable[[Generation], bool]) -> None:
        for generation in [one for alike in self._by_id.values() for one in alike if lost(one)]:
            self.ended(generation, served=False)

    def _move(self, generation: Generation, address: str) -> None:
        worker = self._fleet.get(address) if address else None
        if worker is None:
            return
        generation.fetched()
        self._fleet.decode_moved(generation.worker, worker, generation.context_tokens)
        generation.entry.step(f"asked of {worker.member.pod} instead")
        if generation.entry.trace is not None:
            generation.entry.trace.worker = worker.member.pod
        # What Envoy sent by itself was sent in the role that the worker has now, as nearly as anyone can tell.
        generation.worker, generation.epoch = worker, worker.epoch
