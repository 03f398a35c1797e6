"""Anchors outside of the records prove what was there: rolled back, rewritten, removed."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from holdfast import AsyncClient, Client
from holdfast.errors import StorageError, UsageError
from holdfast.journal import GENESIS, hash_chain, make_header
from holdfast.journal.stores._sqlite_chains import EVENTS, compute_place, read_events
from holdfast.settings import load_settings

WAIT_S = 20


@contextmanager
def opened(place: Path, anchor: str, **more: str) -> Iterator[Client]:
    overrides = {"audit.anchor": anchor, **more}
    settings = load_settings(overrides=overrides).settings
    with Client(place / "state", settings=settings) as client:
        yield client


@pytest.fixture(params=["file", "sqlite"])
def anchor(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    end = "anchors.jsonl" if request.param == "file" else "elsewhere"
    return f"{request.param}://{tmp_path / end}"


def ask(client: Client, session: str, text: str = "What is 15 times 23?") -> None:
    assert client.runs.execute("build", session, text).status == "completed"


def copy_state(place: Path, name: str) -> Path:
    return Path(shutil.copytree(place / "state", place / name))


def put_back(place: Path, copy: Path) -> None:
    shutil.rmtree(place / "state")
    copy.rename(place / "state")


def test_records_that_were_rolled_back_to_an_older_copy_are_named(
    tmp_path: Path, anchor: str
) -> None:
    with opened(tmp_path, anchor) as client:
        session = client.sessions.create("one").id
        ask(client, session)
    older = copy_state(tmp_path, "older")
    with opened(tmp_path, anchor) as client:
        ask(client, session)
        later = client.sessions.create("later").id
        ask(client, later)
        assert client.audit.verify() == []
    if anchor.startswith("sqlite:"):
        with closing(sqlite3.connect(tmp_path / "elsewhere" / "journal.db")) as other:
            kinds = {kind for (kind,) in other.execute("SELECT kind FROM events")}
        assert "journal.anchored" in kinds, "there, anchors are facts"
    put_back(tmp_path, older)
    with opened(tmp_path, "") as client:
        assert client.audit.verify() == []  # without the anchor all seems well
    with opened(tmp_path, anchor) as client:
        found = {one.session_id: one.problem for one in client.audit.verify()}
        assert "rolled back" in found[session] and "missing" in found[later]
        # Going on does not make it forgotten.
        ask(client, session)
        ask(client, session)
    with opened(tmp_path, anchor) as client:
        found = {one.session_id: one.problem for one in client.audit.verify()}
        assert "rewritten" in found[session] and "missing" in found[later]
        assert [one.session_id for one in client.audit.verify(session_id=session)] == [session]


def test_a_chain_that_was_rewritten_with_all_its_hashes_is_named(
    tmp_path: Path, anchor: str
) -> None:
    with opened(tmp_path, anchor) as client:
        session = client.sessions.create("one").id
        ask(client, session)
    rewrite(tmp_path / "state" / "journal.db", session)
    with opened(tmp_path, "") as client:
        assert [one for one in client.audit.verify() if "table" not in one.problem] == []
    with opened(tmp_path, anchor) as client:
        [found] = [one for one in client.audit.verify() if "table" not in one.problem]
        assert found.session_id == session and "rewritten" in found.problem


def rewrite(path: Path, session: str) -> None:
    """Change the time of a session's first event, and make its whole chain fit."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        sql = f"{EVENTS} WHERE s.session_id = ? ORDER BY e.session_seq"
        connection.execute(
            "UPDATE events SET time = time - 1 WHERE session_seq = 1 AND stream = "
            "(SELECT stream FROM streams WHERE session_id = ?)",
            (session,),
        )
        previous = GENESIS
        for event in read_events(connection, sql, [session]):
            previous = hash_chain(previous, make_header(event))
            connection.execute(
                "UPDATE events SET hash = ?, place = ? WHERE seq = ?",
                (bytes.fromhex(previous), compute_place(previous, event.seq), event.seq),
            )


def test_a_session_that_was_deleted_as_it_should_be_is_no_finding(
    tmp_path: Path, anchor: str
) -> None:
    with opened(tmp_path, anchor) as client:
        kept, gone = (client.sessions.create(name).id for name in ("kept", "gone"))
        for session in (kept, gone):
            ask(client, session)
        assert client.audit.anchor().sessions >= 0
        client.sessions.delete(gone, reason="wished")
        ask(client, kept)
    with opened(tmp_path, anchor) as client:
        assert client.audit.verify() == []
        assert client.audit.anchor().sessions == 0


def test_an_anchor_file_that_was_changed_is_a_finding(tmp_path: Path) -> None:
    path = tmp_path / "anchors.jsonl"
    with opened(tmp_path, f"file://{path}") as client:
        session = client.sessions.create("one").id
        for _ in range(3):
            ask(client, session)
            client.audit.anchor()
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) >= 3 and path.stat().st_mode & 0o777 == 0o600
    # A line that a crash has cut is no reason for doubt: the next one does not build on it.
    path.write_bytes(b"".join(lines) + lines[-1][:40])
    with opened(tmp_path, f"file://{path}") as client:
        assert client.audit.verify() == []
        ask(client, session)
        client.audit.anchor()
        assert client.audit.verify() == []
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[1:]))
    with opened(tmp_path, f"file://{path}") as client:
        [found] = client.audit.verify()
        assert "was changed before line 1" in found.problem
    path.write_bytes(whole[0] + whole[1].replace(b'"previous"', b'"pre') + b"".join(whole[2:]))
    with opened(tmp_path, f"file://{path}") as client:
        [found] = client.audit.verify()
        assert "line 2" in found.problem
    path.unlink()
    path.mkdir()
    with opened(tmp_path, f"file://{path}") as client:
        [found] = client.audit.verify()
        assert "cannot be read" in found.problem
        ask(client, session)  # what cannot be anchored does not stop the work
        with pytest.raises(StorageError):
            client.audit.anchor()


def test_stores_that_share_a_file_keep_their_anchors_apart(tmp_path: Path) -> None:
    path = tmp_path / "anchors.jsonl"
    for tenant in ("one", "two"):
        with opened(tmp_path / tenant, f"file://{path}", tenant=tenant) as client:
            ask(client, client.sessions.create("a").id)
    for tenant in ("one", "two"):
        with opened(tmp_path / tenant, f"file://{path}", tenant=tenant) as client:
            assert client.audit.verify() == []
    stores = [json.loads(line)["anchor"]["store"] for line in path.read_text().splitlines()]
    assert set(stores) == {"one", "two"}


def test_without_a_place_there_is_nothing_to_anchor_to(tmp_path: Path) -> None:
    with opened(tmp_path, "") as client, pytest.raises(UsageError):
        client.audit.anchor()
    for wrong in ("nothing://x", "file:///", "http://elsewhere.example/anchors"):
        with pytest.raises(UsageError), opened(tmp_path, wrong) as client:
            client.audit.anchor()


@asynccontextmanager
async def notary(
    *, can_be_read: bool = True
) -> AsyncIterator[tuple[str, list[bytes], asyncio.Semaphore]]:
    """A server on this machine that keeps what it is sent."""
    kept: list[bytes] = []
    arrived = asyncio.Semaphore(0)

    async def take(request: web.Request) -> web.Response:
        if request.headers.get("authorization") != "Bearer let-me-in":
            return web.Response(status=401)
        kept.append(await request.read())
        arrived.release()
        return web.Response(status=201)

    async def give(request: web.Request) -> web.Response:
        return web.Response(body=b"\n".join(kept), status=200 if can_be_read else 405)

    app = web.Application()
    app.add_routes([web.post("/anchors", take), web.get("/anchors", give)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"http://127.0.0.1:{port}/anchors", kept, arrived
    finally:
        await runner.cleanup()


async def test_an_address_gets_an_anchor_after_each_run_and_proves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_ANCHOR_TOKEN", "let-me-in")
    async with notary() as (url, kept, arrived):
        settings = load_settings(overrides={"audit.anchor": url}).settings
        async with AsyncClient(tmp_path / "state", settings=settings) as client:
            session = (await client.sessions.create("one")).id
            for _ in range(2):
                await client.runs.execute("build", session, "What is 15 times 23?")
                await asyncio.wait_for(arrived.acquire(), WAIT_S)
            assert await client.audit.verify() == []
            assert json.loads(kept[0])["heads"][session]["session_seq"] > 0
        kept.append(kept[-1].replace(b'"hash":"', b'"hash":"00'))
        async with AsyncClient(tmp_path / "state", settings=settings) as client:
            assert "rewritten" in str(await client.audit.verify())
            kept[-1] = b"nonsense"
            assert "no anchor" in str(await client.audit.verify())
    async with AsyncClient(tmp_path / "state", settings=settings) as client:
        assert "cannot be read" in str(await client.audit.verify())


async def test_an_address_that_only_takes_gets_all_heads_of_each_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_ANCHOR_TOKEN", "let-me-in")
    async with notary(can_be_read=False) as (url, kept, _arrived):
        settings = load_settings(overrides={"audit.anchor": url}).settings
        for _ in range(2):
            async with AsyncClient(tmp_path / "state", settings=settings) as client:
                await client.sessions.create("one")
                await client.audit.anchor()
        sizes = [len(json.loads(one)["heads"]) for one in kept]
        assert sizes == sorted(sizes) and len(sizes) >= 2
