"""A request's state in the batching engine: its tokens, how many of them are computed, and the blocks it holds."""

from swingpool_control.engine.work import Request


class Sequence:
    """A request's state in the engine."""

    __slots__ = (
        "blocks",
        "cached",
        "computed",
        "emitted",
        "named_blocks",
        "prompt_tokens",
        "remote",
        "request",
        "started",
        "transferred",
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.prompt_tokens = request.prompt_tokens
        self.emitted = 0
        self.computed = 0
        """Tokens whose KV cache is there or being loaded."""
        self.cached = 0
        """Prompt tokens that were there already when it was admitted for the first time."""
        self.transferred = 0
        """Prompt tokens whose KV cache came from another worker."""
        self.blocks: list[int] = []
        self.named_blocks = 0
        """Leading blocks that the prefix cache knows."""
        self.remote = request.remote_prefill
        self.started = False

    @property
    def tokens(self) -> int:
        """Prompt and generated tokens."""
        return self.prompt_tokens + self.emitted

    @property
    def missing(self) -> int:
        """Tokens that must be computed before the next one is emitted."""
        return self.tokens - self.computed
