"""The policies in force: loaded, checked, and replaced while everything runs.

A reload puts a whole new bundle in the place of the old one, or changes nothing. The caller that
decides takes the bundle once per call, so a call that has begun keeps what it began with.
What was spent of a budget is kept elsewhere; a reload cannot reset it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from holdfast.errors import PolicyInvalid
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
        self._seen: int | None = None
        self._candidate: Path | None = None

    async def load(self) -> PolicyBundle:
        """Read the files for the first time.

        Raises:
            PolicyInvalid: something is wrong; nothing is in force but the empty bundle.
        """
        if self._journal is not None:
            # The caller that asks for a reload from now on is heard, even before `follow_requests`.
            self._seen = await self._journal.read_last_seq()
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
        """Read the files again; wrong ones change nothing but are told and journalled."""
        previous = self.bundle.version
        try:
            bundle = await asyncio.to_thread(self._read)
        except PolicyInvalid as error:
            mistakes = _list_mistakes(error)
            await self._tell(
                PolicyRejected(
                    directory=str(self.directory),
                    mistakes=mistakes,
                    kept_version=previous,
                    asked_by=asked_by,
                )
            )
            return Reload(version=previous, previous=previous, mistakes=mistakes)
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

    async def follow_requests(self) -> None:
        """Reload whenever `holdfast policies reload` asks for it; runs until cancelled."""
        if self._journal is None:
            return
        kinds = (PolicyReloadRequested.kind,)
        async for event in self._journal.subscribe(
            after=self._seen, patterns=kinds, session_id=SYSTEM_SESSION
        ):
            asked = event.expect(PolicyReloadRequested)
            if Path(asked.directory) == self.directory:
                await self.reload(asked_by=asked.asked_by or "request")

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


def _list_mistakes(error: PolicyInvalid) -> tuple[str, ...]:
    listed = error.context.get("mistakes")
    return tuple(map(str, listed)) if isinstance(listed, list) else (str(error),)
