"""A copy says when something else has written meanwhile, and when a chain does not hold."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from holdfast.errors import StorageDamaged, UsageError
from holdfast.journal import Event, Journal, MemoryStore, copy_records
from holdfast.testing._store_samples import SAMPLE_TABLES, Note


class KeptStore(MemoryStore):
    """Keeps what it has when it is closed, as a file does."""

    async def close(self) -> None:
        return None


class DisturbedStore(KeptStore):
    """Somebody else writes to a journal as soon as a session has arrived."""

    disturbed: Journal

    async def restore(self, events: Sequence[Event], *, keeps_numbers: bool = False) -> None:
        await super().restore(events, keeps_numbers=keeps_numbers)
        await self.disturbed.append("late", [Note()], must_be_new=True)


class ForgetfulStore(KeptStore):
    """Keeps an event otherwise than it came."""

    async def restore(self, events: Sequence[Event], *, keeps_numbers: bool = False) -> None:
        changed = msgspec.structs.replace(events[0], time=events[0].time + 1)
        await super().restore([changed, *events[1:]], keeps_numbers=keeps_numbers)


async def make_source() -> KeptStore:
    store = KeptStore(projections=SAMPLE_TABLES)
    journal = Journal(store)
    await store.open()
    await journal.append("one", [Note(), Note()], must_be_new=True)
    return store


@pytest.mark.parametrize("is_source", [True, False])
async def test_what_is_written_to_meanwhile_is_no_copy(is_source: bool) -> None:
    source, target = await make_source(), DisturbedStore(projections=SAMPLE_TABLES)
    target.disturbed = Journal(source if is_source else target)
    with pytest.raises(UsageError) as refused:
        await copy_records(source, target)
    assert ("The source" if is_source else "The target") in str(refused.value)


async def test_what_does_not_arrive_as_it_was_is_no_copy() -> None:
    target = ForgetfulStore(projections=SAMPLE_TABLES)
    with pytest.raises(StorageDamaged):
        await copy_records(await make_source(), target)
