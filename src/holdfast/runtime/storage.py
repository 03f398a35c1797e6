"""The records themselves: verified, rebuilt, cleaned up, written out as plain files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from holdfast import private_files
from holdfast.agents import AgentRegistry, export_agent_files
from holdfast.artifacts import ARTIFACTS, ArtifactFilter, collect, collect_digests
from holdfast.errors import UsageError
from holdfast.journal import Condition, RowQuery
from holdfast.messages import Message, TokenUsage
from holdfast.orchestration import LOOP_AGENT
from holdfast.providers import PICO, Charge, LedgerScope, UsageLedger, UsageTotals
from holdfast.runs import CHILDREN
from holdfast.runtime.artifacts import ArtifactService
from holdfast.runtime.memory import MemoryService
from holdfast.sessions import (
    RUNS,
    MessageCreated,
    RetentionPolicy,
    RetentionReport,
    Run,
    RunStatus,
    SessionForked,
    SessionManager,
    clean_up,
    export_layout_files,
)
from holdfast.tools import export_execution_files

if TYPE_CHECKING:
    from holdfast.runtime.loops import LoopService

_KINDS = frozenset({MessageCreated.kind, SessionForked.kind})
_PAGE = 500
_MOST_RUNS = 100_000
_MOST_ROWS = 10_000


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was used and what it cost: in total, and by agent, run, session, model and day."""

    total: UsageTotals
    by_agent: dict[str, UsageTotals]
    by_run: dict[str, UsageTotals]
    by_session: dict[str, UsageTotals]
    by_model: dict[str, UsageTotals]
    by_day: dict[str, UsageTotals] = {}
    """Days of UTC, as `2026-01-31`."""


class StorageService:
    """Reads, checks and copies what is stored."""

    def __init__(
        self,
        sessions: SessionManager,
        agents: AgentRegistry,
        memory: MemoryService,
        artifacts: ArtifactService,
        loops: Callable[[], LoopService],
    ) -> None:
        """Work on these records."""
        self._artifacts = artifacts
        self._sessions = sessions
        self._journal = sessions.journal
        self._agents = agents
        self._memory = memory
        self._loops = loops

    async def runs(
        self,
        *,
        status: RunStatus | None = None,
        is_kind: Callable[[Run], bool] = lambda run: True,
        is_top: bool = False,
        limit: int = 50,
    ) -> list[Run]:
        """Return runs, newest first; with `is_top` only those that no other run has started."""
        where = (Condition("status", "=", status),) if status is not None else ()
        found: list[Run] = []
        after: tuple[float, str] | None = None
        while len(found) < limit:
            query = RowQuery(
                projection=RUNS,
                where=where,
                order="time_queued",
                descending=True,
                after=after,
                limit=_PAGE,
            )
            rows = await self._journal.rows(query)
            below = await self._list_below([keyed.key for keyed in rows]) if is_top else set()
            found += [
                keyed.row for keyed in rows if is_kind(keyed.row) and keyed.row.id not in below
            ]
            if len(rows) < _PAGE:
                break
            after = (rows[-1].row.time_queued, rows[-1].key)
        return found[:limit]

    async def _list_below(self, runs: list[str]) -> set[str]:
        """Return which of these runs another one has started."""
        where = (Condition("id", "in", tuple(runs)),)
        query = RowQuery(projection=CHILDREN, where=where, limit=len(runs) or 1)
        return {keyed.row.id for keyed in await self._journal.rows(query)}

    async def delete_session(self, session_id: str, *, reason: str) -> None:
        """Remove a session for good, with memories, artifacts and loop files that are its own."""
        name = (await self._sessions.get_session(session_id)).id
        query = RowQuery(projection=RUNS, session_id=name, limit=1_000)
        runs = [keyed.row for keyed in await self._journal.rows(query)]
        await self._memory.forget_session(name, reason=reason)
        contents = await self._list_contents(name)
        await self._sessions.delete_session(name, reason=reason)
        if contents:
            # Killed before this, the next collection removes them.
            await collect_digests(await self._artifacts.opened(), contents)
        if any(run.agent == LOOP_AGENT for run in runs):
            await self._loops().remove_files(runs)

    async def export_layout(self, target: Path) -> int:
        """Write everything as plain JSON files below a directory; returns their number.

        The `run-<id>.jsonl` of a loop holds its agents' sessions too, and can be imported.
        """
        parts = (
            export_layout_files(self._sessions),
            export_execution_files(self._sessions),
            export_agent_files(self._agents),
            self._iterate_memory_files(),
        )
        count = 0
        for files in parts:
            async for name, content in files:
                await asyncio.to_thread(write_whole, target / name, content)
                count += 1
        count += await self._export_artifacts(target / "storage" / "artifact")
        for run in await self.runs(is_kind=_is_loop, limit=_MOST_RUNS):
            await self._loops().export(run.id, target / f"run-{run.id}.jsonl")
        return count

    async def usage(self, session_id: str) -> UsageReport:
        """Return what a session used, or all sessions; read from the answers themselves."""
        ledger = UsageLedger()
        if session_id:
            session = await self._sessions.get_session(session_id)
            await self._count_session(ledger, session.id)
        else:
            async for each in self._iterate_all_sessions():
                await self._count_session(ledger, each)
        scopes: tuple[LedgerScope, ...] = ("agent", "run", "session", "model", "day")
        by = {f"by_{scope}": ledger.read_all_of(scope) for scope in scopes}
        return UsageReport(total=ledger.of("all"), **by)

    async def clean_up(self, policy: RetentionPolicy) -> RetentionReport:
        """Remove what a policy no longer wants, and the artifacts that go with it."""
        report = await clean_up(self._sessions, policy)
        if await self._journal.rows(RowQuery(projection=ARTIFACTS, limit=1)) or (
            report.sessions_deleted or report.events_redacted
        ):
            await collect(await self._artifacts.opened())
        return report

    # --- inside -----------------------------------------------------------------------

    async def _export_artifacts(self, folder: Path) -> int:
        """Write {id}.json and the content as {id}.bin for every artifact."""
        if not await self._journal.rows(RowQuery(projection=ARTIFACTS, limit=1)):
            return 0
        store = await self._artifacts.opened()
        wanted, cursor, count = ArtifactFilter(has_old_versions=True), "", 0
        while True:
            page = await store.list(wanted, limit=_PAGE, cursor=cursor)
            for one in page.items:
                known = msgspec.json.format(msgspec.json.encode(one), indent=2) + b"\n"
                await asyncio.to_thread(write_whole, folder / f"{one.id}.json", known)
                with open_whole_file(folder / f"{one.id}.bin") as file:
                    async for piece in store.stream(one.id):
                        await asyncio.to_thread(file.write, piece)
                count += 2
            cursor = page.next_cursor
            if not cursor:
                return count

    async def _list_contents(self, session_id: str) -> list[str]:
        """Return the digests of a session's own artifacts."""
        query = RowQuery(projection=ARTIFACTS, session_id=session_id, limit=_MOST_ROWS)
        return [keyed.row.digest for keyed in await self._journal.rows(query)]

    async def _iterate_memory_files(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield storage/memory/{session}/{id}.json; `-` stands for memories of no session."""
        if not await self._memory.has_any():
            return
        manager = await self._memory.manager()
        after = ""
        while page := await manager.list_all_memories(limit=_PAGE, after=after):
            for entry in page:
                content = msgspec.json.format(msgspec.json.encode(entry), indent=2)
                yield f"storage/memory/{entry.session_id or '-'}/{entry.id}.json", content + b"\n"
            after = page[-1].id

    async def _iterate_all_sessions(self) -> AsyncGenerator[str, None]:
        cursor = ""
        while True:
            page = await self._sessions.list_sessions(
                sort="time_created", descending=False, limit=_PAGE, cursor=cursor
            )
            for session in page.items:
                yield session.id
            cursor = page.next_cursor
            if not cursor:
                return

    async def _count_session(self, ledger: UsageLedger, session_id: str) -> None:
        after = 0
        found: list[Message] = []
        while page := await self._journal.read(session_id, after=after, limit=_PAGE, kinds=_KINDS):
            after = page[-1].session_seq
            for event in page:
                fact = event.decode()
                if isinstance(fact, SessionForked):
                    found.clear()
                elif isinstance(fact, MessageCreated) and _was_paid(fact.message):
                    found.append(msgspec.structs.replace(fact.message, session_id=session_id))
        for message in found:
            ledger.add(message, _charge_of(message))


def _is_loop(run: Run) -> bool:
    return run.agent == LOOP_AGENT


def _was_paid(message: Message) -> bool:
    """Answers, and the summaries that a model wrote for a compaction."""
    return message.role == "assistant" or message.usage is not None or message.cost_usd > 0


def _charge_of(message: Message) -> Charge:
    is_known = message.metadata.get("cost") != "unknown"
    return Charge(
        usage=message.usage or TokenUsage(),
        cost_pico_usd=round(message.cost_usd * PICO) if is_known else None,
        is_estimate=message.metadata.get("usage") == "estimate",
    )


@contextlib.contextmanager
def open_whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Write a file, readable by its owner only, that is seen complete or not at all.

    Raises:
        UsageError: the place cannot be written; nothing is left behind.
    """
    try:
        with private_files.open_whole_file(path) as file:
            yield file
    except OSError as error:
        raise UsageError(detail=f"{path} cannot be written: {error.strerror}") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is seen complete or not at all."""
    with open_whole_file(path) as file:
        file.write(content)


__all__ = ["StorageService", "UsageReport", "open_whole_file", "write_whole"]
