"""Rows that may wait are those of a table that may not, whatever happens in between."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.journal import Journal, RowQuery, SqliteStore, verify
from holdfast.testing import FakeClock
from holdfast.testing._store_samples import LAZY_TOPICS, TOPICS, Mark, Note

notes = st.builds(Note, topic=st.sampled_from("abc"), text=st.sampled_from(["", "x"]))
facts = st.lists(st.one_of(notes, st.builds(Mark)), min_size=1, max_size=3)
who = st.sampled_from([0, 1])
where = st.sampled_from(["s1", "s2"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), who, where, facts),
        st.tuples(st.just("append and release"), who, where, facts),
        st.tuples(st.just("take"), who, where),
        st.tuples(st.just("release"), who, where),
        st.tuples(st.just("look"), who, st.sampled_from(["", "s1", "s2"])),
        st.tuples(st.just("forget"), who),
        st.tuples(st.just("redact"), who, where, st.integers(1, 6)),
        st.tuples(st.just("rebuild"), who),
    ),
    max_size=14,
)


@given(steps, st.booleans())
@settings(max_examples=15, deadline=None)
def test_lazy_rows_are_those_of_an_eager_table(steps, has_eager) -> None:
    asyncio.run(_live(steps, has_eager))


async def _live(steps, has_eager: bool) -> None:
    tables = (TOPICS, LAZY_TOPICS) if has_eager else (LAZY_TOPICS,)
    clock = FakeClock()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        journals = [
            Journal(SqliteStore(path, projections=tables, clock=clock), clock=clock)
            for _ in range(2)
        ]
        for journal in journals:
            await journal.open()
        for session_id in ("s1", "s2"):
            await journals[0].append(session_id, [Note()], must_be_new=True)
        for step in steps:
            await _take(journals[step[1]], clock, *step)
        found = [await journal.rows(RowQuery(projection=LAZY_TOPICS)) for journal in journals]
        assert await verify(journals[0].store) == []
        await journals[0].rebuild()
        rebuilt = await journals[0].rows(RowQuery(projection=LAZY_TOPICS))
        assert found == [rebuilt, rebuilt]
        for journal in journals:
            await journal.close()


async def _take(journal: Journal, clock: FakeClock, name: str, _who: int, *rest) -> None:
    store = journal.store
    match name, *rest:
        case "append", session_id, payloads:
            [head] = await store.heads(session_id)
            await journal.append(session_id, payloads, epoch=head.epoch)
        case "append and release", session_id, payloads:
            [head] = await store.heads(session_id)
            await journal.append(session_id, payloads, epoch=head.epoch, release=True)
        case "take", session_id:
            clock.advance(100)
            await store.acquire(session_id, "me", 60)
        case "release", session_id:
            [head] = await store.heads(session_id)
            await store.release(session_id, head.epoch)
        case "look", session_id:
            query = RowQuery(projection=LAZY_TOPICS, session_id=session_id)
            seen = await journal.rows(query)
            if TOPICS in store._tables.projections:
                eager = RowQuery(projection=TOPICS, session_id=session_id)
                assert seen == await journal.rows(eager)
        case "forget":
            store._chains.forget()
        case "redact", session_id, number:
            found = await store.read(session_id, seqs=[number])
            if found and found[0].kind == Note.kind:
                await journal.redact(session_id, [number], reason="asked")
        case _:
            await journal.rebuild()
