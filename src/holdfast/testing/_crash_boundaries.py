"""Write boundaries: counted in the process that may die, which kills itself at one of them.

Only a child of the crash kit installs this; in every other process nothing is replaced.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal, NoReturn, Self, TypeAlias

When: TypeAlias = Literal["before", "after"]

_OS_CALLS = (
    "fsync",
    "link",
    "mkdir",
    "remove",
    "rename",
    "replace",
    "rmdir",
    "symlink",
    "truncate",
    "unlink",
)
_CHANGES = ("INSERT", "UPDATE", "DELETE", "REPLACE")
_DEFINITIONS = ("CREATE", "DROP", "ALTER", "VACUUM")


class Boundaries:
    """Counts; writes one line per boundary, because the process may not live to tell."""

    def __init__(self, directory: str, log: int, kill_at: int, when: When) -> None:
        """Die at boundary `kill_at`; 0 means: only count."""
        self._directory = os.path.join(os.path.abspath(directory), "")
        self._log = log
        self._kill_at = kill_at
        self._when = when
        self._count = 0
        self._guard = threading.Lock()
        self._inside = threading.local()

    def around(self, name: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - passed through
        """Do what `call` does, with a boundary before and after it; nested ones do not count."""
        if getattr(self._inside, "is_active", False):
            return call()
        self._inside.is_active = True
        try:
            number = self._reach(name, "+")
            result = call()
            if (number, "after") == (self._kill_at, self._when):
                die()
            return result
        finally:
            self._inside.is_active = False

    def reach(self, name: str) -> None:
        """Pass a boundary that only has a before."""
        if not getattr(self._inside, "is_active", False):
            self._reach(name, "-")

    def _reach(self, name: str, kind: str) -> int:
        with self._guard:
            self._count += 1
            number = self._count
            os.write(self._log, f"{kind}{name}\n".encode())
        if (number, "before") == (self._kill_at, self._when):
            die()
        return number

    def install(self) -> None:
        """Stand in for the calls of this process that change what is kept."""
        for name in _OS_CALLS:
            setattr(os, name, self._wrap_counted(name, getattr(os, name)))
        sys.addaudithook(self._audit)
        plain = sqlite3.connect
        boundaries = self

        def connect(database: Any, *values: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401
            # What lies elsewhere is not the scenario's: a tool that measures coverage, say.
            is_ours = boundaries._is_inside(str(database).removeprefix("file:").split("?")[0])
            if len(values) < 5 and "factory" not in options and is_ours:
                options["factory"] = _make_connection_class(boundaries, str(database))
            found: sqlite3.Connection = plain(database, *values, **options)
            return found

        sqlite3.connect = connect  # type: ignore[assignment]

    def _wrap_counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*values: Any, **options: Any) -> Any:  # noqa: ANN401 - stands in for any call
            if name != "fsync" and not self._is_inside(values[0]):
                return call(*values, **options)
            shown = "" if name == "fsync" else f" {os.path.basename(os.fsdecode(values[0]))}"
            return self.around(f"{name}{shown}", lambda: call(*values, **options))

        return counted

    def _audit(self, event: str, values: tuple[Any, ...]) -> None:
        """Files that are opened for writing: what comes after is seen by the next boundary."""
        if event != "open" or not isinstance(values[2], int):
            return
        if values[2] & (os.O_WRONLY | os.O_RDWR) and self._is_inside(values[0]):
            self.reach(f"open {os.path.basename(os.fsdecode(values[0]))} for writing")

    def _is_inside(self, path: object) -> bool:
        if not isinstance(path, str | bytes | os.PathLike):
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self._directory)


def _make_connection_class(boundaries: Boundaries, database: str) -> type[sqlite3.Connection]:
    name = os.path.basename(database.split("?")[0])
    return type("Connection", (_Connection,), {"boundaries": boundaries, "place": name})


class _Connection(sqlite3.Connection):
    """A connection whose commits are boundaries."""

    boundaries: Boundaries
    place: str

    def run(self, sql: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - passed through
        """Do what `call` does, with a boundary around it if it makes something durable."""
        if not _is_boundary(self, sql):
            return call()
        return self.boundaries.around(f"{sql.split(None, 1)[0].upper()} {self.place}", call)

    def cursor(self, factory: Any = None) -> Any:  # noqa: ANN401 - as in sqlite3
        return super().cursor(factory or _Cursor)

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401
        plain = super().execute
        found: sqlite3.Cursor = self.run(sql, lambda: plain(sql, values))
        return found

    def executemany(self, sql: str, values: Any, /) -> sqlite3.Cursor:  # noqa: ANN401
        plain = super().executemany
        found: sqlite3.Cursor = self.run(sql, lambda: plain(sql, values))
        return found

    def executescript(self, script: str, /) -> sqlite3.Cursor:
        plain = super().executescript
        name = f"script {self.place}"
        found: sqlite3.Cursor = self.boundaries.around(name, lambda: plain(script))
        return found

    def commit(self) -> None:
        self.run("COMMIT", super().commit)

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> Literal[False]:  # noqa: ANN401
        plain = super().__exit__
        self.run("COMMIT" if kind is None else "ROLLBACK", lambda: plain(kind, error, trace))
        return False


class _Cursor(sqlite3.Cursor):
    """A cursor of such a connection."""

    def execute(self, sql: str, values: Any = (), /) -> Self:  # noqa: ANN401
        plain = super().execute
        return self._run(sql, lambda: plain(sql, values))

    def executemany(self, sql: str, values: Any, /) -> Self:  # noqa: ANN401
        plain = super().executemany
        return self._run(sql, lambda: plain(sql, values))

    def _run(self, sql: str, call: Callable[[], Any]) -> Self:
        assert isinstance(self.connection, _Connection)
        self.connection.run(sql, call)
        return self


def _is_boundary(connection: sqlite3.Connection, sql: str) -> bool:
    """Say whether a statement makes something durable: a commit, or a write of its own."""
    word = sql.lstrip()[:8].upper()
    if connection.in_transaction:
        return word.startswith(("COMMIT", "END"))
    if word.startswith(_CHANGES):
        # With an isolation level, sqlite3 begins a transaction by itself before a change.
        return connection.isolation_level is None
    return word.startswith(_DEFINITIONS)


def die() -> NoReturn:
    """End this process as a power cut would end it."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


_installed: list[Boundaries] = []


def install(directory: str, log: int, kill_at: int, when: When) -> None:
    """Count the boundaries of this process from now on."""
    found = Boundaries(directory, log, kill_at, when)
    found.install()
    _installed.append(found)


def wrap_boundaries(name: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - passed through
    """Make a boundary of one's own; outside the kit it only calls."""
    return _installed[-1].around(name, call) if _installed else call()
