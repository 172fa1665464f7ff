"""What the status tells of flips: each from its decision to the first request that was served in the new role."""

from swingpool_control.api.status import FlipRecord
from swingpool_control.swing.flip import Flip
from swingpool_control.timestamps import rfc3339, unix_seconds
from swingpool_control.view import WorkerView

MAX_RECORDS = 20
"""As many as the status holds."""

MAX_REMEMBERED = 500
"""As many as the loop remembers, so that many workers may flip at once."""

IN_PROGRESS = "InProgress"
SERVING = "Serving"
ABORTED = "Aborted"
WORKER_LOST = "WorkerLost"


def of(worker: WorkerView, flip: Flip) -> FlipRecord:
    """Return the record of a flip that was just decided, or is found on a pod."""
    return FlipRecord(
        worker=worker.pod,
        from_=flip.from_role,
        to=flip.to_role,
        decided_at=rfc3339(flip.decided_unix_s),
        outcome=IN_PROGRESS,
        reason=flip.reason,
    )


def finished(record: FlipRecord, outcome: str, *, serving_unix_s: float | None = None) -> FlipRecord:
    """Return the record of a flip that has ended."""
    serving_at = None if serving_unix_s is None else rfc3339(serving_unix_s)
    return record.model_copy(update={"outcome": outcome, "serving_at": serving_at})


def same(one: FlipRecord, two: FlipRecord) -> bool:
    """Tell whether two records are of one flip."""
    return one.worker == two.worker and one.decided_at == two.decided_at


def find(records: tuple[FlipRecord, ...], record: FlipRecord) -> FlipRecord | None:
    """Return the record of the same flip, or None."""
    return next((known for known in records if same(known, record)), None)


def put(records: tuple[FlipRecord, ...], record: FlipRecord) -> tuple[FlipRecord, ...]:
    """Return the records with one more, or with the one of the same flip replaced."""
    if find(records, record) is None:
        return (record, *records)
    return tuple(record if same(known, record) else known for known in records)


def newest(records: tuple[FlipRecord, ...]) -> tuple[FlipRecord, ...]:
    """Return the newest records, newest first, as many as the status holds."""
    return remembered(records)[:MAX_RECORDS]


def remembered(records: tuple[FlipRecord, ...]) -> tuple[FlipRecord, ...]:
    """Return the records that the loop remembers, newest first."""
    return tuple(sorted(records, key=lambda record: (record.decided_at, record.worker), reverse=True)[:MAX_REMEMBERED])


def decided_unix_s(record: FlipRecord) -> float:
    """Return when a flip was decided."""
    return unix_seconds(record.decided_at)


def last_change_unix_s(records: tuple[FlipRecord, ...], worker: WorkerView) -> float:
    """Return when a worker's role changed last by a flip; minus infinity if none is known."""
    times = [decided_unix_s(record) for record in records if record.worker == worker.pod]
    return max(times, default=float("-inf"))
