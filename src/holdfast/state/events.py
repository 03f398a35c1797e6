"""The facts of state: a value became another one, and two writers met."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Payload, payload

Cause: TypeAlias = Literal["set", "update", "delete", "expire", "restore", "hand-over"]


@payload("state.changed", is_open=True, has_content=True)
class StateChanged(Payload, frozen=True, kw_only=True):
    """A value was set or removed; `data` holds it under `value`, and nothing once it is removed.

    `version` counts the changes of the key and is the next one, or the store refuses the fact:
    that is compare-and-set. `previous` is the number of the change before, so that the history
    of a key is a list of links. A value costs its own size once, however long the history is.
    """

    key: str
    version: int
    scope: str = "session"
    scope_id: str = ""
    data: JsonObject = msgspec.field(default_factory=dict)
    previous: int = 0
    expires_at: float = 0.0
    labels: tuple[str, ...] = ()
    schema: str = ""
    schema_number: int = 0
    cause: Cause = "set"

    def redacted(self) -> StateChanged:
        """Keep which key and version; drop the value."""
        return msgspec.structs.replace(self, data={})


@payload("state.conflict", is_open=True)
class StateConflicted(Payload, frozen=True, kw_only=True):
    """Two writers met at a key: one wanted `expected`, and found `found`.

    `strategy` is the name of what decided, `outcome` what it came to: `refused` changed
    nothing, with the others a `state.changed` stands beside this fact.
    """

    key: str
    expected: int
    found: int
    strategy: str
    outcome: Literal["refused", "overwritten", "merged", "resolved", "retried"]
    scope: str = "session"
    scope_id: str = ""
    attempts: int = 1


@payload("tool.state_set", has_content=True)
class ToolStateSet(Payload, frozen=True, kw_only=True):
    """A note of a run in its session; `data` holds it under `value`.

    What tools remembered before there was `state.changed`, and the taint labels of a session.
    """

    key: str
    data: JsonObject

    def redacted(self) -> ToolStateSet:
        """Keep which key; drop the value."""
        return msgspec.structs.replace(self, data={})


__all__ = ["Cause", "StateChanged", "StateConflicted", "ToolStateSet"]
