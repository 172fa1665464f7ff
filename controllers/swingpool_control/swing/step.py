"""One step of the swing loop: put right, move on what is under way, rescue, decide."""

from collections.abc import Mapping
from dataclasses import replace

from swingpool_control import names
from swingpool_control.actions import Action, EmitEvent, SetLimits
from swingpool_control.api.status import FlipRecord
from swingpool_control.api.v1alpha1 import RouterType, ScalingMode
from swingpool_control.figures import Unknown
from swingpool_control.placement.of_spec import default_limits
from swingpool_control.swing import flip, idle, mixed, policy, protocol, records, rescue, rollout
from swingpool_control.swing.guards import is_ready, may_leave, observed, serving, without
from swingpool_control.swing.memory import PendingPatch, SwingMemory, SwingResult
from swingpool_control.swing.repair import repair
from swingpool_control.swing.roles import Move
from swingpool_control.view import ClusterView, WorkerView

PENDING_S = 15.0
"""How long a write may stay unseen before it counts as lost."""


def step(view: ClusterView, memory: SwingMemory, *, now_unix_s: float) -> SwingResult:
    """Decide the roles of all swing workers and move every flip under way on by one step.

    Call it every second or two with the newest view. `SwingMemory()` is the memory to start with; flips under way are
    found on the pods and in `view.status.flips`, so a restarted manager carries on with them. The view must show the
    manager's own writes as soon as they are answered; tell of a write that was refused by `memory.refused(uid)`.

    Args:
        view: the cluster; `view.models` holds the performance model of each pool.
        memory: what the step before returned.
        now_unix_s: the time.
    """
    run = _Step(view, memory, now_unix_s)
    run.repair_roles()
    run.advance_flips()
    run.close_orphans()
    summary = run.decide()
    return SwingResult(
        actions=tuple(run.actions),
        flips=records.newest(run.flips),
        memory=replace(run.memory, flips=records.remembered(run.flips), pending=tuple(run.pending.values())),
        summary=summary,
    )


class _Step:
    """What one step has found and asked for so far."""

    def __init__(self, view: ClusterView, memory: SwingMemory, now_unix_s: float) -> None:
        self.view = view
        self.now_unix_s = now_unix_s
        self.actions: list[Action] = []
        self.flips = _merge(memory.flips, tuple(view.status.flips))
        self.pending = {item.uid: item for item in _still_pending(view, memory.pending, now_unix_s)}
        self.memory, self.blind = policy.remember(view, memory, now_unix_s=now_unix_s)
        draining = {worker.uid for worker in view.workers if flip.parse(worker.flip) is not None}
        self.memory = replace(self.memory, idle=idle.follow(view, memory.idle, uids=draining, now_unix_s=now_unix_s))

    def repair_roles(self) -> None:
        """Put role labels right that nothing explains, but for the last ready worker of the role it has."""
        now = serving(self.view, pending=self.pending)
        for worker in self.view.workers:
            action = None if worker.uid in self.pending else repair(self.view, worker)
            if action is not None and may_leave(worker, now):
                self.actions.append(action)
                role = action.labels.get(names.LABEL_ROLE) or worker.role
                self.pending[worker.uid] = PendingPatch(
                    uid=worker.uid, role=role, target=role, asked_unix_s=self.now_unix_s
                )
                now = without(now, worker)

    def advance_flips(self) -> None:
        """Move every flip that stands on a pod on."""
        for worker in self.view.workers:
            state = flip.parse(worker.flip)
            if state is None or worker.uid in self.pending:
                continue
            known = records.find(self.flips, records.of(worker, state))
            progress = protocol.advance(
                self.view, worker, state, known=self.flips, idle=self.memory.idle, now_unix_s=self.now_unix_s
            )
            self._take(worker, progress)
            if known is not None and known.outcome == records.IN_PROGRESS != progress.record.outcome:
                self._tell_end(progress.record)

    def close_orphans(self) -> None:
        """End the records of flips that stand on no pod any more."""
        workers = {worker.pod: worker for worker in self.view.workers}
        for record in self.flips:
            if record.outcome != records.IN_PROGRESS:
                continue
            closed = self._close(record, workers.get(record.worker))
            if closed.outcome != records.IN_PROGRESS:
                self.flips = records.put(self.flips, closed)
                self._tell_end(closed)

    def decide(self) -> str:
        """Begin new flips; return the step's summary."""
        now = serving(self.view, pending=self.pending)
        self.memory = replace(
            self.memory,
            flips=self.flips,
            pending=tuple(self.pending.values()),
            unserved=rescue.unserved(self.memory.unserved, now, now_unix_s=self.now_unix_s),
        )
        self._outlive_rollouts(now)
        moves = self._rescue(now) or self._succeed(now)
        if not moves:
            proposed = self._propose(now)
            if isinstance(proposed, Unknown):
                return f"hold: {proposed.why}"
            moves = proposed
        if not moves:
            return "hold: both roles have what they need, or no move would help"
        if self.view.spec.scaling.mode is ScalingMode.RECOMMEND:
            return f"recommended only: {self._describe(moves)}"
        return self._begin(moves, now)

    def _propose(self, now: dict[str, frozenset[str]]) -> tuple[Move, ...] | Unknown:
        """Ask for the best split, and act on it once observations have shown enough."""
        if self.blind is not None:
            return self.blind
        self.memory, found = policy.weigh(self.view, self.memory, now, now_unix_s=self.now_unix_s)
        if isinstance(found, Unknown):
            return found
        self._mix(found.loads)
        return policy.moves(self.memory, found.options) or policy.advised(self.memory, found)

    def _mix(self, loads: Mapping[str, float]) -> None:
        """Tell pickers how far they may mix phases, when that changes."""
        spec = self.view.spec
        if spec.scaling.mode is ScalingMode.RECOMMEND or spec.router.type is RouterType.EXTERNAL:
            return
        before = self.memory.limits or default_limits(spec.objectives)
        wanted = mixed.limits(spec, loads, before=before)
        if wanted != before:
            reason = "prefill is short and decode has room" if loads[names.ROLE_PREFILL] >= 1 else "as the spec says"
            self.actions.append(SetLimits(limits=wanted, reason=reason))
            self.memory = replace(self.memory, limits=wanted)

    def _rescue(
        self, now: dict[str, frozenset[str]], missing: tuple[tuple[str, float], ...] | None = None
    ) -> tuple[Move, ...]:
        movable = tuple(worker for worker in policy.swing_workers(self.view) if worker.uid not in self.pending)
        missing = self.memory.unserved if missing is None else missing
        coming = frozenset(item.target for item in self.pending.values())
        move = rescue.rescue(self.view, movable, now, missing, coming=coming, now_unix_s=self.now_unix_s)
        return () if move is None else (move,)

    def _outlive_rollouts(self, now: dict[str, frozenset[str]]) -> None:
        """Have Kubernetes end last the old workers of a rolling update whose role no new one serves."""
        if self.view.spec.scaling.mode is not ScalingMode.RECOMMEND:
            workers = tuple(w for w in policy.swing_workers(self.view) if w.uid not in self.pending)
            self.actions += rollout.keep(workers, now, rollout.old_workers(self.view))

    def _succeed(self, now: dict[str, frozenset[str]]) -> tuple[Move, ...]:
        """Give prefill to a new worker before a rolling update ends the last old one; new workers decode anyway."""
        staying = rollout.staying(now, rollout.old_workers(self.view))
        if not now[names.ROLE_PREFILL] or staying[names.ROLE_PREFILL]:
            return ()
        return self._rescue(staying, ((names.ROLE_PREFILL, float("-inf")),))

    def _begin(self, moves: tuple[Move, ...], now: dict[str, frozenset[str]]) -> str:
        workers = {worker.uid: worker for worker in self.view.workers}
        begun = []
        for move in moves:
            worker = workers[move.uid]
            if not may_leave(worker, now):
                continue
            self._supersede(worker)
            progress = protocol.begin(
                self.view, worker, to_role=move.to_role, reason=move.reason, now_unix_s=self.now_unix_s
            )
            self._take(worker, progress)
            now = without(now, worker)
            message = f"{worker.pod}: {worker.role} to {move.to_role}: {move.reason}"
            self.actions.append(EmitEvent(type="Normal", reason="FlipDecided", message=message))
            begun.append(move)
        self.memory = replace(self.memory, evidence=(), advice=None)
        return f"flip {self._describe(tuple(begun))}" if begun else "hold: the last ready worker of a role stays"

    def _supersede(self, worker: WorkerView) -> None:
        """End the flip that a worker has still on it: it got its role, and leaves it before a request came."""
        state = flip.parse(worker.flip)
        record = None if state is None else records.find(self.flips, records.of(worker, state))
        if record is not None and record.outcome == records.IN_PROGRESS:
            self.flips = records.put(self.flips, records.finished(record, records.ABORTED))

    def _take(self, worker: WorkerView, progress: protocol.Progress) -> None:
        self.flips = records.put(self.flips, progress.record)
        if progress.action is not None:
            self.actions.append(progress.action)
        if progress.role:
            self.pending[worker.uid] = PendingPatch(
                uid=worker.uid, role=progress.role, target=progress.target, asked_unix_s=self.now_unix_s
            )

    def _close(self, record: FlipRecord, worker: WorkerView | None) -> FlipRecord:
        if worker is None or worker.deleting:
            return records.finished(record, records.WORKER_LOST)
        state = flip.parse(worker.flip)
        if worker.uid in self.pending or (state is not None and records.same(record, records.of(worker, state))):
            return record
        decided_unix_s = records.decided_unix_s(record)
        sight = observed(self.view).get(worker.pod)
        if sight is not None and worker.role == record.to and is_ready(worker):
            served = protocol.first_served_unix_s(
                sight, record.to, decided_unix_s=decided_unix_s, now_unix_s=self.now_unix_s
            )
            if served is not None:
                return records.finished(record, records.SERVING, serving_unix_s=served)
        if self.now_unix_s - decided_unix_s < PENDING_S:
            return record
        return records.finished(record, records.ABORTED)

    def _tell_end(self, record: FlipRecord) -> None:
        if record.outcome in (records.ABORTED, records.WORKER_LOST):
            message = f"{record.worker}: flip from {record.from_} to {record.to} ended as {record.outcome}"
            self.actions.append(EmitEvent(type="Warning", reason="FlipFailed", message=message))

    def _describe(self, moves: tuple[Move, ...]) -> str:
        pods = {worker.uid: worker.pod for worker in self.view.workers}
        return "; ".join(f"{pods[move.uid]} to {move.to_role}: {move.reason}" for move in moves)


def _merge(remembered: tuple[FlipRecord, ...], written: tuple[FlipRecord, ...]) -> tuple[FlipRecord, ...]:
    """All known flips; what is remembered is newer than what was written."""
    merged = remembered
    for record in written:
        if records.find(merged, record) is None:
            merged = records.put(merged, record)
    return records.remembered(merged)


def _still_pending(view: ClusterView, pending: tuple[PendingPatch, ...], now_unix_s: float) -> tuple[PendingPatch, ...]:
    """Changes of role that were asked for and that the view does not show yet."""
    roles = {worker.uid: worker.role for worker in view.workers if not worker.deleting}
    return tuple(
        item
        for item in pending
        if item.uid in roles and roles[item.uid] != item.role and now_unix_s - item.asked_unix_s < PENDING_S
    )
