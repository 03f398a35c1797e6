"""Move house: copy all records of one store to another, and prove that they arrived.

A session is copied whole or not at all, with its hashes and its numbers, so that whatever notes a
number (a subscriber, a trigger, a webhook) finds the same event under it. What is there already is
compared and left out, so an interrupted copy goes on when it is called again.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.errors import StorageDamaged, UsageError
from holdfast.journal.audit import verify
from holdfast.journal.envelope import Event
from holdfast.journal.store import Head, Store

_CHUNK = 1_000


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was copied, and what an earlier call had copied already."""

    sessions: int
    events: int
    known_sessions: int


async def copy_records(
    source: Store,
    target: Store,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> CopyReport:
    """Copy all sessions, and compare all chains; opens and closes both stores.

    Nothing else may write to either of them meanwhile; if something did, that is told.

    Raises:
        UsageError: the target holds something else, or one of them has changed meanwhile.
        StorageDamaged: a chain does not hold.
    """
    await source.open()
    try:
        await target.open()
        try:
            return await _copy(source, target, progress)
        finally:
            await target.close()
    finally:
        await source.close()


async def _copy(source: Store, target: Store, progress: Callable[[int, int], None]) -> CopyReport:
    heads = {head.session_id: head for head in await source.heads() if head.session_seq}
    last, total = await source.read_last_seq(), sum(one.session_seq for one in heads.values())
    known = {head.session_id: head for head in await target.heads() if head.session_seq}
    for name, head in known.items():
        _require_same(name, heads.get(name), head)
    done = copied = sessions = 0
    for name, head in heads.items():
        if name not in known:
            await target.restore(await _read_all(source, name), keeps_numbers=True)
            copied += head.session_seq
            sessions += 1
        done += head.session_seq
        progress(done, total)
    now = {head.session_id: head for head in await source.heads() if head.session_seq}
    if await source.read_last_seq() != last or _list_ends(now) != _list_ends(heads):
        raise UsageError(
            detail="The source was written to meanwhile: end what uses it, empty the target, and "
            "copy again."
        )
    arrived = {head.session_id: head for head in await target.heads() if head.session_seq}
    if _list_ends(arrived) != _list_ends(heads):
        raise UsageError(detail="The target was written to meanwhile: empty it, and copy again.")
    if found := await verify(target):
        raise StorageDamaged(path="the copy", detail=f"{found[0].session_id}: {found[0].problem}")
    return CopyReport(sessions=sessions, events=copied, known_sessions=len(known))


def _require_same(name: str, there: Head | None, here: Head) -> None:
    """Refuse a target that is no earlier copy of the source."""
    if there is None or (there.session_seq, there.hash) != (here.session_seq, here.hash):
        what = "which the source has not" if there is None else "which differs from the source's"
        raise UsageError(
            detail=f"The target holds the session {name}, {what}: a copy needs an empty store, or "
            "one that holds what an earlier copy has put there and nothing else."
        )


def _list_ends(heads: dict[str, Head]) -> dict[str, tuple[int, str]]:
    return {name: (head.session_seq, head.hash) for name, head in heads.items()}


async def _read_all(store: Store, name: str) -> list[Event]:
    events: list[Event] = []
    while chunk := await store.read(name, after=len(events), limit=_CHUNK):
        events += chunk
    return events
