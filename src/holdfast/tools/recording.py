"""How the facts of a run's calls reach the journal, and what it means if they do not."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, TypeVar

import msgspec

from holdfast.errors import HoldfastError
from holdfast.journal import Event, Payload

T = TypeVar("T")


class Recorder(Protocol):
    """Where a run's facts go; `sessions.Turn` is one."""

    async def append(
        self, *payloads: Payload, agent_path: str = "", is_synced: bool = False
    ) -> tuple[Event, ...]:
        """Append facts of the run, together or not at all."""
        ...

    def defer(self, *payloads: Payload, agent_path: str = "") -> None:
        """Append facts a moment later; a crash may lose them."""
        ...


class LeasedRecorder(Recorder, Protocol):
    """One that says which session it holds, and under which epoch (the fencing token)."""

    @property
    def session_id(self) -> str:
        """The session."""
        ...

    @property
    def epoch(self) -> int:
        """The epoch of its lease."""
        ...


class NotRecorded(Exception):
    """The journal refused a fact: that is the run's trouble, never the tool's result."""

    def __init__(self, error: HoldfastError) -> None:
        """Keep what the journal said."""
        super().__init__(str(error))
        self.error = error


class CallFacts(msgspec.Struct, frozen=True, eq=False):
    """Writes the facts of one agent's calls; shared by all who have something to write.

    An object of its own: were it the manager, everything that it makes would lead back to it,
    and an ended run would hold its workspace open until the next garbage collection.
    """

    recorder: Recorder
    agent_path: str

    async def append(self, *payloads: Payload, is_synced: bool = False) -> None:
        """Append facts, together or not at all; raises NotRecorded."""
        appending = self.recorder.append(*payloads, agent_path=self.agent_path, is_synced=is_synced)
        await await_recorded(appending)


async def await_recorded(writing: Awaitable[T]) -> T:
    """Await something that writes to the journal, and tell its failure from a tool's."""
    try:
        return await writing
    except HoldfastError as error:
        raise NotRecorded(error) from error
