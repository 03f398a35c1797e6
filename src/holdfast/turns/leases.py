"""Leases: who may write to a session, kept alive by a thread.

A blocked or busy event loop must not lose its sessions, so renewal does not run on it.
A process that is stopped for longer than the lease lasts does lose them, and the epoch in
the store then refuses whatever it still tries to write.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence

from holdfast.errors import HoldfastError, SessionBusy
from holdfast.ids import random_token
from holdfast.journal import NO_ORIGIN, Batch, Event, Journal, Origin, Payload
from holdfast.sessions import Lease

DEFAULT_TTL_S = 30.0
_LOOK_FOR_LEASE_S = 0.25
_NO_EPOCH = -1


class LeaseKeeper:
    """Takes leases for this process and renews them until they are given back."""

    def __init__(self, journal: Journal, *, ttl_s: float = DEFAULT_TTL_S) -> None:
        """Prepare; the thread starts with the first lease."""
        self.owner = random_token()
        self._journal = journal
        self._ttl_s = ttl_s
        self._held: dict[str, int] = {}
        self._guard = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    async def acquire(self, session_id: str) -> Lease | None:
        """Take the session's lease, or return `None` while somebody else holds it.

        Raises:
            NotFound: there is no such session.
        """
        head = await self._journal.store.acquire(session_id, self.owner, self._ttl_s)
        if head is None:
            return None
        with self._guard:
            self._held[session_id] = head.epoch
        self.show_presence()
        return Lease(session_id=session_id, epoch=head.epoch, session_seq=head.session_seq)

    async def begin(
        self,
        session_id: str,
        payloads: Sequence[Payload] | Batch,
        *,
        after: int,
        origin: Origin = NO_ORIGIN,
        must_be_new: bool = False,
    ) -> tuple[Lease, tuple[Event, ...]]:
        """Take the lease and append the first facts under it, in one transaction.

        A caller that is cancelled calls `forgo`.

        Raises:
            AlreadyExists: the session must be new, but is not.
            SessionBusy: somebody holds the lease.
            StaleWriter: the session does not end at event `after`.
        """
        if self._thread is None:
            self.show_presence()
        events = await self._journal.begin(
            session_id,
            payloads,
            owner=self.owner,
            ttl_s=self._ttl_s,
            after=after,
            origin=origin,
            must_be_new=must_be_new,
        )
        last = events[-1]
        with self._guard:
            self._held[session_id] = last.epoch
        return Lease(session_id=session_id, epoch=last.epoch, session_seq=last.session_seq), events

    async def forgo(self, session_id: str) -> None:
        """Give back a lease that was taken for nobody, because the taker was cancelled."""
        store = self._journal.store
        # Writes are stored in order: after this one, what was under way is stored or not.
        await store.release(session_id, _NO_EPOCH)
        for head in await store.heads(session_id):
            if head.owner == self.owner and session_id not in self._held:
                await store.release(session_id, head.epoch)

    async def wait_for(self, session_id: str, timeout_s: float) -> Lease:
        """Take the lease as soon as it is free.

        Raises:
            SessionBusy: it was not free in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            seq = await self._journal.last_seq()
            lease = await self.acquire(session_id)
            if lease is not None:
                return lease
            left = deadline - loop.time()
            if left <= 0:
                raise SessionBusy(session_id=session_id)
            await self._journal.store.changed(seq, min(left, _LOOK_FOR_LEASE_S))

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""
        self.let_go(lease)
        await self._journal.store.release(lease.session_id, lease.epoch)

    def let_go(self, lease: Lease) -> None:
        """Stop renewing a lease that was released with the last append."""
        with self._guard:
            if self._held.get(lease.session_id) == lease.epoch:
                del self._held[lease.session_id]

    def show_presence(self) -> None:
        """Let other processes know that this one lives, from now until `close`."""
        if self._thread is None and not self._is_closed:
            self._journal.store.renew({}, self.owner, self._ttl_s)
            self._thread = threading.Thread(
                target=self._renew_forever, name="holdfast-leases", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """Stop renewing, and let others take over at once what this process leaves behind."""
        self._is_closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            with contextlib.suppress(HoldfastError):
                # A full or broken disk: what is held runs out by itself.
                self._journal.store.renew(self._held, self.owner, 0.0)

    def _renew_forever(self) -> None:
        while not self._wake.wait(self._ttl_s / 3):
            with self._guard:
                held = dict(self._held)
            try:
                lost = self._journal.store.renew(held, self.owner, self._ttl_s)
            except HoldfastError:
                # A full disk or a long lock: try again soon; the epoch guards what is written.
                continue
            gone = {(session_id, held[session_id]) for session_id in lost}
            with self._guard:
                # One that was taken again meanwhile has another epoch, and stays.
                self._held = dict(self._held.items() - gone)
