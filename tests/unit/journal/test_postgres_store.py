"""What only a database server has to prove: late commits, lost connections, schemas, one clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from postgres_server import PostgresServer

from holdfast.errors import NotFound, SchemaTooNew, StorageError, UsageError
from holdfast.journal import AppendRequest, Journal, RowQuery, Store, open_store, verify
from holdfast.journal.stores.postgres import PostgresStore
from holdfast.testing._store_samples import SAMPLE_TABLES, TOPICS, Note


class At:
    """A database with stores on it."""

    def __init__(self, server: PostgresServer, name: str, place: Path) -> None:
        self.server, self.name, self.place = server, name, place

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    def make(self, url: str = "") -> Store:
        return open_store(url or self.url, base_dir=self.place, projections=SAMPLE_TABLES)

    @contextlib.asynccontextmanager
    async def opened(self, url: str = "") -> AsyncIterator[Journal]:
        async with Journal(self.make(url)) as journal:
            yield journal

    def execute(self, statement: str) -> None:
        self.server.execute(statement, self.name)


@pytest.fixture
def at(postgres: PostgresServer, tmp_path: Path) -> At:
    return At(postgres, postgres.make_database(), tmp_path)


async def _begin(journal: Journal, *names: str) -> None:
    for name in names:
        await journal.append(name, [Note()], must_be_new=True)


async def _wait_until_blocked(url: str) -> None:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as looking:
        while True:
            cursor = await looking.execute(
                "SELECT 1 FROM pg_stat_activity "
                "WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            if await cursor.fetchone():
                return


@pytest.mark.parametrize("is_kept", [True, False])
async def test_an_event_that_commits_late_is_never_skipped(at: At, is_kept: bool) -> None:
    """Of two slow transactions the one with the lower number commits first, or has none."""
    async with at.opened() as journal, at.opened() as other:
        await _begin(journal, "slow", "quick")
        store = journal.store
        assert isinstance(store, PostgresStore)
        late = AppendRequest(
            session_id="slow", drafts=(journal.draft(Note(text="late")),), epoch=None
        )
        with contextlib.suppress(ZeroDivisionError):
            async with store._connections.transaction() as connection:
                [event] = await store._appender.append_within(connection, late)
                assert event.seq == 3
                waiting = asyncio.create_task(other.append("quick", [Note(text="quick")]))
                # It has reached the server, and waits there for its number.
                await _wait_until_blocked(at.url)
                assert [one.seq for one in await journal.store.feed(after=0)] == [1, 2]
                if not is_kept:
                    raise ZeroDivisionError
        await waiting
        feed = await journal.store.feed(after=2)
        texts = ["late", "quick"] if is_kept else ["quick"]
        assert [(one.seq, one.expect(Note).text) for one in feed] == list(enumerate(texts, 3))


async def test_a_subscriber_is_told_of_what_another_process_stores(at: At) -> None:
    async with at.opened() as journal, at.opened() as other:
        seen: list[str] = []
        heard = asyncio.Event()

        async def listen() -> None:
            async for event in journal.subscribe(after=0):
                seen.append(event.session_id)
                heard.set()
                if len(seen) == 20:
                    return

        listening = asyncio.create_task(listen())
        await _begin(other, "s1")
        await asyncio.wait_for(heard.wait(), 20)
        for _ in range(19):
            await other.append("s1", [Note()])
        await asyncio.wait_for(listening, 20)
        assert seen == ["s1"] * 20


async def test_connections_that_break_lose_nothing_and_store_nothing_twice(at: At) -> None:
    """Every connection is cut again and again while four sessions grow."""
    async with at.opened() as journal:
        names = [f"s{number}" for number in range(4)]
        await _begin(journal, *names)
        is_done = asyncio.Event()
        acknowledged: dict[str, list[str]] = {name: [] for name in names}

        async def write(name: str) -> None:
            for number in range(40):
                await journal.append(name, [Note(text=f"{name} {number}", topic=f"t{number}")])
                acknowledged[name].append(f"{name} {number}")

        async def cut() -> None:
            async with await psycopg.AsyncConnection.connect(at.url, autocommit=True) as killer:
                while not is_done.is_set():
                    await killer.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    )
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(is_done.wait(), 0.02)

        cutting = asyncio.create_task(cut())
        await asyncio.gather(*map(write, names))
        is_done.set()
        await cutting
        for name in names:
            stored = [event.expect(Note).text for event in await journal.read_all(name)]
            assert stored[1:] == acknowledged[name] and len(stored) == 41
        feed = await journal.store.feed(after=0)
        assert [event.seq for event in feed] == list(range(1, 4 * 41 + 1))
        assert await verify(journal.store) == []


class Proxy:
    """Stands between client and server; can swallow one answer and hang up."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self.is_cutting = False
        self.cuts = 0
        self.tasks: list[asyncio.Task[None]] = []

    async def finish(self) -> None:
        """Wait until every connection is closed on both sides."""
        await asyncio.gather(*self.tasks)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        from_server, to_server = await asyncio.open_unix_connection(self._socket)
        swallow = False

        async def forward() -> None:
            nonlocal swallow
            while data := await reader.read(65536):
                if self.is_cutting and b"INSERT INTO holdfast.events" in data:
                    self.is_cutting, swallow = False, True
                to_server.write(data)
            to_server.close()

        sending = asyncio.create_task(forward())
        while data := await from_server.read(65536):
            if swallow and b"COMMIT" in data:
                self.cuts += 1
                break
            if not swallow:
                writer.write(data)
        sending.cancel()
        for side in (to_server, writer):
            side.close()
            with contextlib.suppress(OSError):
                await side.wait_closed()


async def test_an_append_whose_answer_is_lost_is_stored_once_and_acknowledged(at: At) -> None:
    known = psycopg.conninfo.conninfo_to_dict(at.url)
    proxy = Proxy(f"{known['host']}/.s.PGSQL.5432")
    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    url = f"postgresql://{known['user']}@127.0.0.1:{port}/{at.name}?sslmode=disable"
    async with server, at.opened(url) as journal:
        await _begin(journal, "s1")
        for number in range(3):
            proxy.is_cutting = True
            [event] = await journal.append("s1", [Note(text=f"{number}")])
            assert event.session_seq == number + 2
        proxy.is_cutting = True
        await _begin(journal, "s2")
        assert proxy.cuts == 4
        texts = [event.expect(Note).text for event in await journal.read_all("s1")]
        assert texts == ["text", "0", "1", "2"]
        assert len(await journal.read_all("s2")) == 1
        assert await verify(journal.store) == []
    await proxy.finish()


async def test_a_server_that_restarts_is_waited_for(postgres: PostgresServer, at: At) -> None:
    async with at.opened() as journal:
        await _begin(journal, "s1")
        restarting = asyncio.create_task(asyncio.to_thread(postgres.restart))
        for number in range(30):
            await journal.append("s1", [Note(text=f"{number}")])
            await asyncio.sleep(0)
        await restarting
        await journal.append("s1", [Note(text="after")])
        assert len(await journal.read_all("s1")) == 32
        assert await asyncio.to_thread(journal.store.renew, {}, "me", 10) == set()
        assert await verify(journal.store) == []


async def test_a_client_that_stands_still_in_a_transaction_holds_nobody_up_for_long(at: At) -> None:
    """Appends are single statements; what holds locks longer is ended by the server."""
    async with at.opened() as journal:
        store = journal.store
        assert isinstance(store, PostgresStore)
        async with store._connections.transaction() as connection:
            cursor = await connection.execute("SHOW idle_in_transaction_session_timeout")
            assert await cursor.fetchone() == ("15s",)


async def test_a_schema_that_does_not_fit_is_refused(at: At) -> None:
    async with at.opened() as journal:
        await _begin(journal, "s1")
    at.execute("INSERT INTO holdfast.migrations VALUES (99, 'later', 1)")
    async with at.opened() as journal:
        assert len(await journal.read_all("s1")) == 1  # its changes do not concern this version
    at.execute("UPDATE holdfast.migrations SET compatible_from = 99 WHERE version = 99")
    with pytest.raises(SchemaTooNew):
        await at.make().open()


async def test_a_process_of_an_older_version_cannot_write_past_newer_tables(at: At) -> None:
    async with at.opened() as journal:
        await _begin(journal, "s1")
        at.execute("ALTER TABLE holdfast.p_testing_topics_v1 RENAME TO p_testing_topics_v2")
        with pytest.raises(SchemaTooNew):
            await journal.append("s1", [Note()])
        assert len(await journal.read_all("s1")) == 1


async def test_processes_that_set_up_a_database_at_once_do_not_disturb_each_other(at: At) -> None:
    stores = [at.make() for _ in range(6)]
    await asyncio.gather(*[store.open() for store in stores])
    await asyncio.gather(
        *[_begin(Journal(store), f"s{number}") for number, store in enumerate(stores)]
    )
    assert len(await stores[0].heads()) == 6
    for store in stores:
        await store.close()


async def test_a_role_that_may_not_set_it_up_is_told_what_to_do(at: At) -> None:
    at.execute("CREATE ROLE stranger LOGIN")
    url = at.url.replace("postgres@", "stranger@")
    with pytest.raises(StorageError) as raised:
        await at.make(url).open()
    assert "holdfast storage migrate" in str(raised.value)


async def test_tables_that_were_changed_by_hand_are_found(at: At) -> None:
    async with at.opened() as journal:
        await journal.append("s1", [Note(topic="a"), Note(topic="b")], must_be_new=True)
        await _begin(journal, "s2")
        assert await journal.store.examine() == []
        at.execute("UPDATE holdfast.p_testing_topics_v1 SET c_rank = 9 WHERE key = 'a'")
        at.execute("DELETE FROM holdfast.p_testing_topics_v1 WHERE key = 'b'")
        found = {one.problem for one in await journal.store.examine()}
        assert {problem.rpartition("' ")[2] for problem in found} == {
            "is not what the log says",
            "is missing",
        }
        await journal.rebuild()
        assert await journal.store.examine() == []
        at.execute("UPDATE holdfast.events SET seq = seq + 10")
        assert any("numbers" in one.problem for one in await journal.store.examine())


async def test_names_that_no_text_holds_are_refused_or_missing(at: At) -> None:
    async with at.opened() as journal:
        await _begin(journal, "s1")
        for name in ("a\0b", "\ud800"):
            with pytest.raises(UsageError):
                await journal.append(name, [Note()], must_be_new=True)
            assert await journal.read(name) == []
            assert await journal.head(name) is None
            with pytest.raises(NotFound):
                await journal.store.acquire(name, "me", 10)
        assert await journal.store.rows(RowQuery(projection=TOPICS, session_id="a\0b")) == []


async def test_a_fraction_is_compared_as_one_with_whole_numbers(at: At) -> None:
    from holdfast.journal import Condition  # noqa: PLC0415

    async with at.opened() as journal:
        notes = [Note(topic=f"t{rank}", rank=rank) for rank in range(3)]
        await journal.append("s1", notes, must_be_new=True)
        where = (Condition("rank", ">", 0.5), Condition("rank", "<", 1.5))
        found = await journal.rows(RowQuery(projection=TOPICS, where=where))
        assert [one.row.rank for one in found] == [1]
        with pytest.raises(UsageError):
            await journal.rows(RowQuery(projection=TOPICS, where=(Condition("rank", "=", "1"),)))


async def test_a_lock_by_name_excludes_other_processes(at: At) -> None:
    async with at.opened() as journal, at.opened() as other:
        one, two = journal.store, other.store
        assert isinstance(one, PostgresStore) and isinstance(two, PostgresStore)
        order: list[str] = []

        async def enter() -> None:
            async with two.alone("catalogue"):
                order.append("second")

        async with one.alone("catalogue"), two.alone("another"):
            entering = asyncio.create_task(enter())
            await other.append("s1", [Note()], must_be_new=True)
            order.append("first")
        await asyncio.wait_for(entering, 20)
        assert order == ["first", "second"]
