"""What listeners heard, however it was cut into pieces."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.providers.model import Delta, ReasoningDelta, TextDelta, ToolCallDelta


def merged(deltas: Iterable[Delta]) -> list[Delta]:
    """Return deltas with those that continue the one before them joined to it."""
    found: list[Delta] = []
    for delta in deltas:
        before = found[-1] if found else None
        match before, delta:
            case (TextDelta(), TextDelta()) | (ReasoningDelta(), ReasoningDelta()):
                found[-1] = type(before)(before.text + delta.text)
            case ToolCallDelta(), ToolCallDelta(name="") if delta.index == before.index:
                arguments = before.arguments + delta.arguments
                found[-1] = msgspec.structs.replace(before, arguments=arguments)
            case _:
                found.append(delta)
    return found
