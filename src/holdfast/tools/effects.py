"""What a call does to the world, and how to find out after a crash."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.tools.result import ToolResult

Effect: TypeAlias = Literal["read", "idempotent", "reconcile", "unsafe"]


class Intent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that was about to happen: what is known if its outcome is not.

    `noted` is what the tool's `prepare` wrote down before the call.
    """

    tool: str
    version: str
    call_id: str
    idempotency_key: str
    arguments: JsonObject
    noted: JsonObject = msgspec.field(default_factory=dict)


class Reconciliation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a tool found out about an intent.

    `happened` comes with the result; `not_happened` lets the call run again; `unknown`
    asks a person.
    """

    verdict: Literal["happened", "not_happened", "unknown"]
    result: ToolResult | None = None
    because: str = ""
