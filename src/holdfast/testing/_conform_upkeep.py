"""What a store promises about redaction, deletion, restoring and cleaning up."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.errors import AlreadyExists, LeaseLost, NotFound, UsageError
from holdfast.journal import (
    BLOB_THRESHOLD,
    SYSTEM_SESSION,
    EventsRedacted,
    RowQuery,
    SessionDeleted,
    encode_redacted,
    export_heads,
    parse_heads,
    verify,
)
from holdfast.testing._conform_setting import Setting, StoreSetting
from holdfast.testing._store_samples import TOPICS, Note, begin, expect_refusal


async def _delete(at: Setting, session_id: str, epoch: int) -> None:
    [head] = await at.store.heads(session_id)
    note = SessionDeleted(session_id=session_id, last=head.session_seq, hash=head.hash)
    await at.store.delete(session_id, at.journal.draft(note), epoch)


class UpkeepConformance(StoreSetting):
    """What may be removed, and how that is recorded."""

    async def test_redaction_removes_content_and_keeps_the_chain(self, tmp_path: Path) -> None:
        """The note says what was removed; rows keep nothing of it."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock, "s1", 3)
            before = await at.store.read("s1")
            assert await at.journal.redact("s1", [3, 1, 3, 99], reason="asked") == 2
            assert await at.journal.redact("s1", [1], reason="again") == 0
            after = await at.store.read("s1")
            assert [event.hash for event in after[:3]] == [event.hash for event in before]
            assert [event.is_redacted for event in after] == [True, False, True, False]
            texts = [event.expect(Note).text for event in after[:3]]
            assert texts == ["[removed]", "text 2", "[removed]"]
            assert after[3].expect(EventsRedacted).numbers == (1, 3)
            assert await verify(at.store) == []
            row = await at.journal.row(TOPICS, "s1", "a")
            assert row is not None and (row.text, row.count) == ("[removed]", 3)

    async def test_redaction_of_nothing_changes_nothing(self, tmp_path: Path) -> None:
        """Numbers that the session does not have are left out; a missing session is refused."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock, "s1", 2)
            assert await at.journal.redact("s1", [0, -1, 99], reason="none") == 0
            note = at.journal.draft(EventsRedacted(numbers=(0,), reason="none"))
            left = encode_redacted(Note())
            await at.store.redact("s1", {0: left, -1: left, 99: left}, note)
            assert not any(event.is_redacted for event in await at.store.read("s1"))
            with expect_refusal(NotFound):
                await at.store.redact("missing", {1: left}, note)

    async def test_a_deleted_session_leaves_a_note(self, tmp_path: Path) -> None:
        """Only its holder may; everything of it goes, and numbers are not given again."""
        async with self.opened(tmp_path) as at:
            await begin(at.store, at.clock, "s2")
            await begin(at.store, at.clock, "s1", 3)
            heads = parse_heads(await export_heads(at.store, at.clock))
            await at.store.acquire("s1", "me", 10)
            before = await at.state()
            with expect_refusal(LeaseLost):
                await _delete(at, "s1", 0)
            with expect_refusal(NotFound):
                note = at.journal.draft(SessionDeleted(session_id="x", last=0, hash=""))
                await at.store.delete("missing", note, 0)
            assert await at.state() == before
            await _delete(at, "s1", 1)
            assert await at.store.read("s1") == []
            assert await at.store.heads("s1") == []
            assert {row.session_id for row in await at.store.rows(RowQuery(projection=TOPICS))} == {
                "s2"
            }
            [note_event] = await at.store.read(SYSTEM_SESSION)
            assert note_event.expect(SessionDeleted).last == 3
            assert note_event.seq == 5
            assert await verify(at.store, heads=heads) == []
            with expect_refusal(NotFound):
                await at.journal.append("s1", [Note()])
            await begin(at.store, at.clock, "s1")
            [fresh] = await at.store.read("s1")
            assert (fresh.seq, fresh.session_seq, fresh.epoch) == (6, 1, 0)
            assert await verify(at.store, heads=heads) == []

    async def test_a_session_is_restored_with_its_hashes(self, tmp_path: Path) -> None:
        """As it was, redactions and large payloads included, with numbers of the new store."""
        async with self.opened(tmp_path / "from") as source:
            await begin(source.store, source.clock, "s1", 3)
            await source.store.acquire("s1", "me", 10)
            await source.journal.append("s1", [Note(topic="b", text="x" * BLOB_THRESHOLD)])
            await source.journal.redact("s1", [2], reason="asked")
            exported = await source.store.read("s1")
            rows = await source.store.rows(RowQuery(projection=TOPICS))
        async with self.opened(tmp_path / "to") as at:
            await begin(at.store, at.clock, "other")
            await at.store.restore(exported)
            restored = await at.store.read("s1")
            assert [event.seq for event in restored] == [2, 3, 4, 5, 6]
            plain = [msgspec.structs.replace(event, seq=0) for event in exported]
            assert [msgspec.structs.replace(event, seq=0) for event in restored] == plain
            assert await at.store.rows(RowQuery(projection=TOPICS, session_id="s1")) == rows
            assert await verify(at.store) == []
            [head] = await at.store.heads("s1")
            assert (head.epoch, head.owner) == (1, "")
            taken = await at.store.acquire("s1", "me", 10)
            assert taken is not None and taken.epoch == 2
            await at.journal.append("s1", [Note()], after=5, epoch=2)
            before = await at.state()
            with expect_refusal(AlreadyExists):
                await at.store.restore(exported)
            for wrong in ([], exported[1:], [exported[0], *exported[2:]], exported[:1] * 2):
                with expect_refusal(UsageError):
                    await at.store.restore(wrong)
            assert await at.state() == before

    async def test_content_that_nothing_refers_to_is_collected(self, tmp_path: Path) -> None:
        """After redaction or deletion, and not before."""
        async with self.opened(tmp_path) as at:
            shared, own = "a" * 2 * BLOB_THRESHOLD, "b" * 2 * BLOB_THRESHOLD
            await begin(at.store, at.clock, "s1")
            await begin(at.store, at.clock, "s2")
            await at.journal.append("s1", [Note(text=shared), Note(text=own)])
            await at.journal.append("s2", [Note(text=shared)])
            await at.store.collect()
            assert (await at.store.stats())["blobs"] == 2
            await at.journal.redact("s1", [2, 3], reason="old")
            await at.store.collect()
            stats = await at.store.stats()
            assert stats["blobs"] == 1
            assert (stats["sessions"], stats["events"]) == (2, 6)
            [event] = await at.store.read("s2", after=1)
            assert event.expect(Note).text == shared
            await at.store.acquire("s2", "me", 10)
            await _delete(at, "s2", 1)
            collected = await at.store.collect()
            assert collected.keys() == {"blobs", "bytes"}
            assert (await at.store.stats())["blobs"] == 0
            assert await verify(at.store) == []
