"""What a store must do: keep events, rows and leases, and refuse stale writers.

A store holds bytes; it knows no rule about sessions, tools or agents. The conformance
suite in `holdfast.testing.store_conformance` says precisely what is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from holdfast.errors import UsageError
from holdfast.journal.envelope import Draft, Event
from holdfast.journal.projection import KeyedRow, RowQuery

Row = TypeVar("Row", bound=msgspec.Struct)

Durability: TypeAlias = Literal["process", "power"]
"""What an append survives: the end of the process at any moment, or also a power cut."""

BLOB_THRESHOLD = 32 * 1024
"""Payloads above this many bytes are kept once per content, outside the event row."""


class LeaseWish(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants a session's lease, and for how long."""

    owner: str
    ttl_s: float


class HeldSession(msgspec.Struct, frozen=True, gc=False):
    """A session that the writer of another chain must still hold: its id, and the epoch."""

    session_id: str
    epoch: int


class AppendRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A batch for one session, stored whole or not at all.

    `epoch` is the lease under which it is written; `None` means: whatever the current one
    is (only for kinds that any process may append). `after`, when given, must be the last
    `session_seq`. `must_be_new` refuses a session that already has events. `release` gives
    the lease back in the same transaction. `acquire` takes the lease first, with the next
    epoch, under which the batch is then written. `held` names the session of the run in whose
    name this is written to another chain: once another process has taken that one over, nothing
    is stored (a fencing token, compared in the same transaction).
    """

    session_id: str
    drafts: tuple[Draft, ...]
    epoch: int | None
    after: int | None = None
    must_be_new: bool = False
    release: bool = False
    is_synced: bool = False
    acquire: LeaseWish | None = None
    held: HeldSession | None = None


def check_restored(events: Sequence[Event]) -> str:
    """Return the one session that whole chains to be restored belong to.

    Raises:
        UsageError: there are no events, they belong to several sessions, or have gaps.
    """
    if not events:
        raise UsageError(detail="A session without events cannot be restored.")
    session_id = events[0].session_id
    for number, event in enumerate(events, 1):
        if (event.session_id, event.session_seq) != (session_id, number):
            raise UsageError(detail=f"Event {number} of {session_id} is missing or misplaced.")
    return session_id


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a session's chain, and who may write to it."""

    session_id: str
    session_seq: int
    hash: str
    epoch: int
    owner: str
    is_held: bool
    """Whether somebody holds the lease, as far as reading shows; only `Store.acquire` decides."""
    unproved_epoch: int = 0
    """Up to this epoch a former holder may still be alive: its time ran out, and nothing proves
    that its process has ended."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it was written; `session_seq` 0 means the session as a whole."""

    session_id: str
    session_seq: int
    problem: str


class MendReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was left of a damaged store, and what was not; the damaged file is kept `aside`."""

    events: int
    sessions: int
    lost: tuple[Finding, ...] = ()
    aside: str = ""


@runtime_checkable
class SharedStore(Protocol):
    """A store that several machines share, and that can exclude them from each other."""

    def alone(self, name: str) -> AbstractAsyncContextManager[None]:
        """Exclude all others who ask for the same name, for a short time."""
        ...


class Chains(Protocol):
    """Chains that can be checked: those of a store, or of a file at rest."""

    async def heads(self) -> list[Head]:
        """Return the ends of all chains."""
        ...

    async def read(self, session_id: str, *, after: int = 0, limit: int = 1000) -> list[Event]:
        """Return events of one session in order."""
        ...

    async def examine(self) -> list[Finding]:
        """Return what is wrong besides the chains: damaged files, tables that do not follow.

        Every row of every table is compared with what the log says.
        """
        ...


class Store(Protocol):
    """The narrow waist between the journal and a database.

    Whether a lease has run out and whether an owner lives is judged here, by a clock that cannot
    step and that all writers of the store share: the boot clock for a file, the database's own
    for a server. Callers give durations, never points in time. A living owner's lease is given
    to nobody before it has run out; that of one which is proved dead, at once.
    """

    async def open(self) -> None:
        """Prepare the store; builds or rebuilds projections that are missing or old."""
        ...

    async def close(self) -> None:
        """Finish what was accepted, then give everything back."""
        ...

    async def append(self, request: AppendRequest) -> tuple[Event, ...]:
        """Store a batch and the rows that follow from it, in one transaction.

        Raises:
            LeaseLost: `epoch` is not the session's current one.
            StaleWriter: the session does not end at `after`.
            AlreadyExists: the session must be new, but is not.
            SessionBusy: the lease is to be acquired, but another owner holds it.
            StorageError: the database refused; nothing was stored.
        """
        ...

    async def restore(self, events: Sequence[Event], *, keeps_numbers: bool = False) -> None:
        """Store a whole session as it was elsewhere, hashes included, under new store-wide numbers.

        With `keeps_numbers` they stay: for a whole store that is copied into an empty one.

        Raises:
            AlreadyExists: the session is already there.
            UsageError: the events are not one whole session.
        """
        ...

    async def read(
        self,
        session_id: str,
        *,
        after: int = 0,
        limit: int = 1000,
        kinds: frozenset[str] | None = None,
        seqs: Sequence[int] | None = None,
    ) -> list[Event]:
        """Return events of one session in order, at most `limit` of them.

        With `seqs`, those with the given numbers instead of those after a number.
        """
        ...

    async def feed(self, *, after: int, limit: int = 1000) -> list[Event]:
        """Return events of all sessions in the order of `seq`; never skips a later commit."""
        ...

    async def read_last_seq(self) -> int:
        """Return the highest `seq`, 0 when there is none."""
        ...

    async def heads(self, session_id: str | None = None) -> list[Head]:
        """Return the ends of all chains, or of one."""
        ...

    async def rows(self, query: RowQuery[Row]) -> list[KeyedRow[Row]]:
        """Return the rows of a projection that a query describes."""
        ...

    async def acquire(self, session_id: str, owner: str, ttl_s: float) -> Head | None:
        """Take the session's lease with the next epoch, or return `None` when it is held.

        Raises:
            NotFound: there is no such session.
        """
        ...

    def renew(self, held: dict[str, int], owner: str, ttl_s: float) -> set[str]:
        """Say that `owner` lives, prolong its leases (session to epoch), return the lost ones.

        For a `ttl_s` of 0 the owner takes its leave: what it holds is free at once. Called from
        a thread of its own, so that a blocked loop keeps its leases.
        """
        ...

    async def is_alive(self, owner: str) -> bool:
        """Say whether an owner has renewed itself in time, and is not proved dead."""
        ...

    async def release(self, session_id: str, epoch: int) -> None:
        """Give a lease back; one that is already lost is left alone."""
        ...

    async def redact(self, session_id: str, reduced: dict[int, bytes], note: Draft) -> None:
        """Replace payloads by their redacted form and append the note that says so.

        Rows are made anew from what is left, so that they keep nothing that was removed.
        Numbers that the session does not have are left out.
        """
        ...

    async def delete(self, session_id: str, note: Draft, epoch: int) -> None:
        """Remove a session held under `epoch`; the note goes to the system chain."""
        ...

    async def rebuild(self, progress: Callable[[int, int], None]) -> int:
        """Drop and rebuild all projections; returns the number of events folded."""
        ...

    async def examine(self) -> list[Finding]:
        """Return what is wrong besides the chains; see `Chains.examine`."""
        ...

    async def mend(self) -> MendReport:
        """Make a damaged store sound from what can be read of it; it must not be open.

        Each session is kept up to the first event that is missing or was changed.

        Raises:
            StorageDamaged: nothing can be read.
            StorageLocked: somebody has it open.
            UsageError: this kind of store cannot be mended here.
        """
        ...

    async def collect(self) -> dict[str, int]:
        """Remove blobs that no event refers to, and give space back."""
        ...

    async def changed(self, after: int, timeout_s: float) -> bool:
        """Wait until an event with `seq` beyond `after` may exist, here or elsewhere."""
        ...

    async def stats(self) -> dict[str, Any]:
        """Count sessions, events, blobs and bytes."""
        ...
