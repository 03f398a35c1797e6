"""The policies in force: loaded, checked, and replaced while everything runs.

A reload puts a whole new bundle in the place of the old one, or changes nothing. The caller that
decides takes the bundle once per call, so a call that has begun keeps what it began with.
What was spent of a budget is kept elsewhere; a reload cannot reset it.

A reload in one process reaches all others on the same records: each looks twice a second whether
the chain of the system has grown, and reads its files again where a reload was asked for, made
or refused elsewhere. What was refused stays visible in `refused` until files are accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import PolicyInvalid, StorageError
from holdfast.journal import SYSTEM_SESSION, Journal, Payload
from holdfast.policy.bundle import PolicyBundle
from holdfast.policy.decision import CallRequest, Decision
from holdfast.policy.file_events import (
    PolicyLoaded,
    PolicyRejected,
    PolicyReloadRequested,
    find_difference,
)
from holdfast.policy.loader import load_policies
from holdfast.policy.recorded_calls import Change
from holdfast.policy.shadow import Shadow
from holdfast.settings import UnvouchedSettings


class Reload(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a reload: the version now in force, and what was wrong, if anything."""

    version: str
    previous: str
    mistakes: tuple[str, ...] = ()

    @property
    def is_accepted(self) -> bool:
        """Whether the files were put in force."""
        return not self.mistakes


class PolicyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The policies in force, and why newer files were refused, if they were."""

    version: str
    directory: str
    files: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """What was wrong with the files when a reload was last tried; empty if nothing was."""


_FOLLOWED = frozenset({PolicyLoaded.kind, PolicyRejected.kind, PolicyReloadRequested.kind})
_LOOK_S = 0.5
_PAGE = 100


class PolicyStore:
    """Holds the policies of one directory, and at most one candidate beside them."""

    def __init__(
        self,
        directory: Path,
        *,
        is_net_allowed: bool = False,
        journal: Journal | None = None,
        unvouched: UnvouchedSettings | None = None,
    ) -> None:
        """Hold an empty bundle, under which no network is reached; `load` reads the files.

        A directory that `unvouched` says a command could have made is refused like wrong files.
        """
        self.directory = directory
        self._unvouched = unvouched
        self.is_net_allowed = is_net_allowed
        self.shadow: Shadow | None = None
        self._journal = journal
        self.bundle = PolicyBundle(is_net_allowed=is_net_allowed)
        """The policies in force; take it once per call. Only a load or a reload replaces it."""
        self._listeners: list[Callable[[PolicyBundle], None]] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._differences: list[Change] = []
        self._candidate: Path | None = None
        self.refused: tuple[str, ...] = ()
        """What was wrong with the files when a reload was last tried."""
        self._followed: dict[Journal, int] = {} if journal is None else {journal: 0}
        """How far the chain of the system was read, of each journal that is followed."""
        self._following: asyncio.Task[None] | None = None

    async def load(self) -> PolicyBundle:
        """Read the files for the first time.

        Raises:
            PolicyInvalid: something is wrong; nothing is in force but the empty bundle.
        """
        # Whatever reload is asked for from now on is heard, even before `follow_requests`.
        for journal in self._followed:
            self._followed[journal] = await _read_end(journal)
        self.bundle = await asyncio.to_thread(self._read)
        await self._tell(
            PolicyLoaded(
                version=self.bundle.version,
                directory=str(self.directory),
                files=self.bundle.files,
                asked_by="start",
            )
        )
        return self.bundle

    async def reload(self, *, asked_by: str = "") -> Reload:
        """Read the files again; wrong ones change nothing but are told and journalled.

        Other processes on the same records follow within a second.
        """
        return await self._reload(asked_by, is_asked=True)

    async def _reload(self, asked_by: str, *, is_asked: bool) -> Reload:
        """Read the files again; unless it is asked for, only a change is journalled."""
        previous = self.bundle.version
        try:
            bundle = await asyncio.to_thread(self._read)
        except PolicyInvalid as error:
            self.refused = mistakes = _list_mistakes(error)
            if not is_asked:
                return Reload(version=previous, previous=previous, mistakes=mistakes)
            await self._tell(
                PolicyRejected(
                    directory=str(self.directory),
                    mistakes=mistakes,
                    kept_version=previous,
                    asked_by=asked_by,
                )
            )
            return Reload(version=previous, previous=previous, mistakes=mistakes)
        self.refused = ()
        if bundle.version == previous and not is_asked:
            return Reload(version=previous, previous=previous)
        self.bundle = bundle
        await self._reload_candidate(asked_by)
        for listener in self._listeners:
            listener(bundle)
        await self._tell(
            PolicyLoaded(
                version=bundle.version,
                previous=previous,
                directory=str(self.directory),
                files=bundle.files,
                asked_by=asked_by,
            )
        )
        return Reload(version=bundle.version, previous=previous)

    def on_change(self, listener: Callable[[PolicyBundle], None]) -> None:
        """Call the listener with each bundle that a reload puts in force."""
        self._listeners.append(listener)

    def reload_on_hangup(self) -> Callable[[], None]:
        """Reload whenever this process gets SIGHUP; returns what ends that again.

        Call it from the running loop of the main thread.
        """
        loop = asyncio.get_running_loop()

        def start() -> None:
            self._keep(loop.create_task(self.reload(asked_by="SIGHUP")))

        loop.add_signal_handler(signal.SIGHUP, start)

        def stop() -> None:
            loop.remove_signal_handler(signal.SIGHUP)

        return stop

    @property
    def status(self) -> PolicyStatus:
        """The policies in force, and what was refused since."""
        return PolicyStatus(
            version=self.bundle.version,
            directory=str(self.directory),
            files=self.bundle.files,
            refused=self.refused,
        )

    def follow_also(self, journal: Journal) -> None:
        """Follow reloads that are told in this journal too, such as that of the operator."""
        self._followed.setdefault(journal, 0)

    def begin_following(self) -> None:
        """Follow reloads of other processes until `close`; safe to repeat."""
        if self._following is None and self._followed:
            self._following = asyncio.create_task(self.follow_requests(), name="policies")

    async def close(self) -> None:
        """Follow no more, and wait until everything that was noticed is journalled."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        await self.settle()

    async def follow_requests(self) -> None:
        """Read the files again whenever another process did or asks for it; until cancelled.

        Costs one question for the end of a chain, twice a second, and nothing in a turn.
        """
        while self._followed:
            await asyncio.sleep(_LOOK_S)
            with contextlib.suppress(StorageError):  # a full disk, a long lock: look again
                await self.look_for_reloads()

    async def look_for_reloads(self) -> None:
        """Read the files again if another process did, or asks for it, since the last look."""
        for journal in tuple(self._followed):
            await self._follow(journal)

    async def _follow(self, journal: Journal) -> None:
        after, end = self._followed[journal], await _read_end(journal)
        while after < end:
            page = await journal.read(SYSTEM_SESSION, after=after, limit=_PAGE, kinds=_FOLLOWED)
            for event in page:
                self._followed[journal] = after = event.session_seq
                await self._heed(event.decode())
            if len(page) < _PAGE:
                break
        self._followed[journal] = max(after, end)

    async def _heed(self, fact: Payload) -> None:
        """Do what a fact asks for; own ones change nothing, and only changes are told."""
        assert isinstance(fact, PolicyLoaded | PolicyRejected | PolicyReloadRequested)
        if Path(fact.directory) != self.directory:
            return
        if isinstance(fact, PolicyReloadRequested):
            await self.reload(asked_by=fact.asked_by or "request")
        elif isinstance(fact, PolicyRejected):
            if fact.mistakes != self.refused:
                await self._reload(fact.asked_by, is_asked=False)
        elif fact.asked_by != "start" and (fact.version != self.bundle.version or self.refused):
            await self._reload(fact.asked_by, is_asked=False)

    # --- shadow mode -----------------------------------------------------------------

    async def watch_candidate(self, directory: Path) -> PolicyBundle:
        """Let a candidate decide beside the policies in force; `shadow` tells differences.

        Raises:
            PolicyInvalid: something is wrong in the candidate; nothing changes.
        """
        candidate = await asyncio.to_thread(
            load_policies, directory, is_net_allowed=self.is_net_allowed
        )
        self._candidate = directory
        self.shadow = Shadow(
            candidate.find_ceiling, self._differences.append, version=candidate.version
        )
        return candidate

    def stop_watching(self) -> None:
        """Let no candidate decide any more."""
        self.shadow = self._candidate = None

    def watch(self, request: CallRequest, decision: Decision, *, agent: str = "") -> None:
        """Let the candidate, if there is one, judge what was decided; `agent` may be a path.

        Differences are journalled at once, beside the call.
        """
        if self.shadow is None or self.shadow.watch(request, decision, agent=agent) is None:
            return
        if self._differences:
            self._keep(asyncio.get_running_loop().create_task(self.write_differences()))

    async def settle(self) -> None:
        """Wait until everything that was noticed is journalled."""
        while self._tasks:
            # Unlike gather, it lets the loop turn when all are done: a callback takes them out.
            await asyncio.wait(self._tasks)

    async def write_differences(self) -> int:
        """Put the differences since the last call into the journal; say how many."""
        found, self._differences[:] = list(self._differences), []
        version = self.shadow.version if self.shadow else ""
        for change in found:
            await self._tell(find_difference(change, candidate_version=version))
        return len(found)

    async def _reload_candidate(self, asked_by: str) -> None:
        """Read the candidate again; a wrong one is told, and the last good one goes on."""
        if self._candidate is None:
            return
        version = self.shadow.version if self.shadow is not None else ""
        try:
            await self.watch_candidate(self._candidate)
        except PolicyInvalid as error:
            await self._tell(
                PolicyRejected(
                    directory=str(self._candidate),
                    mistakes=_list_mistakes(error),
                    kept_version=version,
                    asked_by=asked_by,
                )
            )

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _read(self) -> PolicyBundle:
        doubts = (
            self._unvouched.mistakes(lambda: [self.directory])
            if self._unvouched is not None
            else []
        )
        if doubts:
            lines = [str(one) for one in doubts]
            raise PolicyInvalid(detail="\n".join(f"  - {one}" for one in lines), mistakes=lines)
        return load_policies(self.directory, is_net_allowed=self.is_net_allowed)

    async def _tell(self, fact: Payload) -> None:
        if self._journal is not None:
            await self._journal.append(SYSTEM_SESSION, [fact])


async def _read_end(journal: Journal) -> int:
    head = await journal.head(SYSTEM_SESSION)
    return head.session_seq if head is not None else 0


def _list_mistakes(error: PolicyInvalid) -> tuple[str, ...]:
    listed = error.context.get("mistakes")
    return tuple(map(str, listed)) if isinstance(listed, list) else (str(error),)
