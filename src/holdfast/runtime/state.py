"""State outside runs: in the name of whoever owns the client, with all rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.errors import PermissionDenied
from holdfast.hooks import Hooks
from holdfast.journal import Journal
from holdfast.sessions import make_new_session
from holdfast.settings import Settings
from holdfast.state import (
    FULL_ACCESS,
    JournalStateStore,
    StateAction,
    StateEnvironment,
    StateManager,
    StateOwner,
)

_USER = "local"
"""A state directory belongs to one person."""


class NoOtherUsers:
    """Allows everything but what belongs to another user."""

    def check(self, action: StateAction, target: str, *, is_own: bool) -> None:
        """Return unless it is another user's; raises PermissionDenied."""
        if not self.may(action, target, is_own=is_own):
            raise PermissionDenied(
                permission=f"state_{action}", target=target, because="it is another user's"
            )

    def may(self, action: StateAction, target: str, *, is_own: bool) -> bool:
        """Say whether it is nobody else's."""
        return not target.startswith("user:")


class StateService:
    """Opens state for callers of operations."""

    def __init__(
        self,
        settings: Settings,
        journal: Journal,
        hooks: Hooks,
        tenant: str,
        find_session: Callable[[str], Awaitable[str]],
    ) -> None:
        """Keep state in this journal, as facts of this tenant; a run's session is found so."""
        self._settings = settings
        self._journal = journal
        self._hooks = hooks
        self._tenant = tenant
        self._find_session = find_session

    def manager(self, user: str = "", *, sees_all: bool = False) -> StateManager:
        """Return the state of all scopes; `user` and `project` are this user's and workspace's.

        Without a user it is the owner's, who may reach everything; a user reaches no other's,
        unless it `sees_all`.
        """
        return StateManager(
            StateEnvironment(
                store=JournalStateStore(self._journal),
                clock=self._journal.clock,
                hooks=self._hooks,
                owner=StateOwner(
                    tenant=self._tenant,
                    user=user or _USER,
                    # That of sessions in this workspace.
                    project=make_new_session(
                        "State", directory=self._settings.workspace
                    ).created.project_id,
                ),
                access=FULL_ACCESS if sees_all or not user else NoOtherUsers(),
                most_bytes=self._settings.state.max_value_bytes,
            ),
            session_of_run=self._find_session,
        )


__all__ = ["StateService"]
