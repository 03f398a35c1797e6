"""Snapshots: all values of a scope at one event, and the way back to them.

The log is never cut, so a snapshot is a position in it, and going back is a change like any
other. A session that is forked at an event has the session's values of that event by itself.
"""

from __future__ import annotations

from msgspec.structs import replace

from holdfast.errors import StateConflict, UsageError
from holdfast.state.conflicts import is_same
from holdfast.state.entry import StateEntry, StateSnapshot, make_entry
from holdfast.state.events import StateChanged
from holdfast.state.place import StatePlace
from holdfast.state.store import StateRow
from holdfast.state.writing import MOST_RETRIES, Write, ask_hooks, make_fact


async def take_snapshot(
    place: StatePlace, *, at: int | None = None, at_seq: int | None = None
) -> StateSnapshot:
    """Return all values of a scope as they are now, or as they were at an event.

    `at` is the number of an event in the chain of the scope (of a session: of that session),
    `at_seq` the place of any event in the whole store, such as of another session.

    Raises:
        UsageError: there is no such event.
    """
    place.check("read", "")
    env, bound = place.environment, place.bound
    last = await env.store.position(bound)
    if at is not None and (type(at) is not int or not 0 <= at <= last):
        raise UsageError(detail=f"{bound} has no event {at!r:.80}; its last is {last}.")
    if at_seq is not None and (type(at_seq) is not int or at_seq < 0):
        raise UsageError(detail=f"at_seq is the number of an event, not {at_seq!r:.80}.")
    rows = await env.store.at(bound, at, at_seq)
    is_now = at is None and at_seq is None
    # What had not expired then was there then, whatever the clock says now.
    now = env.clock.now() if is_now else 0.0
    entries = [
        replace(make_entry(bound, row), key=key)
        for key, row in sorted(rows.items())
        if not row.is_gone(now) and place.may_read(key)
    ]
    for entry in entries:
        env.taint.add(entry.labels)
    then = max((row.number for row in rows.values()), default=0) if at is None else at
    return StateSnapshot(
        scope=bound.kind,
        scope_id=bound.id,
        position=last if is_now else then,
        entries=tuple(entries),
    )


async def restore_snapshot(place: StatePlace, to: StateSnapshot | int) -> int:
    """Make all values what they were in a snapshot, or at an event; returns how many changed.

    All at once or not at all, and by new changes: the history keeps what came between.

    Raises:
        UsageError: it is a snapshot of another scope, or there is no such event.
    """
    place.check("write", "")
    snapshot = to if isinstance(to, StateSnapshot) else await take_snapshot(place, at=to)
    bound, env = place.bound, place.environment
    if (snapshot.scope, snapshot.scope_id) != (bound.kind, bound.id):
        raise UsageError(detail=f"That is a snapshot of another scope than {bound}.")
    wanted = {entry.key: entry for entry in snapshot.entries}
    for _ in range(MOST_RETRIES):
        facts = []
        for key, row in (await env.store.at(bound)).items():
            fact = await _revert_row(place, key, row, wanted.get(key))
            if fact is not None:
                facts.append(fact)
        if not facts:
            return 0
        try:
            await env.store.write(bound, facts, env.origin)
        except StateConflict:
            continue
        return len(facts)
    raise StateConflict(address=str(bound), expected=snapshot.position, found=0)


async def _revert_row(
    place: StatePlace, key: str, row: StateRow, then: StateEntry | None
) -> StateChanged | None:
    """Return the change that leads a key back, `None` if it is there already."""
    if not place.may_read(key):
        return None
    if then is None:
        if row.is_deleted:
            return None
        made = Write(is_deleted=True, cause="restore")
    else:
        is_there = not row.is_deleted and is_same(row.data["value"], then.value)
        if is_there and row.labels == then.labels and row.expires_at == then.expires_at:
            return None
        made = Write(
            value=then.value,
            expires_at=then.expires_at,
            # What strangers wrote stays theirs, and this caller may have read more since.
            labels=place.labels(then.labels),
            schema=then.schema,
            schema_number=then.schema_number,
            cause="restore",
        )
    place.check("write", key)
    if not place.environment.hooks.is_empty:
        kept = await ask_hooks(place, key, made.value, is_deleted=made.is_deleted)
        made = replace(made, value=place.as_json(key, kept))
    return make_fact(place, key, row, made)


__all__ = ["restore_snapshot", "take_snapshot"]
