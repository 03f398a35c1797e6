"""What becomes of a write that finds another version than it expected."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from holdfast.canonical import encode_canonical_json
from holdfast.errors import UsageError

Strategy: TypeAlias = Literal["ask-again", "last-writer", "merge"]
STRATEGIES: Final[tuple[str, ...]] = ("ask-again", "last-writer", "merge")


class ConflictCase(msgspec.Struct, frozen=True, kw_only=True):
    """A conflict: what both writers started from, what the other wrote, what this one wants.

    `base` is `None` where it is no longer known, `theirs` where the other removed the value.
    """

    address: str
    base: Any
    theirs: Any
    mine: Any
    expected: int
    found: int


Resolver: TypeAlias = Callable[[ConflictCase], Any | Awaitable[Any]]
"""Returns the value that is to be stored; may be asked again if yet another writer comes."""

_NONE: Any = object()


def check_strategy(given: object) -> str:
    """Return the name by which the journal knows a strategy; raises UsageError."""
    if isinstance(given, str) and given in STRATEGIES:
        return given
    if callable(given):
        return f"function {getattr(given, '__qualname__', type(given).__name__)}"
    raise UsageError(
        detail=f"on_conflict is one of {', '.join(STRATEGIES)} or a function, not {given!r:.80}."
    )


def can_merge(case: ConflictCase) -> bool:
    """Say whether both sides are JSON objects."""
    return isinstance(case.theirs, dict) and isinstance(case.mine, dict)


def merge(base: object, theirs: dict[str, Any], mine: dict[str, Any]) -> dict[str, Any]:
    """Return both sides' changes of a JSON object in one (a three-way merge).

    Where both changed the same field, objects are merged, and of anything else `mine`, which
    comes later, holds. Without a base, fields of both sides are kept.
    """
    origin: dict[str, Any] = base if isinstance(base, dict) else {}
    has_base = isinstance(base, dict)
    merged: dict[str, Any] = {}
    for name in {**theirs, **mine}:
        left, right = theirs.get(name, _NONE), mine.get(name, _NONE)
        before = origin.get(name, _NONE)
        if is_same(left, right):
            chosen = left
        elif has_base and is_same(right, before):
            chosen = left
        elif has_base and is_same(left, before):
            chosen = right
        elif isinstance(left, dict) and isinstance(right, dict):
            chosen = merge(before, left, right)
        elif not has_base and right is _NONE:
            chosen = left
        else:
            chosen = right
        if chosen is not _NONE:
            merged[name] = chosen
    return merged


def is_same(one: object, other: object) -> bool:
    """Say whether two values are the same JSON; 1 and true are not."""
    if one is other:
        return True
    if one is _NONE or other is _NONE:
        return False
    return encode_canonical_json(one) == encode_canonical_json(other)


__all__ = ["STRATEGIES", "ConflictCase", "Resolver", "Strategy", "merge"]
