"""A request's state in the batching engine: its tokens, how many of them are computed, and the blocks it holds."""

from swingpool_control.engine.work import Request


class Sequence:
    """A request's state in the engine.

    While `decoding`, what changes with every token (`emitted`, `computed`, `held`) stands still here, for it follows
    from the group's ticks: `Decoding.leave` brings it up to date.
    """

    __slots__ = (
        "blocks",
        "cached",
        "computed",
        "decoding",
        "emitted",
        "held",
        "last_s",
        "named_blocks",
        "number",
        "offset_tokens",
        "output_tokens",
        "prompt_tokens",
        "remote",
        "request",
        "running",
        "started",
        "transferred",
        "turn",
    )

    def __init__(self, request: Request, number: int) -> None:
        self.request = request
        self.number = number
        """Counts up in the order of arrival."""
        self.prompt_tokens = request.prompt_tokens
        self.output_tokens = request.output_tokens
        self.emitted = 0
        self.computed = 0
        """Tokens whose KV cache is there or being loaded."""
        self.cached = 0
        """Prompt tokens that were there already when it was admitted for the first time."""
        self.transferred = 0
        """Prompt tokens whose KV cache came from another worker."""
        self.held = 0
        """Blocks that it holds."""
        self.blocks: list[int] = []
        """Their names, in order; empty where blocks are only counted."""
        self.named_blocks = 0
        """Leading blocks that the prefix cache knows."""
        self.remote = request.remote_prefill
        self.started = False
        self.running = False
        """Whether it is in the batch."""
        self.decoding = False
        """Whether it gets one token in every iteration."""
        self.offset_tokens = 0
        """Computed tokens less the group's ticks; while decoding."""
        self.turn = 0
        """Tells an entry of the group that is out of date from the present one."""
        self.last_s = 0.0
        """When its last token came; once it was preempted."""

    @property
    def tokens(self) -> int:
        """Prompt and generated tokens."""
        return self.prompt_tokens + self.emitted

    @property
    def missing(self) -> int:
        """Tokens that must be computed before the next one is emitted."""
        return self.prompt_tokens + self.emitted - self.computed
