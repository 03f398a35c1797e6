"""Events of old versions are read as the newest class, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from holdfast.errors import SchemaTooNew, StorageDamaged, UsageError
from holdfast.journal import Journal, MemoryStore, Payload, envelope, payload, upcaster, verify


@pytest.fixture(autouse=True)
def own_registry(monkeypatch) -> Iterator[None]:
    """Kinds declared here are forgotten afterwards, and no others: all are loaded before."""
    envelope.list_known_kinds()
    for name in ("_types", "_latest", "_upcasters", "_decoders"):
        monkeypatch.setattr(envelope, name, dict(getattr(envelope, name)))
    yield


def declare_first() -> type[Payload]:
    @payload("upgrade.thing", is_open=True, has_content=True)
    class ThingV1(Payload, frozen=True, kw_only=True):
        name: str

        def redacted(self) -> Payload:
            return msgspec.structs.replace(self, name="")

    return ThingV1


def declare_third() -> type[Payload]:
    @payload("upgrade.thing", version=3, is_open=True, has_content=True)
    class Thing(Payload, frozen=True, kw_only=True):
        title: str
        words: int

        def redacted(self) -> Payload:
            return msgspec.structs.replace(self, title="")

    return Thing


def rename(value: dict[str, Any]) -> dict[str, Any]:
    return {"title": value["name"]}


def count_words(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "words": len(value["title"].split())}


async def journal_of_first(*names: str) -> Journal:
    first = declare_first()
    journal = await Journal(MemoryStore()).open()
    await journal.append("s1", [first(name=name) for name in names], must_be_new=True)
    return journal


async def test_an_old_event_becomes_the_newest_class() -> None:
    journal = await journal_of_first("two words")
    third = declare_third()
    upcaster("upgrade.thing", from_version=1)(rename)
    upcaster("upgrade.thing", from_version=2)(count_words)
    [event] = await journal.read("s1")
    assert event.version == 1
    assert event.decode() == third(title="two words", words=2)
    await journal.append("s1", [third(title="new", words=1)])
    assert (await journal.read("s1"))[1].decode() == third(title="new", words=1)
    assert await verify(journal.store) == []


async def test_a_redaction_outlives_the_version_of_its_event() -> None:
    journal = await journal_of_first("one", "two")
    await journal.redact("s1", [1], reason="old")
    third = declare_third()
    upcaster("upgrade.thing", from_version=1)(rename)
    upcaster("upgrade.thing", from_version=2)(count_words)
    await journal.redact("s1", [2], reason="new")
    events = await journal.read("s1")
    assert events[0].decode() == third(title="", words=0)
    assert events[1].decode() == third(title="", words=1)
    assert await verify(journal.store) == []


async def test_a_missing_or_failing_upcaster_is_named() -> None:
    journal = await journal_of_first("x")
    declare_third()
    [event] = await journal.read("s1")
    with pytest.raises(StorageDamaged) as caught:
        event.decode()
    assert caught.value.code == "storage.damaged"
    upcaster("upgrade.thing", from_version=1)(lambda value: {"title": value["absent"]})
    with pytest.raises(StorageDamaged):
        event.decode()


async def test_a_newer_version_or_an_unknown_kind_is_refused() -> None:
    declare_first()
    for kind, version in (("upgrade.thing", 2), ("upgrade.unknown", 1)):
        with pytest.raises(SchemaTooNew) as caught:
            envelope.decode_payload(kind, version, b"{}")
        assert caught.value.code == "storage.schema_too_new"


def test_a_version_is_declared_once_and_the_newest_counts() -> None:
    third = declare_third()
    declare_first()
    assert envelope.list_known_kinds()["upgrade.thing"] is third

    class Other(Payload, frozen=True, kw_only=True):
        pass

    with pytest.raises(UsageError):
        payload("upgrade.thing", version=3)(Other)
