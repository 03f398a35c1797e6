"""StateManager: all scopes of one caller, by address."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from holdfast.canonical import JsonValue
from holdfast.errors import NotFound, StateConflict, UsageError
from holdfast.ids import make_random_token
from holdfast.state.address import ScopeKind, StateScope, parse_address
from holdfast.state.conflicts import Resolver
from holdfast.state.entry import Changes, StateChange, StateEntry, StatePage, StateSnapshot
from holdfast.state.environment import StateEnvironment
from holdfast.state.events import StateChanged
from holdfast.state.schema import StateSchema
from holdfast.state.scoped import ScopedState

_PAGE = 500


class StateManager(msgspec.Struct, frozen=True, eq=False):
    """State by address: `scope/key` for the caller's own, `scope:id/key` for another's.

    Every method is that of the `ScopedState` of the address, where it is described. Runs have one
    with the rights of their agent (`context.execution.get(StateManager)`), the client has one
    with all rights.
    """

    environment: StateEnvironment
    tool: str = ""
    session_of_run: Callable[[str], Any] | None = None
    """Finds the session of a run that is not the caller's own."""
    admits: Callable[[StateScope], Awaitable[None]] | None = None
    """Asked about every scope before it is used; raises NotFound where that is another user's."""

    def scope(self, kind: ScopeKind, id: str = "") -> ScopedState:
        """Return the state of a scope: the caller's own, or that with an id.

        Raises:
            UsageError: each scope has to be admitted first; use addresses.
        """
        if self.admits is not None:
            raise UsageError(detail="Name values by address here: user/KEY, session:ID/KEY.")
        found = self.environment.find_scope(kind, id, self.tool)
        return ScopedState(self.environment, found, self.tool)

    async def locate(self, address: str, *, may_be_prefix: bool = False) -> tuple[ScopedState, str]:
        """Return the scope and the key of an address; raises UsageError."""
        parsed = parse_address(address, may_be_prefix=may_be_prefix)
        found = self.environment.find_scope(parsed.kind, parsed.id, self.tool)
        if found.kind == "run" and not found.session_id:
            if self.session_of_run is None:
                raise UsageError(detail=f"Only a run itself reaches its state, not {address!r}.")
            session_id: str = await self.session_of_run(found.id)
            found = msgspec.structs.replace(found, session_id=session_id)
        if self.admits is not None:
            await self.admits(found)
        return ScopedState(self.environment, found, self.tool), parsed.key

    async def get(
        self,
        address: str,
        default: JsonValue = None,
        *,
        schema: StateSchema[Any] | type[Any] | None = None,
    ) -> JsonValue:
        """Return a value, or the default; see `ScopedState.get`."""
        state, key = await self.locate(address)
        if schema is None:
            return await state.get(key, default)
        return await state.get(key, default, schema=schema)

    async def entry(self, address: str) -> StateEntry | None:
        """Return a value with its version and labels; see `ScopedState.entry`."""
        state, key = await self.locate(address)
        return await state.entry(key)

    async def set(
        self,
        address: str,
        value: JsonValue,
        *,
        expected: int | None = None,
        on_conflict: str | Resolver = "ask-again",
        ttl_s: float | None = None,
        labels: Sequence[str] = (),
        schema: StateSchema[Any] | type[Any] | None = None,
    ) -> StateEntry:
        """Set a value; see `ScopedState.set`."""
        state, key = await self.locate(address)
        return await state.set(
            key,
            value,
            expected=expected,
            on_conflict=on_conflict,
            ttl_s=ttl_s,
            labels=labels,
            schema=schema,
        )

    async def delete(self, address: str, *, expected: int | None = None) -> bool:
        """Remove a value; see `ScopedState.delete`."""
        state, key = await self.locate(address)
        return await state.delete(key, expected=expected)

    async def update(
        self,
        address: str,
        function: Callable[[Any], Any],
        *,
        default: JsonValue = None,
        retries: int = 100,
        ttl_s: float | None = None,
        labels: Sequence[str] = (),
        schema: StateSchema[Any] | type[Any] | None = None,
    ) -> StateEntry:
        """Set a value to what a function makes of it; see `ScopedState.update`."""
        state, key = await self.locate(address)
        return await state.update(
            key,
            function,
            default=default,
            retries=retries,
            ttl_s=ttl_s,
            labels=labels,
            schema=schema,
        )

    async def list(self, prefix: str, *, limit: int = 100, cursor: str = "") -> StatePage:
        """Return values by prefix, such as `user/` or `user/settings.`; see `ScopedState.list`."""
        state, key = await self.locate(prefix, may_be_prefix=True)
        return await state.list(key, limit=limit, cursor=cursor)

    async def history(self, address: str, *, limit: int = 100, before: int = 0) -> Changes:
        """Return the changes of a value, newest first; see `ScopedState.history`."""
        state, key = await self.locate(address)
        return await state.history(key, limit=limit, before=before)

    async def watch(
        self, prefix: str, *, after: int | None = None
    ) -> AsyncGenerator[StateChange, None]:
        """Yield changes as they happen, here or in another process; see `ScopedState.watch`."""
        state, key = await self.locate(prefix, may_be_prefix=True)
        async with contextlib.aclosing(state.watch(key, after=after)) as changes:
            async for change in changes:
                yield change

    async def snapshot(
        self, scope: str, *, at: int | None = None, at_seq: int | None = None
    ) -> StateSnapshot:
        """Return all values of a scope, now or at an event; see `ScopedState.snapshot`."""
        state, _ = await self.locate(scope, may_be_prefix=True)
        return await state.snapshot(at=at, at_seq=at_seq)

    async def restore(self, scope: str, to: StateSnapshot | int) -> int:
        """Make all values of a scope what they were; see `ScopedState.restore`."""
        state, _ = await self.locate(scope, may_be_prefix=True)
        return await state.restore(to)

    # --- upkeep -----------------------------------------------------------------------

    async def forget(self, scope: str, *, reason: str = "") -> bool:
        """Remove a scope and its history for good, such as a user who leaves.

        Only that it existed is kept. Says whether there was one.

        Raises:
            UsageError: the values belong to a session; delete that.
        """
        state, key = await self.locate(scope, may_be_prefix=True)
        if key or not state.bound.is_own_chain:
            raise UsageError(
                detail=f"{scope!r} cannot be forgotten alone: delete its value, or its session."
            )
        state.check("write", "")
        self.environment.last.clear()
        return await self.environment.store.forget(
            state.bound, owner=f"state_{make_random_token(8)}", reason=reason or "asked for"
        )

    async def sweep(self) -> int:
        """Remove values whose time is up, in all scopes; returns how many. Safe to repeat.

        They have not been seen since their time was up; this tells watches, and makes room.
        """
        env, removed = self.environment, 0
        while rows := await env.store.list_overdue(env.clock.now(), _PAGE):
            for chain, row in rows:
                fact = StateChanged(
                    key=row.key,
                    version=row.version + 1,
                    scope=_find_kind(chain),
                    scope_id=chain.split(":", 3)[-1],
                    previous=row.number,
                    cause="expire",
                )
                try:
                    await env.store.write(StateScope("session", chain), (fact,), env.origin)
                except (StateConflict, NotFound):
                    continue  # another writer has given it new life, or removed it altogether
                removed += 1
        return removed

    async def trim(self, *, ttl_s: float | None = None, keep_versions: int | None = None) -> int:
        """Remove values that were replaced, in all scopes but sessions and runs; returns how many.

        Those replaced by a change and written longer ago than `ttl_s`, and those beyond the
        newest `keep_versions` of a key. What is set now stays, and so does that it was changed.
        """
        if ttl_s is None and keep_versions is None:
            return 0
        env = self.environment
        before = None if ttl_s is None else env.clock.now() - ttl_s
        return await env.store.trim(env.owner.tenant, before=before, keep=keep_versions)


def _find_kind(chain: str) -> str:
    parts = chain.split(":", 3)
    return parts[2] if len(parts) > 2 else "session"


__all__ = ["StateManager"]
