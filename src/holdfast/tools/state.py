"""What tools remember in a session: a few values by key, kept in the journal."""

from __future__ import annotations

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import ToolError
from holdfast.journal import Event, Journal, Payload, Projection
from holdfast.tools.events import ToolStateSet
from holdfast.tools.recording import Recorder

MOST_BYTES = 256 * 1024


class ToolStateRow(msgspec.Struct, frozen=True, kw_only=True):
    """The present value of one key, under `value`."""

    key: str
    data: JsonObject


class ToolStateTable(Projection[ToolStateRow]):
    """One row per key and session."""

    name = "tool_state"
    version = 1
    row_type = ToolStateRow
    columns = ("key",)
    kinds = frozenset({ToolStateSet.kind})

    def key(self, event: Event, payload: Payload) -> str:
        """A key has one row."""
        assert isinstance(payload, ToolStateSet)
        return payload.key

    def apply(
        self, row: ToolStateRow | None, event: Event, payload: Payload
    ) -> ToolStateRow | None:
        """The last value holds; one that was removed is gone."""
        assert isinstance(payload, ToolStateSet)
        return ToolStateRow(key=payload.key, data=payload.data) if payload.data else None


TOOL_STATE = ToolStateTable()


class JournalState(msgspec.Struct, frozen=True, eq=False):
    """A session's state as its tools see it: it survives the run, the process and a crash."""

    recorder: Recorder
    journal: Journal
    session_id: str

    async def get(self, key: str) -> object:
        """Return the value of a key, or None."""
        row = await self.journal.row(TOOL_STATE, self.session_id, key)
        return None if row is None else row.data.get("value")

    async def set(self, key: str, value: object) -> None:
        """Set the value of a key.

        Raises:
            ToolError: the value has no JSON form, or is too large.
        """
        try:
            data = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ToolError(tool="state", detail=f"{key!r} has no JSON form: {error}") from error
        if len(data) > MOST_BYTES:
            raise ToolError(tool="state", detail=f"{key!r} is larger than {MOST_BYTES >> 10} KB")
        kept: JsonObject = {"value": msgspec.json.decode(data)}
        await self.recorder.append(ToolStateSet(key=key, data=kept))
