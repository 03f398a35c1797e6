"""How a value is written: checked, as the next version of its key, conflicts resolved by name."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from holdfast.canonical import JsonValue
from holdfast.errors import NotFound, StateConflict, StateFull, UsageError
from holdfast.hooks import Replace, StateAfterWrite, StateBeforeWrite, StateConflictMet
from holdfast.state.conflicts import ConflictCase, Resolver, can_merge, is_same, merge
from holdfast.state.entry import StateEntry, make_change
from holdfast.state.environment import LastChange
from holdfast.state.events import Cause, StateChanged, StateConflicted
from holdfast.state.place import StatePlace
from holdfast.state.schema import StateSchema, as_schema
from holdfast.state.store import StateRow

MOST_RETRIES: Final = 1_000
_DEEPEST_BASE: Final = 1_000
_COUNTED_EVERY: Final = 1_000
_MOST_COUNTED: Final = 10_000


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """What is about to be written to a key, whatever version it will get."""

    value: JsonValue = None
    data: bytes = b""
    """The value, encoded."""
    is_deleted: bool = False
    expires_at: float = 0.0
    labels: tuple[str, ...] = ()
    schema: str = ""
    schema_number: int = 0
    cause: Cause = "set"


async def prepare(
    place: StatePlace,
    key: str,
    value: JsonValue,
    *,
    ttl_s: float | None,
    labels: Sequence[str],
    schema: StateSchema[Any] | type[Any] | None,
) -> Write:
    """Return what is to be written, checked; hooks have seen it, and may have changed it."""
    env = place.environment
    known = None if schema is None else as_schema(schema)
    kept, data = place.encode(key, value if known is None else known.encode(value))
    expires_at = 0.0
    if ttl_s is not None:
        given: object = ttl_s
        is_number = isinstance(given, int | float) and not isinstance(given, bool)
        if not is_number or not 0 < ttl_s < math.inf:
            raise UsageError(detail=f"A time to live is a number of seconds, not {ttl_s!r:.80}.")
        expires_at = env.clock.now() + ttl_s
    borne = place.labels(labels)
    if not env.hooks.is_empty:
        changed = await ask_hooks(place, key, kept)
        if not is_same(changed, kept):
            kept, data = place.encode(key, changed if known is None else known.encode(changed))
    return Write(
        value=kept,
        data=data,
        expires_at=expires_at,
        labels=borne,
        schema=known.name if known is not None else "",
        schema_number=known.version if known is not None else 0,
    )


async def ask_hooks(
    place: StatePlace,
    key: str,
    value: JsonValue,
    *,
    is_deleted: bool = False,
) -> JsonValue:
    """Return the value as the hooks before a write leave it; raises HookRefused."""
    asked = StateBeforeWrite(
        address=place.address(key), value=value, is_deleted=is_deleted, **place.where()
    )
    fired = await place.environment.hooks.fire(asked)
    fired.raise_if_cancelled()
    return fired.payload.value


def make_fact(
    place: StatePlace, key: str, row: StateRow | LastChange | None, wanted: Write
) -> StateChanged:
    """Return the change that follows what a key is now."""
    bound = place.bound
    return StateChanged(
        key=bound.prefix + key,
        version=(row.version if row is not None else 0) + 1,
        scope=bound.kind,
        scope_id=bound.id,
        data={} if wanted.is_deleted else {"value": wanted.value},
        previous=row.number if row is not None else 0,
        expires_at=wanted.expires_at,
        labels=wanted.labels,
        schema=wanted.schema,
        schema_number=wanted.schema_number,
        cause=wanted.cause,
    )


async def write(
    place: StatePlace,
    key: str,
    row: StateRow | LastChange | None,
    wanted: Write,
    *also: StateConflicted,
) -> StateEntry:
    """Store the change that follows a row, and tell the hooks.

    Raises:
        StateConflict: another change has followed it; nothing was stored.
        NotFound: the scope is a session that does not exist.
    """
    env, bound = place.environment, place.bound
    fact = make_fact(place, key, row, wanted)
    if row is None or (isinstance(row, StateRow) and row.is_gone(env.clock.now())):
        await _check_room(place)
    try:
        events = await env.store.write(bound, (*also, fact), env.origin)
    except NotFound as error:
        raise NotFound(kind=bound.kind, value=bound.id) from error
    except StateConflict as error:
        raise make_conflict(place, key, fact.version - 1, find_found_version(error)) from error
    event = events[-1]
    if bound.is_own_chain:
        is_there = not (wanted.is_deleted or fact.expires_at)
        env.last.note(bound, key, fact.version if is_there else 0, event.session_seq)
    entry = StateEntry(
        scope=bound.kind,
        scope_id=bound.id,
        key=key,
        # As it is kept: a secret that it held was taken out.
        value=(
            wanted.value
            if wanted.data and wanted.data in event.payload
            else make_change(bound, event).value
        ),
        version=fact.version,
        labels=fact.labels,
        time_updated=event.time,
        expires_at=fact.expires_at,
        schema=fact.schema,
        schema_number=fact.schema_number,
        agent_path=event.agent_path,
        number=event.session_seq,
    )
    if not env.hooks.is_empty:
        await env.hooks.notify(
            StateAfterWrite(
                address=place.address(key),
                value=entry.value,
                version=entry.version,
                is_deleted=wanted.is_deleted,
                labels=entry.labels,
                **place.where(),
            )
        )
    return entry


async def _check_room(place: StatePlace) -> None:
    """Return if the scope may have one key more.

    Counted when this is first asked, every so often, and whenever it seems to be full: what
    others have added meanwhile is not known here.

    Raises:
        StateFull: it has as many as it may have.
    """
    env, bound = place.environment, place.bound
    most, counts, which = env.limits.keys, env.last.counts, (bound.chain, bound.prefix)
    known = counts.get(which)
    if known is None or known >= most or known % _COUNTED_EVERY == 0:
        known, after = 0, ""
        while known < most:
            rows = await env.store.list(
                bound, "", after=after, limit=_COUNTED_EVERY, now=env.clock.now()
            )
            known += len(rows)
            if len(rows) < _COUNTED_EVERY:
                break
            after = rows[-1].key[len(bound.prefix) :]
    if known >= most:
        counts.pop(which, None)
        raise StateFull(scope=str(bound), found=known, limit=most)
    if len(counts) >= _MOST_COUNTED:
        counts.clear()
    counts[which] = known + 1


async def overwrite(place: StatePlace, key: str, wanted: Write) -> StateEntry:
    """Write whatever others write; the last value holds."""
    for _ in range(MOST_RETRIES):
        row = await place.environment.store.read(place.bound, key)
        try:
            return await write(place, key, row, wanted)
        except StateConflict as error:
            met = error
    raise met


async def resolve(
    place: StatePlace,
    key: str,
    row: StateRow | None,
    wanted: Write,
    *,
    expected: int,
    strategy: str,
    on_conflict: str | Resolver,
) -> StateEntry:
    """Let a strategy decide, again as often as yet another writer comes.

    Raises:
        StateConflict: the strategy is to refuse, or cannot join the two.
    """
    store = place.environment.store
    outcome: Literal["overwritten", "merged", "resolved"]
    for attempt in range(1, MOST_RETRIES):
        found = row.version if row is not None else 0
        chosen = await tell_hooks(place, key, expected, found, strategy, wanted.value)
        if chosen is not None:
            made, outcome = replace(wanted, value=chosen[0], data=b""), "resolved"
        elif strategy == "last-writer":
            made, outcome = wanted, "overwritten"
        elif strategy == "ask-again":
            break
        else:
            case = await _describe(place, key, row, wanted, expected)
            if strategy == "merge" and not can_merge(case):
                break
            made = await _join(place, key, case, row, wanted, on_conflict)
            outcome = "merged" if strategy == "merge" else "resolved"
        met = note(place, key, expected, found, strategy, outcome, attempt)
        try:
            return await write(place, key, row, made, met)
        except StateConflict:
            row = await store.read(place.bound, key)
    found = row.version if row is not None else 0
    refused = note(place, key, expected, found, strategy, "refused")
    await store.write(place.bound, (refused,), place.environment.origin)
    raise make_conflict(place, key, expected, found)


async def _join(
    place: StatePlace,
    key: str,
    case: ConflictCase,
    row: StateRow | None,
    wanted: Write,
    on_conflict: str | Resolver,
) -> Write:
    made: JsonValue
    if isinstance(on_conflict, str):
        made = merge(case.base, case.theirs, case.mine)
    else:
        made = on_conflict(case)
        if inspect.isawaitable(made):
            made = await made
    theirs = row.labels if row is not None else ()
    return replace(
        wanted,
        value=place.as_json(key, made),
        data=b"",
        labels=tuple(sorted({*wanted.labels, *theirs})),
    )


async def _describe(
    place: StatePlace, key: str, row: StateRow | None, wanted: Write, expected: int
) -> ConflictCase:
    """Return both sides, and what they started from as far as the history has it."""
    env, bound, base = place.environment, place.bound, None
    found = row.version if row is not None else 0
    if 0 < expected < found and found - expected < _DEEPEST_BASE:
        events = await env.store.history(bound, key, before=0, limit=found - expected + 1)
        changes = [make_change(bound, event) for event in events]
        base = next((one.value for one in changes if one.version == expected), None)
    is_there = row is not None and not row.is_gone(env.clock.now())
    return ConflictCase(
        address=place.address(key),
        base=base,
        theirs=row.data["value"] if row is not None and is_there else None,
        mine=wanted.value,
        expected=expected,
        found=found,
    )


async def tell_hooks(
    place: StatePlace,
    key: str,
    expected: int,
    found: int,
    strategy: str,
    mine: JsonValue = None,
) -> tuple[Any] | None:
    """Ask the hooks about a conflict; returns the value that one of them puts in place."""
    hooks = place.environment.hooks
    if hooks.is_empty or not hooks.has(StateConflictMet):
        return None
    met = StateConflictMet(
        address=place.address(key),
        expected=expected,
        found=found,
        strategy=strategy,
        value=mine,
        **place.where(),
    )
    fired = await hooks.fire(met)
    fired.raise_if_cancelled()
    if isinstance(fired.verdict, Replace):
        return (place.as_json(key, fired.verdict.value),)
    return None


def note(
    place: StatePlace,
    key: str,
    expected: int,
    found: int,
    strategy: str,
    outcome: Literal["refused", "overwritten", "merged", "resolved", "retried"],
    attempts: int = 1,
) -> StateConflicted:
    """Return the fact that two writers met."""
    return StateConflicted(
        key=place.bound.prefix + key,
        expected=expected,
        found=found,
        strategy=strategy,
        outcome=outcome,
        scope=place.bound.kind,
        scope_id=place.bound.id,
        attempts=attempts,
    )


def find_found_version(error: StateConflict) -> int:
    """Return the version at which a key was found."""
    found = error.context["found"]
    assert isinstance(found, int)
    return found


def make_conflict(place: StatePlace, key: str, expected: int, found: int) -> StateConflict:
    """Return the error that tells a caller of another version."""
    return StateConflict(address=place.address(key), expected=expected, found=found)


__all__ = ["MOST_RETRIES", "Write", "overwrite", "prepare", "resolve", "write"]
