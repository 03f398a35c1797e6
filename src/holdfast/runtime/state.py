"""State outside runs: in the name of whoever owns the client, with all rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from holdfast.errors import NotFound, PermissionDenied
from holdfast.hooks import Hooks
from holdfast.journal import Journal
from holdfast.sessions import make_new_session
from holdfast.settings import Settings
from holdfast.state import (
    FULL_ACCESS,
    JournalStateStore,
    LastChanges,
    StateAction,
    StateEnvironment,
    StateLimits,
    StateManager,
    StateOwner,
    StateScope,
)

_USER = "local"
"""A state directory belongs to one person."""


def read_state_limits(settings: Settings) -> StateLimits:
    """Return the limits that the settings name."""
    return StateLimits(value_bytes=settings.state.max_value_bytes, keys=settings.state.max_keys)


class OwnScopes:
    """Allows a user its own scope, and the sessions that the service has found to be its own."""

    def check(self, action: StateAction, target: str, *, is_own: bool) -> None:
        """Return if it is the caller's own; raises PermissionDenied."""
        if not self.may(action, target, is_own=is_own):
            raise PermissionDenied(
                permission=f"state_{action}",
                target=target,
                because="it is another user's, or belongs to all",
            )

    def may(self, action: StateAction, target: str, *, is_own: bool) -> bool:
        """Say whether it is the caller's own."""
        return target.startswith(("user/", "session:", "run:"))


class StateService:
    """Opens state for callers of operations."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        hooks: Hooks,
        tenant: str,
        find_session: Callable[[str], Awaitable[str]],
        find_owner: Callable[[str], Awaitable[str]],
    ) -> None:
        """Keep state in this journal, as facts of this tenant.

        `find_session` names the session of a run, `find_owner` the subject of a session.
        """
        self._settings = settings
        self._journal = journal
        self._hooks = hooks
        self.tenant = tenant
        self._find_session = find_session
        self._find_owner = find_owner
        self.last = LastChanges()
        """What was written here last, for every caller."""

    def manager(self, user: str = "", *, sees_all: bool = False) -> StateManager:
        """Return the state of all scopes; `user` and `project` are this user's and workspace's.

        Without a user it is the owner's, who may reach everything. A user reaches its own scope,
        and the sessions and runs that were begun in its name; all others do not exist for it,
        and what belongs to all is refused, unless it `sees_all`.
        """
        is_open = sees_all or not user
        return StateManager(
            StateEnvironment(
                store=JournalStateStore(self._journal),
                clock=self._journal.clock,
                hooks=self._hooks,
                owner=StateOwner(
                    tenant=self.tenant,
                    user=user or _USER,
                    # That of sessions in this workspace.
                    project=make_new_session(
                        "State", directory=self._settings.workspace
                    ).created.project_id,
                ),
                access=FULL_ACCESS if is_open else OwnScopes(),
                limits=read_state_limits(self._settings),
                last=self.last,
            ),
            session_of_run=self._find_session,
            admits=None if is_open else partial(self._admit, user),
        )

    async def _admit(self, user: str, scope: StateScope) -> None:
        """Return unless a scope is a session, or a run of one, that is another user's."""
        session_id = scope.id if scope.kind == "session" else scope.session_id
        if scope.kind in ("session", "run") and await self._find_owner(session_id) != user:
            raise NotFound(kind=scope.kind, value=scope.id)

    async def clean_up(self) -> None:
        """Remove values whose time is over, and what the settings no longer want of the past."""
        manager, wanted = self.manager(), self._settings.state
        await manager.sweep()
        await manager.trim(ttl_s=wanted.history_ttl_s, keep_versions=wanted.keep_versions)


__all__ = ["StateService"]
