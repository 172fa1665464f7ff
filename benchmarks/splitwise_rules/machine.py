"""A machine as Splitwise's published simulator has it: whole prompts that come first, answers that give way to them.

It stands in the place of our batching engine, so that timeline, router, transfers and traffic stay ours. A request is
two tasks, its prompt and its answer. Each iteration takes tasks up to a budget of tokens, in this order: tasks that
were passed over four times, prompts, answers that were interrupted, answers of the batch before, other answers. A
prompt is never split, and one alone may exceed the budget. The choice is made anew only when a task has ended or one
has come that would fit; until then the batch goes on as it is. Memory is that of whole tasks, from when they begin.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from swingpool_control.engine.batching import BatchingEngine
from swingpool_control.engine.model import PerformanceModel
from swingpool_control.engine.work import Iteration, Lease, Limits, Progress, Request, Transfer

PATIENCE = 4
"""How often a task is passed over before it comes first."""


class Task:
    """A prompt that is to be computed, or an answer that is to be generated after its first token.

    Args:
        request: whose it is.
        is_prompt: which of the two.
    """

    __slots__ = (
        "budget_tokens",
        "ends_at",
        "holds",
        "is_prompt",
        "left",
        "memory_tokens",
        "order",
        "passed",
        "request",
    )

    def __init__(self, request: Request, *, is_prompt: bool) -> None:
        self.request = request
        self.is_prompt = is_prompt
        self.order = int(request.id.partition(".")[0])
        """The request's place among all arrivals: the router numbers them as they come."""
        self.budget_tokens = request.prompt_tokens if is_prompt else 1
        self.memory_tokens = request.prompt_tokens + 1 if is_prompt else request.output_tokens - 1
        self.left = 1 if is_prompt else request.output_tokens - 1
        """Iterations that it needs; while it is in the batch, `ends_at` tells instead."""
        self.ends_at = 0
        self.passed = 0
        """How often it was passed over."""
        self.holds = False
        """Whether it has begun, and so holds its memory."""


class _Choice:
    """The batch that is being made up."""

    def __init__(self, limits: Limits, free_tokens: int) -> None:
        self.tasks: list[Task] = []
        self.orders: set[int] = set()
        self.budget_tokens = 0
        self._limits = limits
        self._free_tokens = free_tokens

    def fill(self, tasks: Iterable[Task], *, until_memory_lacks: bool) -> None:
        """Take tasks in their order until one exceeds the budget."""
        for task in tasks:
            if len(self.tasks) == self._limits.max_sequences:
                return
            if self.tasks and self.budget_tokens + task.budget_tokens > self._limits.max_batched_tokens:
                return
            if task.order in self.orders:
                continue
            if task.holds or task.memory_tokens <= self._free_tokens:
                self._take(task)
            elif until_memory_lacks:
                return

    def _take(self, task: Task) -> None:
        self.tasks.append(task)
        self.orders.add(task.order)
        self.budget_tokens += task.budget_tokens
        if not task.holds:
            self._free_tokens -= task.memory_tokens


class Machine(BatchingEngine):
    """One machine.

    Args:
        model: how long iterations and transfers take.
        limits: what it may do; blocks must be of one token.
    """

    def __init__(self, model: PerformanceModel, limits: Limits) -> None:
        super().__init__(model, limits, counted=True)
        self.used_tokens = 0
        self.prompt_tokens = 0
        """Of all prompts that are not computed yet."""
        self.prompt_memory_tokens = 0
        """Of prompts that are computed for others, from when they come until they are fetched."""
        self.emptied = 0
        """How often it ran out of tasks."""
        self._live: dict[str, Request] = {}
        self._fetching: dict[str, Request] = {}
        self._kept: dict[str, Request] = {}
        self._pool: dict[int, list[Task]] = {}
        self._orders: list[int] = []
        """Of the pool, rising."""
        self._queue: list[Task] = []
        """All that are not in the batch, by how often they were passed over, then by arrival."""
        self._prompts: list[Task] = []
        """The prompts among them, as they came."""
        self._interrupted: list[Task] = []
        self._batch: list[Task] = []
        self._budget_tokens = 0
        self._prompts_in_batch = 0
        self._choose = True
        self._iterated = False
        self._ticks = 0
        self._started: list[Transfer] = []
        self._found = Progress()

    # What it knows

    @property
    def queued(self) -> int:
        """Tasks that wait."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Tasks in the batch."""
        return len(self._batch)

    @property
    def waiting(self) -> int:
        """Requests that are not in the batch."""
        return len(self._live) - len(self._batch)

    @property
    def loading(self) -> int:
        """Requests whose KV cache is on its way."""
        return len(self._fetching)

    @property
    def kv_usage(self) -> float:
        """Share of the memory that is held."""
        return self.used_tokens / self.limits.total_blocks

    @property
    def leases(self) -> int:
        """Prompts that wait to be fetched."""
        return len(self._kept)

    @property
    def next_expiry_s(self) -> float | None:
        """They wait for ever."""
        return None

    @property
    def idle(self) -> bool:
        """Whether it holds no request."""
        return not self._live

    @property
    def decode_context_tokens(self) -> int:
        """What answers read does not matter here."""
        return 0

    # What comes in

    def add(self, request: Request) -> None:
        """Take a request in: whole, its prompt alone, or its answer, whose KV cache is fetched first.

        Raises:
            ValueError: it could never fit.
        """
        if request.prompt_tokens + request.output_tokens > self.limits.total_blocks:
            raise ValueError(f"request {request.id} is longer than the memory")
        self._live[request.id] = request
        if request.remote_prefill:
            self._fetching[request.id] = request
            self.fetch(request.id)
            return
        self.prompt_tokens += request.prompt_tokens
        if request.remote_decode:
            self.prompt_memory_tokens += request.prompt_tokens + 1
            self._come(Task(request, is_prompt=True))
            return
        prompt, answer = Task(request, is_prompt=True), Task(request, is_prompt=False)
        self._come(prompt)
        self._come(answer)

    def fetch(self, request_id: str) -> bool:
        """Begin to fetch a prompt's KV cache if there is room for it; False if not."""
        request = self._fetching[request_id]
        if self.used_tokens + request.prompt_tokens + 1 > self.limits.total_blocks:
            return False
        self.used_tokens += request.prompt_tokens + 1
        tokens = request.prompt_tokens
        self._started.append(Transfer(request_id, tokens, self.model.transfer_s(tokens=tokens)))
        return True

    def loaded(self, request_id: str) -> None:
        """Take in an answer whose KV cache is there."""
        request = self._fetching.pop(request_id)
        self._come(Task(request, is_prompt=False))

    def lease(self, request_id: str) -> Lease | None:
        """Return what is kept of a prompt; None if nothing is."""
        request = self._kept.get(request_id)
        if request is None:
            return None
        return Lease(held=request.prompt_tokens + 1, blocks=(), tokens=request.prompt_tokens, expires_s=float("inf"))

    def renew(self, request_id: str, *, now_s: float) -> bool:
        """Tell whether a prompt is kept still."""
        return request_id in self._kept

    def release(self, request_id: str) -> bool:
        """Let go of a prompt that was fetched."""
        request = self._kept.pop(request_id, None)
        if request is None:
            return False
        self.used_tokens -= request.prompt_tokens + 1
        self.prompt_memory_tokens -= request.prompt_tokens + 1
        if self._queue and self._budget_tokens < self.limits.max_batched_tokens:
            self._choose = True
        return True

    def _come(self, task: Task) -> None:
        tasks = self._pool.get(task.order)
        if tasks is None:
            insort(self._orders, task.order)
            self._pool[task.order] = [task]
        else:
            tasks.append(task)
        self._enqueue(task)
        if task.is_prompt:
            self._prompts.append(task)
        if not self._batch or self._would_fit(task):
            self._choose = True

    def _would_fit(self, task: Task) -> bool:
        """Whether a task would fit beside the batch, or a prompt in the place of the batch's answers."""
        most = self.limits.max_batched_tokens
        if self._budget_tokens + task.budget_tokens <= most:
            return True
        answers = len(self._batch) - self._prompts_in_batch
        return task.is_prompt and answers > 0 and self._budget_tokens - answers + task.budget_tokens <= most

    def _enqueue(self, task: Task) -> None:
        insort(self._queue, task, key=lambda one: (one.passed, one.order))

    # Iterations

    def schedule(self, *, now_s: float) -> Iteration | None:
        """Choose the next iteration; None if there is nothing to do, or no memory for what there is."""
        if self._choose or not self._batch:
            self._choose = False
            self._select()
        iterated, self._iterated = self._iterated, False
        if not self._batch:
            if iterated and not self._pool:
                self.emptied += 1
            return None
        answers = len(self._batch) - self._prompts_in_batch
        prefill_tokens = self._budget_tokens - answers
        duration_s = self.model.step_s(
            prefill_tokens=prefill_tokens, prefill_context_tokens=0, decode_sequences=answers, decode_context_tokens=0
        )
        return Iteration(admitted=(), duration_s=duration_s, prefill_tokens=prefill_tokens, decode_sequences=answers)

    def take_transfers(self) -> list[Transfer]:
        """Return the transfers that began since the last call."""
        started, self._started = self._started, []
        return started

    def foresee(self) -> int:
        """Return how many iterations follow that repeat the one under way, the one that ends a task among them."""
        if self._prompts_in_batch or not self._batch:
            return 0
        return min(task.ends_at for task in self._batch) - self._ticks - 1

    def following_s(self, count: int) -> float:
        """Return the duration of so many of them, the one under way being the first."""
        return self.model.decode_steps_s(steps=count, sequences=len(self._batch), context_tokens=0)

    def repeat(self, times: int) -> None:
        """Account for so many of them."""
        self._ticks += times

    def advance(self, *, now_s: float) -> Progress:
        """Account for the iteration under way; return what it brought."""
        found = self._found
        found.renew(len(self._batch) - self._prompts_in_batch)
        self._ticks += 1
        self._iterated = True
        for task in [one for one in self._batch if one.ends_at <= self._ticks]:
            self._batch.remove(task)
            self._leave_pool(task)
            self._choose = True
            if task.is_prompt:
                found.firsts.append(task.request.id)
                self._computed(task.request, found)
            else:
                found.ended.append(task.request.id)
                del self._live[task.request.id]
                self.used_tokens -= task.request.prompt_tokens + task.request.output_tokens
        return found

    def _computed(self, request: Request, found: Progress) -> None:
        self.prompt_tokens -= request.prompt_tokens
        self._prompts_in_batch -= 1
        if request.remote_decode:
            del self._live[request.id]
            self._kept[request.id] = request
            found.ended.append(request.id)

    def _leave_pool(self, task: Task) -> None:
        tasks = self._pool[task.order]
        tasks.remove(task)
        if not tasks:
            del self._pool[task.order]
            del self._orders[bisect_left(self._orders, task.order)]

    def _select(self) -> None:
        """Make up the batch anew."""
        choice = _Choice(self.limits, self.limits.total_blocks - self.used_tokens)
        choice.fill(self._impatient(), until_memory_lacks=False)
        choice.fill(self._prompts, until_memory_lacks=True)
        choice.fill(self._interrupted, until_memory_lacks=True)
        choice.fill(self._batch, until_memory_lacks=True)
        firsts = (self._pool[order][0] for order in self._orders if order not in choice.orders)
        choice.fill(firsts, until_memory_lacks=True)
        old, new = set(self._batch), set(choice.tasks)
        for task in self._batch:
            if task not in new:
                task.left = task.ends_at - self._ticks
                self._enqueue(task)
                self._interrupted.append(task)
        for task in choice.tasks:
            if task not in old:
                self._begin(task)
        self._batch = choice.tasks
        self._budget_tokens = choice.budget_tokens
        self._prompts_in_batch = sum(task.is_prompt for task in choice.tasks)
        for tasks in self._pool.values():
            if tasks[0] not in new:
                tasks[0].passed += 1

    def _impatient(self) -> Iterator[Task]:
        for task in self._queue:
            if task.passed < PATIENCE:
                return
            yield task

    def _begin(self, task: Task) -> None:
        self._queue.remove(task)
        if task.is_prompt:
            self._prompts.remove(task)
        if task.holds:
            self._interrupted.remove(task)
        else:
            task.holds = True
            self.used_tokens += task.memory_tokens
        task.ends_at = self._ticks + task.left
