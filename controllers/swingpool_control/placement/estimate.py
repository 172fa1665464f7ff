"""How long a prompt is before anyone has tokenized it: learnt from the exact lengths that workers report."""

from dataclasses import dataclass

MOST_TOKENS_PER_BYTE = 1.0
LEAST_TOKENS_PER_BYTE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRate:
    """Tokens per byte of UTF-8 text, as a moving average over requests."""

    tokens_per_byte: float = 0.25
    weight: float = 0.05
    """Share of the newest observation."""

    def tokens(self, text_bytes: int) -> int:
        """Return the estimated tokens of a text, at least 1."""
        return max(1, round(text_bytes * self.tokens_per_byte))

    def observed(self, *, text_bytes: int, tokens: int) -> "TokenRate":
        """Return the rate after a worker reported a prompt's exact length; absurd reports are clamped."""
        if text_bytes <= 0 or tokens <= 0:
            return self
        seen = min(max(tokens / text_bytes, LEAST_TOKENS_PER_BYTE), MOST_TOKENS_PER_BYTE)
        return TokenRate(
            tokens_per_byte=self.tokens_per_byte + self.weight * (seen - self.tokens_per_byte), weight=self.weight
        )
