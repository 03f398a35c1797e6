"""The model that a skill asks to be used with, for the rest of the turn that loads it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

from holdfast.messages import ToolPart
from holdfast.providers import Model, ModelInfo
from holdfast.runs.spending import Charge

SiblingLookup: TypeAlias = Callable[[ModelInfo, str], Awaitable[tuple[Model, Charge] | None]]
"""Opens another model of the provider that answers; `None` where it has none of that name."""

_SAME: Final = frozenset({"", "inherit", "default"})


def find_skill_model(calls: Iterable[ToolPart]) -> str:
    """Return the model that the last loaded skill with one names; empty where none does."""
    named = [
        str(call.metadata.get("model", ""))
        for call in calls
        if call.tool == "skill" and call.state == "completed" and "digest" in call.metadata
    ]
    wanted = [name for name in named if name not in _SAME]
    return wanted[-1] if wanted else ""


__all__ = ["SiblingLookup", "find_skill_model"]
