"""Damage databases in many ways, each by a seed, so that every find can be repeated."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path, random.Random], None]


def _page_size(path: Path) -> int:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(18)[16:18], "big")
    return 65536 if size == 1 else size


def flip_bits(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 4, 64))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def flip_bits_of_a_page_header(path: Path, chance: random.Random) -> None:
    data, page = bytearray(path.read_bytes()), _page_size(path)
    start = chance.randrange(1, len(data) // page) * page
    data[start + chance.randrange(12)] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def truncate(path: Path, chance: random.Random) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(chance.randrange(size // 4, size))


def swap_pages(path: Path, chance: random.Random) -> None:
    data, page = bytearray(path.read_bytes()), _page_size(path)
    one, other = chance.sample(range(1, len(data) // page), 2)
    first, second = slice(one * page, (one + 1) * page), slice(other * page, (other + 1) * page)
    data[first], data[second] = data[second], data[first]
    path.write_bytes(data)


def zero_pages(path: Path, chance: random.Random) -> None:
    data, page = bytearray(path.read_bytes()), _page_size(path)
    for _ in range(chance.choice((1, 3))):
        start = chance.randrange(1, len(data) // page) * page
        data[start : start + page] = bytes(page)
    path.write_bytes(data)


def zero_header(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[: chance.choice((16, 50, 100))] = bytes(chance.choice((16, 50)))
    path.write_bytes(data)


def append_garbage(path: Path, chance: random.Random) -> None:
    with path.open("ab") as file:
        file.write(chance.randbytes(chance.choice((100, 5_000))))


def overwrite_with_noise(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = chance.randrange(len(data))
    noise = chance.randbytes(chance.choice((16, 700, 4_000)))
    data[start : start + len(noise)] = noise[: len(data) - start]
    path.write_bytes(data)


def change_a_table_behind_its_index(path: Path, chance: random.Random) -> None:
    """Leave an index that does not fit its table: SQLite reads on as if nothing were."""
    index = chance.choice(("events_by_session", "streams_behind"))
    column = "session_seq" if index == "events_by_session" else "rows_from"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema = ON")
    row = connection.execute("SELECT * FROM sqlite_master WHERE name = ?", (index,)).fetchone()
    connection.execute("DELETE FROM sqlite_master WHERE name = ?", (index,))
    connection.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"UPDATE {row[2]} SET {column} = {column} + 1000")
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", row)
    connection.close()


def damage_log(path: Path, chance: random.Random) -> None:
    """Write noise into the write-ahead log, where one was left behind."""
    log = path.with_name(path.name + "-wal")
    if log.exists() and log.stat().st_size:
        overwrite_with_noise(log, chance)
    else:
        log.write_bytes(chance.randbytes(4_000))


DAMAGES: tuple[Damage, ...] = (
    flip_bits,
    flip_bits_of_a_page_header,
    truncate,
    swap_pages,
    zero_pages,
    zero_header,
    append_garbage,
    overwrite_with_noise,
    change_a_table_behind_its_index,
    damage_log,
)


def is_sound(path: Path) -> bool:
    """Say what SQLite itself says about a copy of the database."""
    copy = path.with_name("looked-at.db")
    for end in ("", "-wal"):
        source = path.with_name(path.name + end)
        if source.exists():
            shutil.copyfile(source, copy.with_name(copy.name + end))
    try:
        connection = sqlite3.connect(copy)
        try:
            return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError):
        return False
    finally:
        for one in path.parent.glob("looked-at.db*"):
            one.unlink()
