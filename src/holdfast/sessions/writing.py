"""Writing to a session outside a turn: a short lease, the facts, and the lease given back."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import msgspec

from holdfast.errors import LeaseLost
from holdfast.journal import NO_ORIGIN, Event, Journal, Origin, Payload


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to write to one session under one epoch."""

    session_id: str
    epoch: int
    session_seq: int
    unproved_epoch: int = 0
    """Up to this epoch a former holder may still be alive; see `Head.unproved_epoch`."""


class SessionLeases(Protocol):
    """Takes leases for this process; `turns.LeaseKeeper` is one."""

    owner: str

    async def acquire(self, session_id: str) -> Lease | None:
        """Take the lease, or return `None` while another process holds it; raises NotFound."""
        ...

    async def wait_for(self, session_id: str, timeout_s: float) -> Lease:
        """Take the lease as soon as it is free.

        Raises:
            SessionBusy: it was not free in time.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""
        ...

    def let_go(self, lease: Lease) -> None:
        """Stop renewing a lease that was released with the last append."""
        ...

    def does_still_hold(self, lease: Lease) -> bool:
        """Say whether nobody else can have the lease now; safe from any thread."""
        ...

    async def show_presence(self) -> None:
        """Let other processes know that this one lives, from now until it closes."""
        ...


class Writing:
    """A short hold on a session, for changes outside a turn: enter, append, leave."""

    def __init__(
        self, journal: Journal, keeper: SessionLeases, session_id: str, timeout_s: float
    ) -> None:
        """Prepare; the lease is taken on entering."""
        self._journal = journal
        self._keeper = keeper
        self._session_id = session_id
        self._timeout_s = timeout_s
        self._lease: Lease | None = None

    async def __aenter__(self) -> Writing:
        """Wait for the session and take its lease.

        Raises:
            SessionBusy: a turn holds the session for longer than the caller wants to wait.
        """
        self._lease = await self._keeper.wait_for(self._session_id, self._timeout_s)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the lease back."""
        if self._lease is not None:
            await self._keeper.release(self._lease)

    @property
    def epoch(self) -> int:
        """The epoch under which this hold writes."""
        return self._require_lease().epoch

    async def append(
        self, *payloads: Payload, origin: Origin = NO_ORIGIN, is_last: bool = False
    ) -> tuple[Event, ...]:
        """Append facts; with the last ones the lease is given back in the same commit."""
        lease = self._require_lease()
        events = await self._journal.append(
            self._session_id, payloads, epoch=lease.epoch, origin=origin, release=is_last
        )
        if is_last:
            self.forget()
        return events

    def forget(self) -> None:
        """Note that the lease ended with the session or with the last append."""
        lease, self._lease = self._require_lease(), None
        self._keeper.let_go(lease)

    def _require_lease(self) -> Lease:
        if self._lease is None:
            raise LeaseLost(session_id=self._session_id, current="unknown", held="none")
        return self._lease
