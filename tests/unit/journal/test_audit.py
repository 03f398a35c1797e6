"""Exported heads: what is read, what is refused."""

from __future__ import annotations

import pytest

from holdfast.errors import InvalidImport
from holdfast.journal import (
    Journal,
    MemoryStore,
    SessionDeleted,
    audit,
    check_chain,
    encode_redacted,
    export_heads,
    parse_heads,
    verify,
)
from holdfast.journal.envelope import digest_payload
from holdfast.journal.events import EventsRedacted
from holdfast.testing import FakeClock
from holdfast.testing._store_samples import Note


async def sample() -> Journal:
    journal = await Journal(MemoryStore(), clock=FakeClock()).open()
    for name in ("s1", "s2"):
        await journal.append(name, [Note(text=name)], must_be_new=True)
    return journal


async def delete(journal: Journal, name: str, *, hash: str = "") -> None:
    head = await journal.head(name)
    assert head is not None
    note = SessionDeleted(session_id=name, last=head.session_seq, hash=hash or head.hash)
    await journal.store.delete(name, journal.draft(note), head.epoch)


async def test_heads_are_exported_and_read_again() -> None:
    journal = await sample()
    heads = parse_heads(await export_heads(journal.store, journal.clock))
    assert {name: head.session_seq for name, head in heads.heads.items()} == {"s1": 1, "s2": 1}
    assert heads.time == journal.clock.now()
    await journal.append("s1", [Note()])
    assert await verify(journal.store, heads=heads) == []


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format":"other","version":1,"time":0,"heads":{}}',
        b'{"format":"holdfast-heads","version":2,"time":0,"heads":{}}',
        b'{"format":"holdfast-heads","version":1,"time":0,"heads":{},"more":1}',
    ],
)
def test_what_holds_no_heads_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidImport) as caught:
        parse_heads(data)
    assert caught.value.code == "session.invalid_import"


def test_a_file_beyond_reason_is_not_even_read(monkeypatch) -> None:
    monkeypatch.setattr(audit, "_LARGEST_HEADS_FILE", 10)
    with pytest.raises(InvalidImport):
        parse_heads(b" " * 11)


async def test_a_deletion_before_the_export_excuses_nothing() -> None:
    journal = await sample()
    await delete(journal, "s2")
    await journal.append("s2", [Note(text="again")], must_be_new=True)
    heads = parse_heads(await export_heads(journal.store, journal.clock))
    assert await verify(journal.store, heads=heads) == []
    del journal.store._streams["s2"]  # type: ignore[attr-defined]
    [finding] = await verify(journal.store, heads=heads)
    assert (finding.session_id, finding.session_seq) == ("s2", 0)


async def test_a_chain_rewritten_before_its_deletion_is_found() -> None:
    journal = await sample()
    heads = parse_heads(await export_heads(journal.store, journal.clock))
    await delete(journal, "s1", hash="00")
    [finding] = await verify(journal.store, heads=heads)
    assert (finding.session_id, finding.session_seq) == ("s1", 1)


async def test_a_chain_in_memory_is_checked() -> None:
    journal = await sample()
    events = await journal.read_all("s1")
    assert check_chain(events) == []
    assert check_chain([]) == []
    assert [finding.session_seq for finding in check_chain(events * 2)] != []


@pytest.mark.parametrize("left", [encode_redacted(Note(text="content")), b"[", b"{}"])
@pytest.mark.parametrize("is_covered", [True, False])
async def test_a_redaction_that_left_content_is_found_whatever_its_note_says(
    left: bytes, is_covered: bool
) -> None:
    async with Journal(MemoryStore()) as journal:
        await journal.append("s1", [Note(), Note()], must_be_new=True)
        digests = (digest_payload(left),) if is_covered else ()
        note = EventsRedacted(numbers=(2,), reason="asked", digests=digests)
        await journal.store.redact("s1", {2: left}, journal.draft(note))
        [found] = await verify(journal.store)
    assert (found.session_seq, found.problem) == (2, "a redacted payload holds content")
