"""An agent: who it is, what it may do, and which model speaks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.sessions import PermissionRule

Mode: TypeAlias = Literal["primary", "subagent", "all"]
Rule: TypeAlias = PermissionRule | Mapping[str, str]


class Agent:
    """A definition; `AgentRuntime` is what executes it.

    `permission` takes rules as objects or as `{"permission", "pattern", "action"}`; the last
    one that matches wins.
    """

    def __init__(  # noqa: PLR0913 - the fields of an agent
        self,
        name: str,
        *,
        description: str = "",
        mode: Mode = "primary",
        permission: Sequence[Rule] = (),
        model: str = "",
        prompt: str = "",
        temperature: float | None = None,
        top_p: float | None = None,
        steps: int = 50,
        options: JsonObject | None = None,
        native: bool = False,
        hidden: bool = False,
    ) -> None:
        """Check and keep the fields."""
        if not name.strip():
            raise UsageError(detail="An agent needs a name.")
        if steps < 1:
            raise UsageError(detail=f"Agent {name!r} needs at least one step.")
        self.name = name
        self.description = description
        self.mode = mode
        self.permission = tuple(_rule(rule, name) for rule in permission)
        self.model = model
        self.prompt = prompt
        self.temperature = temperature
        self.top_p = top_p
        self.steps = steps
        self.options = dict(options or {})
        self.native = native
        self.hidden = hidden

    def __repr__(self) -> str:
        """Name and mode."""
        return f"Agent({self.name!r}, mode={self.mode!r})"


def _rule(rule: Rule, agent: str) -> PermissionRule:
    if isinstance(rule, PermissionRule):
        return rule
    try:
        return msgspec.convert(dict(rule), PermissionRule)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise UsageError(detail=f"Agent {agent!r} has a wrong permission rule: {error}") from error
