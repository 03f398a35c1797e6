"""A tool as the model sees it."""

from __future__ import annotations

import msgspec

from holdfast.canonical import JsonObject


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Name, purpose and JSON Schema of the arguments; nothing that executes."""

    name: str
    description: str
    parameters: JsonObject
