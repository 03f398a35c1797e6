"""What an interceptor may answer."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

VerdictName: TypeAlias = Literal["continue", "modify", "cancel", "replace", "retry"]


class Continue(msgspec.Struct, frozen=True, tag="continue", tag_field="verdict"):
    """Go on as if the hook were not there; returning `None` means the same."""


class Modify(msgspec.Struct, frozen=True, tag="modify", tag_field="verdict"):
    """Go on with this payload; only the fields that its point lets change may differ."""

    payload: Any


class Cancel(msgspec.Struct, frozen=True, tag="cancel", tag_field="verdict"):
    """Do not do it; the reason is kept, and shown to the caller that asked for it."""

    reason: str


class Replace(msgspec.Struct, frozen=True, tag="replace", tag_field="verdict"):
    """Do not do it; this is the result instead."""

    value: Any
    reason: str = ""


class Retry(msgspec.Struct, frozen=True, tag="retry", tag_field="verdict"):
    """Do it once more; how often is bounded by the caller that does it."""

    reason: str = ""


CONTINUE = Continue()

Verdict: TypeAlias = Continue | Modify | Cancel | Replace | Retry


def name_of(verdict: Verdict) -> VerdictName:
    """The verdict in one word."""
    name: VerdictName = verdict.__struct_config__.tag  # type: ignore[assignment]
    return name
