"""Leases: who may write to a session, kept alive by a thread.

A blocked or busy event loop must not lose its sessions, so renewal does not run on it. A process
that is stopped for longer than the lease lasts, or cannot renew it for so long, does lose them.
It learns so at once when it goes on: the thread looks at the boot clock, asks the store, and
tells those who work under the lease. Whatever they still try to write, the epoch in the store
refuses.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from holdfast.errors import HoldfastError, SessionBusy
from holdfast.ids import make_random_token
from holdfast.journal import NO_ORIGIN, Batch, Event, Journal, Origin, Payload
from holdfast.observability import Logger
from holdfast.sessions import Lease

DEFAULT_TTL_S = 30.0
_LOOK_FOR_LEASE_S = 0.25
_LOOK_AT_CLOCK_S = 1.0
_NO_EPOCH = -1
_log = Logger("holdfast.leases")


class _Held(msgspec.Struct):
    """A lease that is renewed here."""

    epoch: int
    until: float
    """Before this time of the boot clock nobody else can have it."""
    is_missing: bool = False
    """The store did not know of it at the last look."""


LossListener: TypeAlias = Callable[[str, int], None]
"""Told of a session and of the epoch under which it was held."""


class LeaseKeeper:
    """Takes leases for this process, renews them until they are given back, and tells of loss."""

    def __init__(self, journal: Journal, *, ttl_s: float = DEFAULT_TTL_S) -> None:
        """Prepare; the thread starts with the first lease."""
        self.owner = make_random_token()
        self._journal = journal
        self._clock = journal.clock
        self._ttl_s = ttl_s
        self._held: dict[str, _Held] = {}
        self._listeners: list[LossListener] = []
        self._guard = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def on_loss(self, listener: LossListener) -> None:
        """Have a function called, in the thread that renews, for each lease that is lost."""
        self._listeners.append(listener)

    async def acquire(self, session_id: str) -> Lease | None:
        """Take the session's lease, or return `None` while another process holds it.

        Raises:
            NotFound: there is no such session.
        """
        # First, so that the death of this process can be proved.
        await self.show_presence()
        began = self._clock.boottime()
        head = await self._journal.store.acquire(session_id, self.owner, self._ttl_s)
        if head is None:
            return None
        with self._guard:
            self._held[session_id] = _Held(head.epoch, began + self._ttl_s)
        _log.debug("lease.taken", session_id=session_id, epoch=head.epoch)
        return Lease(
            session_id=session_id,
            epoch=head.epoch,
            session_seq=head.session_seq,
            unproved_epoch=head.unproved_epoch,
        )

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
            SessionBusy: another owner holds the lease.
            StaleWriter: the session does not end at event `after`.
        """
        if self._thread is None:
            await self.show_presence()
        began = self._clock.boottime()
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
            self._held[session_id] = _Held(last.epoch, began + self._ttl_s)
        return Lease(session_id=session_id, epoch=last.epoch, session_seq=last.session_seq), events

    async def forgo(self, session_id: str) -> None:
        """Give back a lease that was taken in vain, because the taker was cancelled."""
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
            seq = await self._journal.read_last_seq()
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
            held = self._held.get(lease.session_id)
            if held is not None and held.epoch == lease.epoch:
                del self._held[lease.session_id]

    def does_still_hold(self, lease: Lease) -> bool:
        """Say whether nobody else can have the lease now; safe from any thread.

        Until its time is over that is known without asking. After that (this process was
        stopped, or could not renew) the store is asked; no answer is a no.
        """
        with self._guard:
            held = self._held.get(lease.session_id)
            if held is None or held.epoch != lease.epoch:
                return False
            if self._clock.boottime() < held.until:
                return True
        self._renew()
        with self._guard:
            return self._find_epoch(lease.session_id) == lease.epoch

    async def show_presence(self) -> None:
        """Let other processes know that this one lives, from now until `close`."""
        if self._thread is None and not self._is_closed:
            # A database server answers when it can; the loop does not wait for it.
            await asyncio.to_thread(self._journal.store.renew, {}, self.owner, self._ttl_s)
        if self._thread is None and not self._is_closed:
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
                held = {session_id: held.epoch for session_id, held in self._held.items()}
                self._journal.store.renew(held, self.owner, 0.0)

    def _find_epoch(self, session_id: str) -> int:
        held = self._held.get(session_id)
        return _NO_EPOCH if held is None else held.epoch

    def _renew_forever(self) -> None:
        pause_s = self._ttl_s / 3
        # Short, because this wait does not count the time in which the whole machine sleeps.
        step_s = min(pause_s, _LOOK_AT_CLOCK_S)
        waited_s, renewed = 0.0, self._clock.boottime()
        while not self._wake.wait(step_s):
            waited_s += step_s
            now = self._clock.boottime()
            if waited_s >= pause_s or now - renewed >= pause_s:
                if self._renew():
                    waited_s, renewed = 0.0, now

    def _renew(self) -> bool:
        """Renew all that is held, and tell of what is lost; says whether the store answered.

        While it does not, what has run out counts as lost: somebody else may have it.
        """
        began = self._clock.boottime()
        with self._guard:
            held = {session_id: held.epoch for session_id, held in self._held.items()}
        try:
            lost = self._journal.store.renew(held, self.owner, self._ttl_s)
            has_answer = True
        except Exception as error:  # noqa: BLE001 - whatever it was: the next try may go well
            # A full disk, a long lock, no memory: the epoch guards what is written.
            has_answer = False
            _log.warning("lease.not_renewed", held=len(held), detail=str(error))
        gone: list[tuple[str, int]] = []
        with self._guard:
            for session_id, epoch in held.items():
                kept = self._held.get(session_id)
                # One that was taken again meanwhile has another epoch, and stays.
                if kept is None or kept.epoch != epoch:
                    continue
                is_over = kept.until <= began
                if has_answer and session_id in lost and not is_over and not kept.is_missing:
                    # No process can take it before its time is over: it is being given back with
                    # the last facts of its turn, which this thread does not know yet.
                    kept.is_missing = True
                elif (session_id in lost) if has_answer else is_over:
                    del self._held[session_id]
                    gone.append((session_id, epoch))
                elif has_answer:
                    kept.until = began + self._ttl_s
        for session_id, epoch in gone:
            reason = "another process has it" if has_answer else "it could not be renewed in time"
            _log.warning("lease.lost", session_id=session_id, epoch=epoch, reason=reason)
            for listener in self._listeners:
                listener(session_id, epoch)
        return has_answer
