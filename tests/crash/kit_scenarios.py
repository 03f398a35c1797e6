"""Scenarios for the tests of the kit itself."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path

from holdfast.testing import crash


def write_whole(directory: str) -> None:
    """Replace a file in one move."""
    place = Path(directory)
    (place / "new").write_text("done")
    (place / "new").replace(place / "result")


def write_in_two_steps(directory: str) -> None:
    """Forget, when killed in between, that the second half is missing."""
    place = Path(directory)
    if (place / "first").exists():
        return
    (place / "first").write_text("1")
    (place / "second").write_text("2")
    sys.stdout.write("both written\n")


def use_sqlite_in_every_way(directory: str) -> None:
    path = Path(directory) / "data.db"
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (v)")
    connection.executemany("INSERT INTO t VALUES (?)", [(1,), (2,)])
    connection.commit()
    connection.commit()
    connection.cursor().executemany("INSERT INTO t VALUES (?)", [(3,)])
    with connection:
        connection.executescript("INSERT INTO t VALUES (4);")
    connection.close()
    bare = sqlite3.connect(path, isolation_level=None)
    bare.cursor().execute("INSERT INTO t VALUES (5)")
    bare.execute("SELECT count(*) FROM t").fetchone()
    bare.close()
    sqlite3.connect(":memory:").execute("CREATE TABLE x (v)")


def mark_its_own(directory: str) -> None:
    crash.cross_boundary("send", lambda: os.path.join(directory, "sent"))
    os.stat(directory)


def fail(directory: str) -> None:
    raise ValueError(directory)


def hang(directory: str) -> None:
    signal.pause()


def end_the_nursery(directory: str) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
