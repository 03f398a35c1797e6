"""Token counts of one or many model calls."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a model call used; the five counts never overlap, so `total` counts once.

    `input` excludes cached tokens, `output` excludes reasoning tokens, whatever the
    provider's own convention is.
    """

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        """All tokens, each counted once."""
        return self.input + self.output + self.reasoning + self.cache_read + self.cache_write

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Return the sum of two usages."""
        return TokenUsage(
            input=self.input + other.input,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
        )


def sum_of(usages: Iterable[TokenUsage]) -> TokenUsage:
    """Return what many model calls used together."""
    tokens = [0, 0, 0, 0, 0]
    for used in usages:
        tokens[0] += used.input
        tokens[1] += used.output
        tokens[2] += used.reasoning
        tokens[3] += used.cache_read
        tokens[4] += used.cache_write
    return TokenUsage(
        input=tokens[0],
        output=tokens[1],
        reasoning=tokens[2],
        cache_read=tokens[3],
        cache_write=tokens[4],
    )
