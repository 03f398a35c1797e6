"""What every part of the client stands on: settings, the journal, opening and closing."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.agents import AGENTS
from holdfast.errors import UsageError
from holdfast.journal import Journal, SqliteStore
from holdfast.observability import process_redactor
from holdfast.orchestration.triggers.book import TRIGGER_PROJECTIONS
from holdfast.policy.approvals import APPROVALS, ApprovalTerms, OnAsk
from holdfast.policy.shared_budget import TENANTS
from holdfast.redaction import Redactor
from holdfast.runs.children import CHILDREN
from holdfast.sessions import SESSION_PROJECTIONS, SessionManager
from holdfast.settings import load_settings
from holdfast.settings.guarded import governing_places, secret_places, unvouched_settings
from holdfast.settings.load import config_error
from holdfast.tools.state import TOOL_STATE
from holdfast.turns import LeaseKeeper, TurnQueue

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.settings.unvouched import UnvouchedSettings

JOURNAL_FILE = "journal.db"
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def forked() -> UsageError:
    """Say that a client belongs to the process from which this one was forked."""
    return UsageError(detail="This client was made before this process was forked; make a new one.")


class ClientBase:
    """Opens the journal of one state directory with the first call."""

    def __init__(
        self,
        base_dir: str | os.PathLike[str] | None = None,
        *,
        storage_path: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
        redactor: Redactor | None = None,
        tenant: str = "",
    ) -> None:
        """Read and check the settings; files are opened with the first call.

        `tenant` is on whose account runs of this client spend, and whose memories it keeps
        and finds; by default the setting of that name.

        What the redactor finds never reaches the state directory; by default it knows the
        keys of settings, environment and secrets file, and the formats of common keys.

        Raises:
            ConfigError: the settings are wrong; all mistakes are named.
        """
        if base_dir is not None and storage_path is not None:
            raise UsageError(detail="Give base_dir or storage_path; they mean the same.")
        self.settings = settings if settings is not None else load_settings().settings
        chosen = base_dir if base_dir is not None else storage_path
        # Absolute, because a tool may change the directory of the process.
        self.base_dir = Path(
            chosen if chosen is not None else self.settings.storage_path
        ).absolute()
        if self.base_dir != self.settings.storage_path:
            # Who loaded the settings did not know of this directory, and what is noted there.
            self._refuse_doubtful_settings()
        self.tenant = tenant or self.settings.tenant
        if not _TENANT.fullmatch(self.tenant):
            raise UsageError(detail=f"{self.tenant!r} cannot be the name of a tenant.")
        self._process = os.getpid()
        self._one_at_a_time: asyncio.Lock | None = None
        self._is_open = False
        self._is_closed = False
        store = SqliteStore(
            self.base_dir / JOURNAL_FILE,
            projections=(
                *SESSION_PROJECTIONS,
                AGENTS,
                APPROVALS,
                TENANTS,
                CHILDREN,
                TOOL_STATE,
                *TRIGGER_PROJECTIONS,
            ),
            durability=self.settings.storage.durability,
        )
        self.redactor = redactor if redactor is not None else process_redactor(self.settings)
        self._journal = Journal(store, redactor=self.redactor)
        self._keeper = LeaseKeeper(self._journal, ttl_s=self.settings.sessions.lease_ttl_s)
        self._sessions = SessionManager(self._journal, self._keeper)
        self._turns = TurnQueue(self._sessions, self._keeper)

    @property
    def _hidden(self) -> tuple[str, ...]:
        """What no tool and no program may see: the records, and the files with keys."""
        return (str(self.base_dir), *map(str, secret_places(self.settings)))

    @property
    def _read_only(self) -> tuple[str, ...]:
        """What no tool and no program may change: policies and settings."""
        return tuple(map(str, governing_places(self.settings)))

    @property
    def _gaps(self) -> UnvouchedSettings:
        """What watches over those of these that are missing."""
        return unvouched_settings(self.settings, self.base_dir)

    def _refuse_doubtful_settings(self) -> None:
        settings = self.settings
        doubts = self._gaps.mistakes(
            lambda: (*governing_places(settings), *secret_places(settings))
        )
        if doubts:
            raise config_error(doubts)

    async def __aenter__(self) -> Self:
        """Open the journal."""
        await self._ready()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the journal."""
        await self.close()

    async def close(self) -> None:
        """Finish what was accepted and give everything back; safe to repeat."""
        self._is_closed = True
        async with self._lock():
            if self._is_open:
                self._is_open = False
                await self._turns.close()
                await asyncio.to_thread(self._keeper.close)
                await self._journal.close()

    async def journal(self) -> Journal:
        """Return the open journal, for what the client does not cover."""
        return (await self._ready()).journal

    async def session_manager(self) -> SessionManager:
        """Return the sessions of the open journal, for what the client does not cover."""
        return await self._ready()

    async def turns(self) -> TurnQueue:
        """Return the turn queue of the open journal."""
        await self._ready()
        return self._turns

    def approval_terms(self, on_ask: OnAsk = "deny") -> ApprovalTerms:
        """Return the terms of the settings, with what becomes of calls that nobody answers."""
        chosen = self.settings.approvals
        return ApprovalTerms(
            on_ask=on_ask, expires_after_s=chosen.expires_after_s, required=chosen.required
        )

    async def _ready(self) -> SessionManager:
        if os.getpid() != self._process:
            # It would write as the same owner, on the same connection, beside the other one.
            raise forked()
        if not self._is_open:
            async with self._lock():
                if self._is_closed:
                    raise UsageError(detail="This client is closed; make a new one.")
                if not self._is_open:
                    await self._journal.open()
                    self._is_open = True
        return self._sessions

    def _lock(self) -> asyncio.Lock:
        if self._one_at_a_time is None:
            self._one_at_a_time = asyncio.Lock()
        return self._one_at_a_time
