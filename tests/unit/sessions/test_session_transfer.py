"""Export and import of one session: without loss, and never against our will."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.artifacts.events import ArtifactPlaceClaimed
from holdfast.errors import AlreadyExists, InvalidImport
from holdfast.journal import (
    GENESIS,
    NO_ORIGIN,
    Draft,
    Event,
    Journal,
    MemoryStore,
    Payload,
    SqliteStore,
    verify,
)
from holdfast.journal.envelope import digest_payload, hash_chain, make_header
from holdfast.journal.store import AppendRequest
from holdfast.messages import TextPart
from holdfast.orchestration.triggers.events import TriggerCreated
from holdfast.policy.shared_budget import BudgetSettled
from holdfast.sessions import (
    SESSION_PROJECTIONS,
    RetentionPolicy,
    Session,
    SessionManager,
    clean_up,
    compose,
    export_layout_files,
    export_lines,
    parse_export,
    transfer,
)
from holdfast.testing import FakeClock
from holdfast.tools.egress.events import EgressRefused
from holdfast.turns import LeaseKeeper, Turn, TurnCompleted, TurnQueue
from holdfast.webhooks.events import WebhookAdded


async def export(journal: Journal, session_id: str) -> bytes:
    return b"".join([line async for line in export_lines(journal, session_id)])


def parse(data: bytes) -> list[Event]:
    return parse_export(io.BytesIO(data))


async def note(journal: Journal, session_id: str, data: bytes) -> None:
    """Append a fact of a kind that nobody here knows."""
    draft = Draft(
        kind="plugin.noted",
        version=2,
        time=journal.clock.now(),
        origin=NO_ORIGIN,
        payload=data,
        payload_digest=digest_payload(data),
        value=Payload(),
    )
    await journal.store.append(AppendRequest(session_id=session_id, drafts=(draft,), epoch=None))


@pytest.fixture
async def full(
    manager: SessionManager, session: Session, queue: TurnQueue, journal: Journal, clock: FakeClock
) -> Session:
    """A session with everything in it: runs, large payloads, redactions, reverts, odd kinds."""

    async def handler(turn: Turn) -> TurnCompleted:
        assert turn.request.message is not None
        await turn.add_message(turn.request.message, agent_path="a/b")
        return TurnCompleted(result={"ok": True})

    run = await queue.submit(session.id, compose(session.id, "user", "run", clock.now()))
    await queue.run(run.id, handler)
    old = await manager.add_message(session.id, "user", "will be redacted")
    clock.advance(10.25)
    await clean_up(manager, RetentionPolicy(message_ttl_s=5))
    message = await manager.add_message(session.id, "user", "x" * 100_000 + "ü🙂\u2028")
    await manager.update_part(session.id, message.id, TextPart(id="p", text="part"))
    await note(journal, session.id, b'{"a": [1, 2.50, null], "b":"\\u00e9"}')
    await manager.delete_message(session.id, old.id)
    await manager.revert_session(session.id, to=await manager.find_last_number(session.id) - 1)
    await manager.update_session(session.id, metadata={"k": {"deep": [1]}})
    await queue.submit(session.id, compose(session.id, "user", "still waits", clock.now()))
    return await manager.get_session(session.id)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_an_export_is_imported_without_loss(
    full: Session, journal: Journal, manager: SessionManager, kind: str, tmp_path: Any
) -> None:
    data = await export(journal, full.id)
    store = (
        MemoryStore(projections=SESSION_PROJECTIONS)
        if kind == "memory"
        else SqliteStore(tmp_path / "other.db", projections=SESSION_PROJECTIONS)
    )
    async with Journal(store, clock=journal.clock) as there:
        other = SessionManager(there, LeaseKeeper(there))
        assert await other.import_events(parse(data)) == full
        assert await export(there, full.id) == data
        assert await verify(there.store) == []
        assert await other.messages.all(full) == await manager.messages.all(full)
        assert [e.hash for e in await there.read_all(full.id)] == [
            e.hash for e in await journal.read_all(full.id)
        ]
        with pytest.raises(AlreadyExists):
            await other.import_events(parse(data))
        # It lives on there: other numbers, another writer.
        await other.add_message(full.id, "user", "there")
        assert await verify(there.store) == []
        assert (await other.get_session(full.id)).message_count == full.message_count + 1


async def test_an_import_as_new_is_a_copy_without_runs(
    full: Session, journal: Journal, manager: SessionManager, queue: TurnQueue
) -> None:
    events = parse(await export(journal, full.id))
    copy = await manager.import_events(events, as_new=True)
    assert copy.id != full.id
    assert copy.slug != full.slug
    same = {"id": copy.id, "slug": copy.slug}
    assert msgspec.structs.replace(full, **same) == copy
    assert [m.parts for m in await manager.messages.all(copy)] == [
        m.parts for m in await manager.messages.all(full)
    ]
    assert await verify(journal.store) == []
    kinds = [event.kind for event in await journal.read_all(copy.id)]
    assert len(kinds) == len(events)
    assert not any(kind.startswith("run.") for kind in kinds)
    assert "plugin.noted" in kinds

    async def never(turn: Turn) -> TurnCompleted:
        raise AssertionError

    assert await queue.drain(copy.id, never) == 0
    again = await manager.import_events(events, as_new=True)
    assert len({full.slug, copy.slug, again.slug}) == 3


async def test_an_import_does_not_take_the_slug_of_another_session(
    journal: Journal, manager: SessionManager, session: Session
) -> None:
    events = parse(await export(journal, session.id))
    await manager.delete_session(session.id)
    await manager.create_session("Math Help", session_id=f"x-{session.id[-6:]}")
    with pytest.raises(AlreadyExists):
        await manager.import_events(events)
    assert (await manager.import_events(events, as_new=True)).title == "Math Help"


async def test_an_export_ends_where_its_header_says(
    journal: Journal, manager: SessionManager, session: Session
) -> None:
    lines = export_lines(journal, session.id)
    first = await anext(lines)
    await manager.add_message(session.id, "user", "meanwhile")
    rest = [line async for line in lines]
    assert json.loads(first)["events"] == len(rest) == 1
    assert len(parse(first + b"".join(rest))) == 1


async def test_a_long_session_is_exported_page_by_page(
    journal: Journal, manager: SessionManager, session: Session
) -> None:
    for n in range(450):
        await manager.update_session(session.id, summary=str(n))
    data = await export(journal, session.id)
    assert data.count(b"\n") == 452
    assert len(parse(data)) == 451


def forge(data: bytes, change: Callable[[list[dict[str, Any]]], None]) -> bytes:
    """Change an export and compute all digests and hashes anew, as an attacker would."""
    header, *lines = [json.loads(line) for line in data.splitlines()]
    change(lines)
    out, previous = [], GENESIS
    for line in lines:
        payload = json.dumps(line["payload"], separators=(",", ":"), ensure_ascii=False).encode()
        keep = line.pop("keep_digest", None)
        line["digest"] = keep or digest_payload(payload)
        fields = {k: v for k, v in line.items() if k not in ("n", "digest", "payload")}
        event = Event(
            seq=0,
            session_id=header["session_id"],
            session_seq=line["n"],
            **{"run_id": "", "agent_path": "", "correlation_id": "", "causation_id": "", "epoch": 0}
            | fields
            | {"hash": ""},
            payload_digest=line["digest"],
            payload=payload,
        )
        line["hash"] = previous = hash_chain(previous, make_header(event))
        out.append(
            msgspec.json.encode(transfer.ExportedEvent(**{**line, "payload": msgspec.Raw(payload)}))
        )
    header |= {"events": len(lines), "hash": previous}
    return b"\n".join([msgspec.json.encode(header), *out, b""])


def set_field(number: int, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda lines: lines[number].update(values)


def set_payload(number: int, **values: Any) -> Callable[[list[dict[str, Any]]], None]:
    return lambda lines: lines[number]["payload"].update(values)


def repeat_created(lines: list[dict[str, Any]]) -> None:
    lines.append({**lines[0], "n": len(lines) + 1})


def repeat_message(lines: list[dict[str, Any]]) -> None:
    lines.append({**lines[1], "n": len(lines) + 1})


def nested(lines: list[dict[str, Any]]) -> None:
    value: dict[str, Any] = {}
    for _ in range(300):
        value = {"x": value}
    lines[0]["payload"]["metadata"] = value
    lines[0]["payload"]["title"] = 5


MESSAGE = {"id": "m", "role": "user", "session_id": ""}

HOSTILE: dict[str, Callable[[list[dict[str, Any]]], None]] = {
    "a run id that leads out of the directory": set_field(1, run_id="../../etc/passwd"),
    "an agent path without end": set_field(1, agent_path="a/" * 1000),
    "a time that never comes": set_field(1, time=1e300),
    "a time before time": set_field(1, time=-1.0),
    "an epoch that does not fit": set_field(1, epoch=2**62),
    "a negative epoch": set_field(1, epoch=-1),
    "a version from nowhere": set_field(1, version=0),
    "a version of the future": set_field(1, version=9),
    "a huge version": set_field(1, version=10_000),
    "a kind that is a path": set_field(1, kind="../x"),
    "a kind without end": set_field(1, kind="a." + "b" * 100),
    "no session at the beginning": set_field(0, kind="session.updated", payload={"changes": {}}),
    "a session that begins twice": repeat_created,
    "a message that comes twice": repeat_message,
    "a message id that leads out": set_payload(
        1, message={**MESSAGE, "id": "../../../tmp/x", "parts": []}
    ),
    "a message without an id": set_payload(1, message={**MESSAGE, "id": ""}),
    "a message with a role of its own": set_payload(1, message={**MESSAGE, "role": "root"}),
    "a signal id that is none": set_payload(1, signal_id="a b"),
    "a title that is a number": nested,
    "a digest that is none": set_field(1, is_redacted=True, keep_digest="zz" * 32),
    "a redaction that nobody recorded": set_field(1, is_redacted=True),
    "an unknown kind that is no object": set_field(1, kind="plugin.x", payload=[1]),
    "an updated part of a message with a path": set_field(
        1, kind="message.part.updated", payload={"message_id": "../x", "part": None}
    ),
}


@pytest.mark.parametrize("name", list(HOSTILE))
async def test_a_file_with_a_valid_chain_and_hostile_content_is_refused(
    name: str, journal: Journal, manager: SessionManager, session: Session
) -> None:
    await manager.add_message(session.id, "user", "hello")
    data = await export(journal, session.id)
    assert len(parse(forge(data, lambda lines: None))) == 2
    with pytest.raises(InvalidImport) as caught:
        parse(forge(data, HOSTILE[name]))
    assert caught.value.code == "session.invalid_import"


async def test_a_header_that_is_none_is_refused(journal: Journal, session: Session) -> None:
    data = await export(journal, session.id)
    header, rest = data.split(b"\n", 1)
    fields = json.loads(header)
    changed = [
        {**fields, "format": "tar"},
        {**fields, "version": 2},
        {**fields, "session_id": "../../x"},
        {**fields, "session_id": "system"},
        {**fields, "events": 2},
        {**fields, "events": 0},
        {**fields, "hash": "0" * 64},
        {**fields, "more": 1},
        {**fields, "events": "1"},
        {key: value for key, value in fields.items() if key != "hash"},
    ]
    heads = [msgspec.json.encode(each) for each in changed]
    heads += [b"", b"[]", b"null", header + b" ", b" " + header, b"\xef\xbb\xbf" + header]
    heads += [header.replace(b"{", b"{" + b" " * 5000, 1), b"[" * 100_000, b"\xff\xfe"]
    heads += [header.replace(b'"version":1', b'"version":1,"version":1')]
    for head in heads:
        with pytest.raises(InvalidImport):
            parse(head + b"\n" + rest)
    with pytest.raises(InvalidImport):
        parse(header + b"\n")
    with pytest.raises(InvalidImport):
        parse(b"")


async def test_a_huge_line_is_refused_in_bounded_memory(
    journal: Journal, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = await export(journal, session.id)
    header = data.split(b"\n", 1)[0] + b"\n"
    ten = 10 * 1024 * 1024
    for line in (
        b"x" * ten,
        b"[" * ten,
        b'{"n":1,"kind":"' + b"k" * ten,
        b'"' + b"\\u0000" * 10**6,
    ):
        source = io.BytesIO(header + line)
        tracemalloc.start()
        try:
            with pytest.raises(InvalidImport):
                parse_export(source)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 5 * ten
    monkeypatch.setattr(transfer, "LARGEST_LINE", 100)
    with pytest.raises(InvalidImport, match="longer than 100"):
        parse(data)
    monkeypatch.setattr(transfer, "LARGEST_LINE", 10_000)
    monkeypatch.setattr(transfer, "LARGEST_FILE", 100)
    with pytest.raises(InvalidImport, match="larger than 100"):
        parse(data)


async def test_the_layout_has_one_file_per_thing(
    full: Session, manager: SessionManager, journal: Journal
) -> None:
    files = {name: content async for name, content in export_layout_files(manager)}
    assert json.loads(files[f"storage/session/{full.id}.json"])["slug"] == full.slug
    messages = await manager.messages.all(full)
    for message in messages:
        found = json.loads(files[f"storage/message/{full.id}/{message.id}.json"])
        assert found["id"] == message.id
    runs = {event.run_id for event in await journal.read_all(full.id) if event.run_id}
    assert len(runs) == 2
    for run in runs:
        lines = files[f"run-{run}.jsonl"].splitlines()
        assert json.loads(lines[0])["kind"] == "run.queued"
    assert len(files) == 1 + len(messages) + len(runs)


async def test_no_file_of_the_layout_lies_outside_of_it(
    manager: SessionManager, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.messages import Message  # noqa: PLC0415
    from holdfast.sessions import layout  # noqa: PLC0415
    from holdfast.sessions.events import MessageCreated  # noqa: PLC0415

    monkeypatch.setattr(layout, "_PAGE", 2)
    async with manager.writing(session.id) as hold:
        for name in ("../../../etc/passwd", "/etc/passwd", "a/b", "ok"):
            message = Message(id=name, session_id="", role="user")
            await hold.append(MessageCreated(message=message))
    for n in range(3):
        await manager.create_session(f"s{n}")
    names = [name async for name, _ in export_layout_files(manager)]
    assert len(set(names)) == len(names) == 4 + 4
    assert all(".." not in name and not name.startswith("/") for name in names)


OF_THE_STORE = (
    TriggerCreated(trigger_id="t", name="evil", definition={}),
    WebhookAdded(webhook_id="w", url="https://evil.example", types=(), position=0),
    BudgetSettled(tenant="default", reservation_id="r"),
    ArtifactPlaceClaimed(mark="evil"),
    EgressRefused(principal="run:x", host="a.example", port=443, because="x"),
)


@pytest.mark.parametrize("fact", OF_THE_STORE, ids=lambda fact: fact.kind)
async def test_no_session_brings_along_what_the_store_says_of_itself(
    journal: Journal, session: Session, fact: Payload
) -> None:
    """Triggers, agents, receivers, keys and what was spent have no place in a conversation."""
    await journal.append(session.id, [fact])
    with pytest.raises(InvalidImport, match=fact.kind):
        parse(await export(journal, session.id))
