"""What only a database server has to prove: late commits, lost connections, schemas, one clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg
import pytest
from postgres_server import PostgresServer

from holdfast.errors import (
    HoldfastError,
    NotFound,
    SchemaTooNew,
    StaleWriter,
    StorageError,
    StorageUnavailable,
    UsageError,
)
from holdfast.journal import (
    SYSTEM_SESSION,
    AppendRequest,
    Condition,
    Journal,
    RowQuery,
    SchemaStatus,
    SessionDeleted,
    Store,
    migrate_store,
    open_store,
    verify,
)
from holdfast.journal.stores import (
    _postgres_append,
    _postgres_connections,
    _postgres_examination,
    _postgres_schema,
)
from holdfast.journal.stores import postgres as postgres_module
from holdfast.journal.stores._postgres_schema import Migration
from holdfast.journal.stores.postgres import PostgresStore
from holdfast.runtime.runtime import PROJECTIONS
from holdfast.sessions import RUNS
from holdfast.sessions.events import RunQueued, RunWoken, SessionCreated
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
    async with (
        asyncio.timeout(20),
        await psycopg.AsyncConnection.connect(url, autocommit=True) as looking,
    ):
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
            async with store._connections.begin_transaction() as connection:
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
        is_done, has_grown = asyncio.Event(), asyncio.Event()
        acknowledged: dict[str, list[str]] = {name: [] for name in names}

        async def write(name: str) -> None:
            for number in range(40):
                await journal.append(name, [Note(text=f"{name} {number}", topic=f"t{number}")])
                acknowledged[name].append(f"{name} {number}")
                has_grown.set()

        async def cut() -> None:
            async with await psycopg.AsyncConnection.connect(at.url, autocommit=True) as killer:
                while not is_done.is_set():
                    # However slow the machine is: something is stored between two cuts.
                    has_grown.clear()
                    await killer.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    )
                    await has_grown.wait()

        cutting = asyncio.create_task(cut())
        await asyncio.gather(*map(write, names))
        is_done.set()
        has_grown.set()
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
        await asyncio.to_thread(journal.store.renew, {}, "me", 10)
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
        async with store._connections.begin_transaction() as connection:
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
    url = at.server.url(at.name, role="stranger")
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


async def test_a_caller_that_is_cancelled_may_have_stored_its_batch(at: At) -> None:
    """What was sent is stored whole; what was not sent is not."""
    async with at.opened() as journal:
        await _begin(journal, "s1")
        store = journal.store
        assert isinstance(store, PostgresStore)
        async with store._connections.begin_separately() as holding:
            await holding.execute("SELECT 1 FROM holdfast.counters FOR UPDATE")
            sent = asyncio.create_task(journal.append("s1", [Note(text="sent")]))
            await _wait_until_blocked(at.url)
            waiting = asyncio.create_task(journal.append("s1", [Note(text="not sent")]))
            await asyncio.sleep(0)
            for task in (sent, waiting):
                task.cancel()
            await asyncio.wait([sent, waiting])
        await journal.append("s1", [Note(text="last")])
        texts = [event.expect(Note).text for event in await journal.read_all("s1")]
        assert texts == ["text", "sent", "last"]


async def test_a_cancelled_caller_of_a_failed_append_hears_nothing(at: At) -> None:
    async with at.opened() as journal:
        await _begin(journal, "s1")
        _fail_in_the_server(at, "XX000")
        store = journal.store
        assert isinstance(store, PostgresStore)
        async with store._connections.begin_separately() as holding:
            await holding.execute("SELECT 1 FROM holdfast.counters FOR UPDATE")
            sent = asyncio.create_task(journal.append("s1", [Note(text="sent")]))
            await _wait_until_blocked(at.url)
            sent.cancel()
            await asyncio.wait([sent])
        with pytest.raises(StorageError):
            await journal.append("s1", [Note()])
        assert len(await journal.read_all("s1")) == 1


def _fail_in_the_server(at: At, code: str, times: int = 10**9) -> None:
    """Have the server refuse the next inserts of events."""
    at.execute("CREATE SEQUENCE tries")
    at.execute("GRANT USAGE ON SEQUENCE tries TO PUBLIC")
    at.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
        f"IF nextval('tries') <= {times} THEN RAISE EXCEPTION 'no' USING ERRCODE = '{code}'; "
        "END IF; RETURN NEW; END$$"
    )
    at.execute(
        "CREATE TRIGGER fail BEFORE INSERT ON holdfast.events FOR EACH ROW EXECUTE FUNCTION fail()"
    )


async def test_a_deadlock_is_tried_again_and_stores_once(at: At) -> None:
    async with at.opened() as journal:
        await _begin(journal, "s1")
        _fail_in_the_server(at, "40P01", times=3)
        await journal.append("s1", [Note(text="again")])
        assert [event.session_seq for event in await journal.read_all("s1")] == [1, 2]


async def test_what_was_accepted_is_stored_before_the_store_closes(at: At) -> None:
    journal = await Journal(at.make()).open()
    await _begin(journal, "s1")
    last = asyncio.create_task(journal.append("s1", [Note(text="last")]))
    await asyncio.sleep(0)
    await journal.close()
    assert (await last)[0].session_seq == 2


async def test_a_search_by_words_goes_on_until_it_has_found_enough(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "_CHUNK", 2)
    async with at.opened() as journal:
        notes = [Note(topic=f"t{n}", text="Odd" if n % 2 else "even") for n in range(9)]
        await journal.append("s1", notes, must_be_new=True)
        for limit, count in ((3, 3), (100, 4)):
            where = (Condition("text", "contains", "odd"),)
            query = RowQuery(projection=TOPICS, where=where, limit=limit, descending=True)
            assert len(await journal.rows(query)) == count
        wrong = (Condition("text", "<", 5), Condition("rank", "contains", "x"))
        for condition in wrong:
            with pytest.raises(UsageError):
                await journal.rows(RowQuery(projection=TOPICS, where=(condition,)))
        with pytest.raises(NotFound):
            await journal.store.redact("a\0b", {1: b"{}"}, journal.draft(Note()))


async def test_a_deletion_that_meets_the_birth_of_the_system_chain_is_refused_whole(
    at: At,
) -> None:
    async with at.opened() as journal:
        await _begin(journal, "s1")
        head = await journal.store.acquire("s1", "me", 60)
        assert head is not None
        note = journal.draft(SessionDeleted(session_id="s1", last=1, hash=head.hash))
        store = journal.store
        assert isinstance(store, PostgresStore)
        async with store._connections.begin_separately() as other:
            await other.execute(
                "INSERT INTO holdfast.streams (tenant, session_id) VALUES ('default', %s)",
                (SYSTEM_SESSION,),
            )
            deleting = asyncio.create_task(store.delete("s1", note, 1))
            await _wait_until_blocked(at.url)
        with pytest.raises(StaleWriter):
            await deleting
        assert len(await journal.read_all("s1")) == 1
        await store.delete("s1", note, 1)
        assert await journal.read_all("s1") == []


async def test_a_table_that_refuses_the_note_of_a_redaction_keeps_the_content(at: At) -> None:
    async with at.opened() as journal:
        await _begin(journal, "s1")
        for text in ("refuse", "missing"):
            note = journal.draft(Note(text=text))
            if text == "missing":
                at.execute("UPDATE holdfast.streams SET session_seq = 7")
                at.execute(
                    "INSERT INTO holdfast.events SELECT tenant, 99, stream, 8, kind, "
                    "version, time, run_id, agent_path, correlation_id, causation_id, "
                    "epoch, digest, hash, placement, payload, place FROM holdfast.events"
                )
            with pytest.raises((UsageError, StorageError)):
                await journal.store.redact("s1", {1: b"{}"}, note)
        assert not any(event.is_redacted for event in await journal.read("s1"))


async def test_many_sessions_and_rows_are_not_all_remembered(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres_append, "_MOST_CHAINS", 2)
    monkeypatch.setattr(_postgres_append, "_MOST_ROWS", 2)
    async with at.opened() as journal:
        names = [f"s{number}" for number in range(5)]
        await _begin(journal, *names)
        for _ in range(2):
            for name in names:
                await journal.append(name, [Note(topic=f"t{number}") for number in range(4)])
        for name in names:
            row = await journal.row(TOPICS, name, "t3")
            assert row is not None and row.count == 2


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:p@[::1/x",
        "postgresql://host/db?no_such_option=1",
        "postgresql://host/db?holdfast_tenant=",
        "postgresql://host/db?holdfast_readers=0",
        "postgresql://host/db?holdfast_readers=many",
    ],
)
def test_an_address_that_means_nothing_is_refused(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        open_store(url, base_dir=tmp_path)


async def test_what_does_not_answer_or_does_not_exist_is_told_apart(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres_connections, "_RECONNECT_S", 0.2)
    known = psycopg.conninfo.conninfo_to_dict(at.url)
    with pytest.raises(StorageUnavailable):
        await at.make("postgresql://u@127.0.0.1:1/x").open()
    with pytest.raises(StorageError) as raised:
        await at.make(f"postgresql://postgres@/missing?host={known['host']}").open()
    assert "missing" in str(raised.value)
    with pytest.raises(StorageUnavailable):
        await migrate_store(
            "postgresql://u@127.0.0.1:1/x", base_dir=at.place, projections=SAMPLE_TABLES
        )
    with pytest.raises(StorageUnavailable):
        await asyncio.to_thread(at.make("postgresql://u@127.0.0.1:1/x").renew, {}, "me", 6)


async def test_a_server_that_does_not_come_back_leaves_the_outcome_open(
    postgres: PostgresServer, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at.opened() as journal:
        await _begin(journal, "s1")
        store = journal.store
        assert isinstance(store, PostgresStore)
        monkeypatch.setattr(_postgres_connections, "_RECONNECT_S", 0.2)
        async with store._connections.begin_separately() as holding:
            await holding.execute("SELECT 1 FROM holdfast.counters FOR UPDATE")
            sent = asyncio.create_task(journal.append("s1", [Note(text="sent")]))
            await _wait_until_blocked(at.url)
            at.server.execute(f"ALTER DATABASE {at.name} ALLOW_CONNECTIONS false")
            at.server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                f"WHERE datname = '{at.name}' AND wait_event_type = 'Lock'"
            )
            with pytest.raises(StorageUnavailable) as raised:
                await sent
            assert "reading shows" in str(raised.value)
            with pytest.raises(StorageUnavailable) as raised:
                await journal.append("s1", [Note()])
            assert "reading shows" not in str(raised.value)
        at.server.execute(f"ALTER DATABASE {at.name} ALLOW_CONNECTIONS true")
        assert len(await journal.read_all("s1")) == 1


async def test_readers_wait_for_each_other_and_not_for_ever(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres_connections, "_RECONNECT_S", 0.2)
    async with at.opened(f"{at.url}&holdfast_readers=1") as journal:
        store = journal.store
        assert isinstance(store, PostgresStore)
        async with store._connections.begin_transaction():
            with pytest.raises(StorageUnavailable):
                await store.read_last_seq()
        with pytest.raises(UsageError):
            await store.mend()
        with pytest.raises(StorageError):
            async with store._connections.begin_separately() as connection:
                await connection.execute("SELECT nonsense")
        await store.open()  # already
    with pytest.raises(StorageError):
        await store.changed(0, 1)
    with pytest.raises(StorageError):
        async with store.alone("x"):
            raise AssertionError
    await store.release("a\0b", 1)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ("53100", "storage.full"),
        ("25006", "storage.read_only"),
        ("54000", "usage.invalid"),
        ("42P01", "storage.failed"),
    ],
)
async def test_what_the_server_says_becomes_an_error_that_helps(
    at: At, code: str, wanted: str
) -> None:
    async with at.opened() as journal:
        await _begin(journal, "s1")
        _fail_in_the_server(at, code)
        with pytest.raises(HoldfastError) as raised:
            await journal.append("s1", [Note()])
        assert raised.value.code == wanted
        with pytest.raises(HoldfastError):
            await journal.store.redact("s1", {1: b"{}"}, journal.draft(Note()))
        assert len(await journal.read_all("s1")) == 1


async def test_what_was_tampered_with_is_named(at: At) -> None:
    async with at.opened() as journal:
        store = journal.store
        for name in ("empty", "epoch", "end", "row"):
            await journal.append(name, [Note(topic="a"), Note(topic="b")], must_be_new=True)
        at.execute("UPDATE holdfast.p_testing_topics_v1 SET data = 'x' WHERE key = 'a'")
        at.execute("UPDATE holdfast.p_testing_topics_v1 SET key = 'c' WHERE key = 'b'")
        at.execute("UPDATE holdfast.p_testing_topics_v1 SET stream = 99 WHERE stream = 4")
        found = [one.problem for one in await store.examine()]
        for text in ("is not what", "does not follow", "is missing", "belong to no session"):
            assert any(text in problem for problem in found), text
        at.execute("DELETE FROM holdfast.events WHERE stream = 1")
        at.execute("UPDATE holdfast.events SET epoch = 5 WHERE stream = 2")
        at.execute("UPDATE holdfast.streams SET session_seq = 9 WHERE stream = 3")
        at.execute("DELETE FROM holdfast.streams WHERE stream = 4")
        at.execute("UPDATE holdfast.counters SET last = 1")
        found = [one.problem for one in await store.examine()]
        for text in ("no events left", "epoch", "does not end", "no session", "put back"):
            assert any(text in problem for problem in found), text


async def test_a_payload_that_cannot_be_read_is_left_to_the_check_of_the_chains(at: At) -> None:
    async with at.opened() as journal:
        await _begin(journal, "s1")
        at.execute("UPDATE holdfast.events SET payload = 'x'")
        assert {one.problem.rpartition("' ")[2] for one in await journal.store.examine()} == {
            "does not follow from the log"
        }
        assert await verify(journal.store) != []


async def test_the_findings_of_an_examination_are_bounded(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgres_examination, "_MOST_FINDINGS", 3)
    async with at.opened() as journal:
        await journal.append(
            "s1", [Note(topic=f"t{number}") for number in range(9)], must_be_new=True
        )
        at.execute("DELETE FROM holdfast.p_testing_topics_v1")
        assert len(await journal.store.examine()) == 3


async def test_a_schema_is_shown_migrated_and_refused_by_older_programs(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask(*, is_dry: bool) -> SchemaStatus:
        return await migrate_store(
            at.url, base_dir=at.place, projections=SAMPLE_TABLES, is_dry=is_dry
        )

    before = await ask(is_dry=True)
    assert (before.version, before.applied) == (0, ())
    assert before.pending[0] == "0001_initial" and "table testing_topics" in before.pending[-1]
    made = await ask(is_dry=False)
    assert made.version == made.known and made.applied[0] == "0001_initial" and not made.pending
    assert (await ask(is_dry=False)).applied == ()
    real = _postgres_schema.list_migrations()
    later = Migration(
        version=real[-1].version + 1,
        name="later",
        compatible_from=real[-1].version + 1,
        sql="CREATE TABLE holdfast.later ()",
    )
    old = at.make()
    monkeypatch.setattr(_postgres_schema, "list_migrations", lambda book: [*real, later])
    with pytest.raises(StorageError) as raised:
        await at.make().open()
    assert "storage migrate" in str(raised.value)
    assert [one.name for one in await _migrate(at)] == ["later"]
    monkeypatch.setattr(_postgres_schema, "list_migrations", lambda book: real)
    with pytest.raises(SchemaTooNew):
        await old.open()
    with pytest.raises(SchemaTooNew):
        await _migrate(at)


async def _migrate(at: At) -> list[Migration]:
    async with await psycopg.AsyncConnection.connect(at.url, autocommit=True) as connection:
        return await _postgres_schema.migrate(connection, at.name)


async def test_a_schema_that_was_made_by_hand_or_is_closed_to_a_role(at: At) -> None:
    at.execute("CREATE SCHEMA holdfast AUTHORIZATION holdfast_owner")
    async with at.opened() as journal:
        await _begin(journal, "s1")
    at.execute("CREATE ROLE outsider LOGIN")
    with pytest.raises(StorageError) as raised:
        await at.make(at.server.url(at.name, role="outsider")).open()
    assert "may not use" in str(raised.value)
    at.execute("DELETE FROM holdfast.migrations")
    with pytest.raises(StorageError):
        await at.make().open()


async def test_only_a_server_is_migrated_by_hand(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        await migrate_store("", base_dir=tmp_path, projections=())


async def test_an_append_of_a_second_store_is_seen_by_what_the_first_remembers(at: At) -> None:
    """What a memory refuses is looked up before a caller is told so."""
    async with at.opened() as journal, at.opened() as other:
        await _begin(journal, "s1")
        head = await other.store.acquire("s1", "you", 60)
        assert head is not None
        await other.append("s1", [Note()], epoch=head.epoch)
        await journal.append("s1", [Note()], epoch=head.epoch, after=2)
        with pytest.raises(StaleWriter):
            await journal.append("s1", [Note()], after=1)


async def test_the_tables_of_a_runtime_follow_a_run_that_any_process_may_take(at: At) -> None:
    """Columns that are properties, or one of some words; rows without a key; the wake-up."""
    store = open_store(at.url, base_dir=at.place, projections=PROJECTIONS)
    async with Journal(store) as journal:
        born = SessionCreated(slug="s", project_id="p", directory="", title="t", version="1")
        await journal.append("s1", [born, RunQueued(run_id="run_1")], must_be_new=True)
        await journal.append("s1", [RunWoken(run_id="run_1", cause="answered")])
        await journal.append("s1", [RunQueued(run_id="run_2", owner="me")])
        found = await journal.rows(RowQuery(projection=RUNS, session_id="s1"))
        assert {one.key for one in found} == {"run_1", "run_2"}
    seeing_all = at.server.url(at.name, role="postgres")
    async with await psycopg.AsyncConnection.connect(seeing_all) as looking:
        cursor = await looking.execute(
            "SELECT args - 'since' FROM holdfast_jobs.procrastinate_jobs"
        )
        assert await cursor.fetchall() == [({"session": "s1", "failures": 0},)]
