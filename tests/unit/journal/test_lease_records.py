"""Leases in an SQLite file: judged by the boot clock, and by proof of death."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.clock import SYSTEM
from holdfast.errors import SessionBusy
from holdfast.journal import AppendRequest, Journal, LeaseWish, SqliteStore
from holdfast.journal.stores import _owner_locks
from holdfast.journal.stores._owner_locks import OwnerLocks
from holdfast.testing import FakeClock
from holdfast.testing._store_samples import Note, list_drafts

TTL_S = 10.0
HOLD = """
import asyncio, sys
from holdfast.journal import Journal, SqliteStore

async def main():
    async with Journal(SqliteStore(sys.argv[1])) as journal:
        journal.store.renew({}, "other", 600)
        assert await journal.store.acquire("s1", "other", 600)
        print("held", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@contextlib.asynccontextmanager
async def opened(path: Path, clock: FakeClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, clock=clock)
    async with Journal(store, clock=clock) as journal:
        if not await store.heads("s1"):
            await journal.append("s1", [Note()], must_be_new=True)
        yield store


def execute(path: Path, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(sql, values).rowcount == 1


async def test_a_lease_of_an_earlier_boot_has_its_whole_time_once_more(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    async with opened(path, clock) as store:
        await store.acquire("s1", "gone", TTL_S)
        store.renew({}, "gone", TTL_S)
    clock.reboot()
    clock.step(-23 * 3600)
    async with opened(path, clock) as store:
        [head] = await store.heads("s1")
        assert not head.is_held  # as far as reading can tell; a hint for who looks for work
        assert await store.acquire("s1", "me", TTL_S) is None
        assert await store.is_alive("gone")
        assert (await store.heads("s1"))[0].is_held
        clock.advance(TTL_S - 1)
        assert await store.acquire("s1", "me", TTL_S) is None
        clock.advance(1)
        assert not await store.is_alive("gone")
        taken = await store.acquire("s1", "me", TTL_S)
        assert taken is not None and taken.unproved_epoch == 1


async def test_a_lease_of_an_older_version_is_neither_stolen_nor_kept_for_ever(
    tmp_path: Path, clock: FakeClock
) -> None:
    """It knew the wall clock only, which may have stepped by a day since."""
    path = tmp_path / "journal.db"
    old = "UPDATE streams SET epoch = 1, owner = 'old', lease_expires = ? WHERE session_id = 's1'"
    async with opened(path, clock) as store:
        for expires in (clock.now() - 86_400, clock.now() + 86_400):
            execute(path, old, expires)
            assert await store.acquire("s1", "me", TTL_S) is None
            clock.advance(29)
            assert await store.acquire("s1", "me", TTL_S) is None
        # It still lives, and renews as it always did.
        execute(path, old, clock.now() + 31)
        clock.advance(29)
        assert await store.acquire("s1", "me", TTL_S) is None
        clock.advance(30)
        taken = await store.acquire("s1", "me", TTL_S)
        assert taken is not None and taken.epoch == 2


async def test_a_process_of_an_older_version_lives_while_it_renews_itself(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    async with opened(path, clock) as store:
        execute(path, "INSERT INTO owners VALUES ('old', ?)", clock.now() - 86_400)
        assert await store.is_alive("old")
        clock.advance(29)
        assert await store.is_alive("old")
        execute(path, "UPDATE owners SET expires = ? WHERE owner = 'old'", clock.now() + 30)
        clock.advance(29)
        assert await store.is_alive("old")
        clock.advance(30)
        assert not await store.is_alive("old")
        store.renew({}, "me", TTL_S)
        assert not await store.is_alive("old")
        # One that has renewed itself since somebody looked keeps what it wrote.
        assert await store._write(lambda c: store._leases.adopt_presence(c, "me"))


async def test_a_process_of_an_older_version_does_not_steal(
    tmp_path: Path, clock: FakeClock
) -> None:
    """It looks at the end by the wall clock, which is still written."""
    path = tmp_path / "journal.db"
    async with opened(path, clock) as store:
        await store.acquire("s1", "me", TTL_S)
        store.renew({"s1": 1}, "me", TTL_S)
        with closing(sqlite3.connect(path)) as connection:
            [(expires,)] = connection.execute(
                "SELECT lease_expires FROM streams WHERE owner = 'me'"
            ).fetchall()
            [(present,)] = connection.execute("SELECT expires FROM owners").fetchall()
    assert expires == present == clock.now() + TTL_S


async def test_a_turn_cannot_begin_where_a_lease_cannot_be_judged_yet(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    async with opened(path, clock) as store:
        await store.acquire("s1", "gone", TTL_S)
        clock.reboot()
        wish = LeaseWish(owner="me", ttl_s=TTL_S)
        both = list_drafts(store, clock, [Note(text="a")])
        request = AppendRequest(session_id="s1", drafts=both, epoch=None, after=1, acquire=wish)
        with pytest.raises(SessionBusy):
            await store.append(request)


@pytest.mark.parametrize("how", (signal.SIGKILL, signal.SIGSTOP))
async def test_a_dead_owner_is_known_at_once_and_a_stopped_one_is_not_dead(
    tmp_path: Path, how: signal.Signals
) -> None:
    path = tmp_path / "journal.db"
    async with Journal(SqliteStore(path)) as journal:
        store = journal.store
        await journal.append("s1", [Note()], must_be_new=True)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HOLD, str(path), stdout=asyncio.subprocess.PIPE, env=environment
        )
        try:
            assert other.stdout is not None and await other.stdout.readline() == b"held\n"
            assert await store.acquire("s1", "me", TTL_S) is None
            assert await store.is_alive("other")
            other.send_signal(how)
            if how == signal.SIGSTOP:
                await asyncio.to_thread(os.waitid, os.P_PID, other.pid, os.WSTOPPED | os.WNOWAIT)
                assert await store.is_alive("other")
                assert await store.acquire("s1", "me", TTL_S) is None
                return
            await other.wait()
            assert not await store.is_alive("other")
            [head] = await store.heads("s1")
            assert not head.is_held
            taken = await store.acquire("s1", "me", TTL_S)
            assert taken is not None and (taken.epoch, taken.unproved_epoch) == (2, 0)
        finally:
            if other.returncode is None:
                other.kill()
                await other.wait()


async def test_a_copy_of_the_directory_proves_nothing(tmp_path: Path, clock: FakeClock) -> None:
    """Nor does a lock file that somebody put in the place of the old one."""
    path, copy = tmp_path / "a" / "journal.db", tmp_path / "b"
    async with opened(path, clock) as store:
        store.renew({}, "me", TTL_S)
        await store.acquire("s1", "me", TTL_S)
        shutil.copytree(path.parent, copy)
        async with opened(copy / "journal.db", clock) as other:
            assert await other.acquire("s1", "you", TTL_S) is None
            assert await other.is_alive("me")
        locks = path.with_name("journal.db-owners")
        locks.unlink()
        async with opened(path, clock) as other:
            assert await other.acquire("s1", "you", TTL_S) is None
            locks.touch()
            assert await other.acquire("s1", "you", TTL_S) is None
    assert oct(path.parent.joinpath("journal.db").stat().st_mode & 0o777) == "0o600"


def test_a_lock_that_cannot_be_had_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "locks"
    holder, asker = OwnerLocks(path), OwnerLocks(path)
    lock = holder.hold("me")
    assert lock and holder.hold("me") == lock
    assert not asker.is_dead("me", lock)
    assert not holder.is_dead("me", lock)  # from its own process too
    assert asker.is_dead("you", lock)
    assert not asker.is_dead("me", "")
    assert OwnerLocks(tmp_path / "missing" / "locks").hold("me") == ""
    assert asker.hold("me") == ""  # the byte is taken
    holder.release("me")
    holder.release("me")
    assert asker.is_dead("me", lock)

    def refuse(*_: object) -> bytes:
        raise OSError("no locks here")

    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "fcntl", refuse)
        assert not asker.is_dead("me", lock)
        assert holder.hold("other") == ""
    monkeypatch.setattr(_owner_locks, "_HAS_LOCKS", False)
    assert holder.hold("third") == ""
    assert not asker.is_dead("third", lock)
    for one in (holder, holder, asker):
        one.close()


def test_the_boot_clock_has_a_name_and_does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SYSTEM.boot_id() == SYSTEM.boot_id() != ""
    first = SYSTEM.boottime()
    assert SYSTEM.boottime() >= first > 0

    def refuse(_: str) -> str:
        raise OSError

    monkeypatch.setattr(os, "readlink", refuse)
    SYSTEM.boot_id.cache_clear()
    try:
        assert SYSTEM.boot_id().startswith("host ")
    finally:
        SYSTEM.boot_id.cache_clear()


async def test_an_owner_that_takes_a_lease_in_a_store_opened_again_is_alive(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "journal.db"
    async with opened(path, clock) as store:
        store.renew({}, "me", TTL_S)
    async with opened(path, clock) as store:
        assert not await store.is_alive("me")  # it was closed without a word
        assert await store.acquire("s1", "me", TTL_S)
        assert [head.is_held for head in await store.heads("s1")] == [True]
        assert await store.acquire("s1", "you", TTL_S) is None
        assert await store.is_alive("me")


def test_a_forked_child_leaves_the_locks_to_its_parent(tmp_path: Path) -> None:
    locks = OwnerLocks(tmp_path / "owners")
    file = locks.hold("me")
    as_seen = OwnerLocks(tmp_path / "owners")
    if os.fork() == 0:
        # Nothing but closing: its parent still holds the byte, which the exit code says.
        os._exit(as_seen.is_dead("me", file))
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == 0
    locks.leave_to_parent()  # as in a child: the descriptor is closed, and nothing is held here
    assert as_seen.is_dead("me", file)
    assert locks.hold("me") == file
    assert not as_seen.is_dead("me", file)
    locks.close()
