"""ScopedState: the values of one scope, as tools, workflows and applications use them."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeVar, overload

from msgspec.structs import replace

from holdfast.canonical import JsonValue
from holdfast.errors import StateConflict, UsageError
from holdfast.hooks import StateMigrated
from holdfast.state import writing
from holdfast.state.address import ScopeKind, check_key, check_kind
from holdfast.state.conflicts import Resolver, check_strategy
from holdfast.state.entry import (
    Changes,
    StateChange,
    StateEntry,
    StatePage,
    StateSnapshot,
    make_change,
    make_entry,
)
from holdfast.state.place import StatePlace
from holdfast.state.schema import StateSchema, as_schema
from holdfast.state.snapshots import restore_snapshot, take_snapshot
from holdfast.state.store import StateRow
from holdfast.state.writing import Write

T = TypeVar("T")
_MOST_LISTED = 1_000
_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05


class ScopedState(StatePlace, frozen=True, eq=False):
    """The state of one scope: JSON values by key, each with a version.

    Values survive the run, the process and a crash. A read tells the caller's context of the
    labels of the value; a write gives it the labels of everything that the caller has read.
    `scope` reaches the other scopes, as far as the caller's rules give them.
    """

    def scope(self, kind: ScopeKind, id: str = "") -> ScopedState:
        """Return the state of another scope: the caller's own, or that with an id.

        Raises:
            UsageError: there is no such kind of scope, or none of one's own here.
        """
        found = self.environment.find_scope(check_kind(kind), id, self.tool)
        return ScopedState(self.environment, found, self.tool)

    @property
    def internal(self) -> ScopedState:
        """The same scope with the keys that only Holdfast writes; for its own tools."""
        return replace(self, allows_reserved=True)

    # --- reading ----------------------------------------------------------------------

    @overload
    async def get(self, key: str, default: JsonValue = None) -> JsonValue: ...
    @overload
    async def get(
        self, key: str, default: T | None = None, *, schema: StateSchema[T] | type[T]
    ) -> T | None: ...

    async def get(
        self,
        key: str,
        default: JsonValue = None,
        *,
        schema: StateSchema[Any] | type[Any] | None = None,
    ) -> JsonValue:
        """Return the value of a key, or the default; with a schema, as its newest type.

        Raises:
            PermissionDenied: the caller's rules do not give it.
            StateUnreadable: it does not fit the schema.
        """
        row = await self.show(key, await self.read_row(key))
        if row is None:
            return default
        return (
            row.data["value"]
            if schema is None
            else await self._convert_value(row, as_schema(schema))
        )

    async def entry(self, key: str) -> StateEntry | None:
        """Return a value with its version and labels, `None` if there is none."""
        row = await self.show(key, await self.read_row(key))
        return None if row is None else make_entry(self.bound, row)

    async def list(self, prefix: str = "", *, limit: int = 100, cursor: str = "") -> StatePage:
        """Return values whose keys begin so, in order; `cursor` is that of the page before.

        What the caller's rules do not give is left out.
        """
        _check_whole("limit", limit, 1, _MOST_LISTED)
        for text in (prefix, cursor):
            if text:
                check_key(text)
        env, cut = self.environment, len(self.bound.prefix)
        rows = await env.store.list(
            self.bound, prefix, after=cursor, limit=limit + 1, now=env.clock.now()
        )
        found = []
        for row in rows[:limit]:
            key = row.key[cut:]
            if self.may_read(key):
                shown = await self.show(key, row)
                if shown is not None:
                    found.append(make_entry(self.bound, shown))
        last = rows[limit - 1].key[cut:] if len(rows) > limit else ""
        return StatePage(entries=tuple(found), cursor=last)

    async def history(self, key: str, *, limit: int = 100, before: int = 0) -> Changes:
        """Return the changes of a key, newest first; `before` is the number of the last seen."""
        _check_whole("limit", limit, 1, _MOST_LISTED)
        self.check("read", check_key(key))
        env, bound = self.environment, self.bound
        events = await env.store.history(bound, key, before=before, limit=limit)
        found = [make_change(bound, event) for event in events]
        for change in found:
            env.taint.add(change.labels)
        return found

    async def watch(
        self, prefix: str = "", *, after: int | None = None
    ) -> AsyncGenerator[StateChange, None]:
        """Yield changes of keys that begin so, made here or in another process, as they happen.

        From now on, or after the `seq` of a change that was seen; none is left out and none comes
        twice. A value whose time is up is told of when it is removed (`expire`).
        """
        if prefix:
            check_key(prefix)
        self.check("read", prefix)
        feed = self.environment.store.changes(self.bound, after=after)
        async with contextlib.aclosing(feed):
            async for event in feed:
                change = make_change(self.bound, event)
                if change.key.startswith(prefix) and self.may_read(change.key):
                    self.environment.taint.add(change.labels)
                    yield change

    # --- writing ----------------------------------------------------------------------

    async def set(
        self,
        key: str,
        value: JsonValue,
        *,
        expected: int | None = None,
        on_conflict: str | Resolver = "ask-again",
        ttl_s: float | None = None,
        labels: Sequence[str] = (),
        schema: StateSchema[Any] | type[Any] | None = None,
    ) -> StateEntry:
        """Set the value of a key and return it with its new version.

        Without `expected` the last writer wins. With it this is compare-and-set: the version
        that was read, 0 for a key that must not exist. If the key is at another version by now,
        `on_conflict` decides: `ask-again` refuses, `last-writer` writes all the same, `merge`
        joins the changes of both to a JSON object, a function of a `ConflictCase` returns the
        value to store. Every conflict is journalled. After `ttl_s` seconds the value is gone.

        Raises:
            StateConflict: the key is at another version, and nothing resolved that.
            PermissionDenied: the caller's rules do not give it.
            UsageError: the value has no JSON form, is too large, or an argument is wrong.
        """
        strategy = check_strategy(on_conflict)
        if expected is not None:
            _check_whole("expected", expected, 0, 2**53)
        self.check("write", check_key(key))
        wanted = await writing.prepare(self, key, value, ttl_s=ttl_s, labels=labels, schema=schema)
        env, bound = self.environment, self.bound
        if expected is None and (known := env.last.find(bound, key)) is not None:
            with contextlib.suppress(StateConflict):
                return await writing.write(self, key, known, wanted)
        row = await env.store.read(bound, key)
        if expected is None or _is_at(row, expected, env.clock.now()):
            try:
                return await writing.write(self, key, row, wanted)
            except StateConflict:
                if expected is None:
                    return await writing.overwrite(self, key, wanted)
            row = await env.store.read(self.bound, key)
        return await writing.resolve(
            self, key, row, wanted, expected=expected, strategy=strategy, on_conflict=on_conflict
        )

    async def delete(self, key: str, *, expected: int | None = None) -> bool:
        """Remove the value of a key; says whether there was one. Its history stays.

        Raises:
            StateConflict: the key is not at the version `expected`.
        """
        if expected is not None:
            _check_whole("expected", expected, 0, 2**53)
        self.check("write", check_key(key))
        env, gone = self.environment, Write(is_deleted=True, cause="delete")
        if not env.hooks.is_empty:
            await writing.ask_hooks(self, key, None, is_deleted=True)
        while True:
            row, now = await env.store.read(self.bound, key), env.clock.now()
            if expected is not None and not _is_at(row, expected, now):
                await writing.resolve(
                    self,
                    key,
                    row,
                    gone,
                    expected=expected,
                    strategy="ask-again",
                    on_conflict="ask-again",
                )
            if row is None or row.is_deleted:
                return False
            was_there = not row.is_gone(now)
            # Another writer came between and has changed the key: look again.
            with contextlib.suppress(StateConflict):
                await writing.write(self, key, row, gone)
                return was_there

    async def update(
        self,
        key: str,
        function: Callable[[Any], Any],
        *,
        default: JsonValue = None,
        retries: int = 100,
        ttl_s: float | None = None,
        labels: Sequence[str] = (),
        schema: StateSchema[Any] | type[Any] | None = None,
    ) -> StateEntry:
        """Set a key to what a function makes of its value, whatever others write meanwhile.

        The function gets the value, or the default, and returns the new one; it may be `async`,
        and is called again, up to `retries` times, when another writer came first. So it must
        have no effect of its own.

        Raises:
            StateConflict: others came first every time.
        """
        _check_whole("retries", retries, 0, writing.MOST_RETRIES)
        if not callable(function):
            raise UsageError(detail=f"update takes a function of the value, not {function!r:.80}.")
        self.check("write", check_key(key))
        first = 0
        for attempt in range(retries + 1):
            row = await self.read_row(key)
            made = function(await self._read_value(key, row, default, schema))
            if inspect.isawaitable(made):
                made = await made
            wanted = await writing.prepare(
                self, key, made, ttl_s=ttl_s, labels=labels, schema=schema
            )
            version = row.version if row is not None else 0
            # That others came first is journalled once, with the change that came through.
            met = [writing.note(self, key, first, version, "ask-again", "retried", attempt)]
            try:
                return await writing.write(
                    self, key, row, replace(wanted, cause="update"), *(met if attempt else ())
                )
            except StateConflict as error:
                first = first or version
                found = writing.find_found_version(error)
                await writing.tell_hooks(self, key, version, found, "ask-again", wanted.value)
            wait = min(_FIRST_WAIT_S * 2 ** min(attempt, 10), _LONGEST_WAIT_S)
            await asyncio.sleep(random.uniform(0, wait))
        refused = writing.note(self, key, first, found, "ask-again", "refused", retries + 1)
        env = self.environment
        await env.store.write(self.bound, (refused,), env.origin)
        raise writing.make_conflict(self, key, version, found)

    # --- snapshots --------------------------------------------------------------------

    async def snapshot(self, *, at: int | None = None, at_seq: int | None = None) -> StateSnapshot:
        """Return all values as they are now, or as they were at an event.

        `at` is the number of an event in the chain of the scope (of a session: of that session),
        `at_seq` the place of any event in the whole store, such as of another session.

        Raises:
            UsageError: there is no such event.
        """
        return await take_snapshot(self, at=at, at_seq=at_seq)

    async def restore(self, to: StateSnapshot | int) -> int:
        """Make all values what they were in a snapshot, or at an event; returns how many changed.

        All at once or not at all, and by new changes: the history keeps what came between.
        """
        return await restore_snapshot(self, to)

    # --- inside -----------------------------------------------------------------------

    async def _read_value(
        self,
        key: str,
        row: StateRow | None,
        default: JsonValue,
        schema: StateSchema[Any] | type[Any] | None,
    ) -> JsonValue:
        shown = await self.show(key, row)
        if shown is None:
            return default
        return (
            shown.data["value"]
            if schema is None
            else await self._convert_value(shown, as_schema(schema))
        )

    async def _convert_value(self, row: StateRow, schema: StateSchema[T]) -> T:
        """Return a value as a type; an old one goes through the migrations."""
        address = self.address(row.key[len(self.bound.prefix) :])
        if row.schema and row.schema != schema.name:
            raise schema.explain_unreadable(address, f"it was written as {row.schema}")
        # What was written without a schema is taken for the newest version.
        version = row.schema_number or schema.version
        made = schema.decode(row.data["value"], version, address)
        hooks = self.environment.hooks
        if version != schema.version and not hooks.is_empty:
            await hooks.notify(
                StateMigrated(
                    address=address,
                    schema=schema.name,
                    from_version=version,
                    to_version=schema.version,
                    **self.where(),
                )
            )
        return made


def _is_at(row: StateRow | None, expected: int, now: float) -> bool:
    """Say whether a key is at a version; one without a value is at 0 too."""
    if row is None:
        return expected == 0
    return row.version == expected or (expected == 0 and row.is_gone(now))


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if type(value) is not int or not least <= value <= most:
        raise UsageError(
            detail=f"{name} is a whole number from {least} to {most}, not {value!r:.80}."
        )


__all__ = ["ScopedState"]
