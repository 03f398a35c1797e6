"""The control store in a SQLite file of mode 0600, which several processes may share."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from holdfast.errors import SchemaTooNew, StorageDamaged, StorageError, StorageLocked

if TYPE_CHECKING:
    from holdfast.identity.keys import ApiKey
    from holdfast.identity.logins import Login
    from holdfast.identity.tenants import Tenant, TenantState

T = TypeVar("T")
APPLICATION_ID: Final = 0x48464354
"""`HFCT`: marks a file as ours."""
_PATIENCE_S: Final = 10.0
_LOGIN: Final = "id, kind, tenant, subject, created_at, expires_at"


class SqliteControlStore:
    """Keeps keys, logins and tenants in one file; nothing is created before the first write."""

    def __init__(self, path: Path) -> None:
        """Use this file; it is opened with the first question."""
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    async def add_key(self, key: ApiKey, digest: str) -> None:
        """Keep a key with the SHA-256 of its secret."""
        await self._write(lambda at: _insert_key(at, key, digest))

    async def find_keys(self, prefix: str) -> list[tuple[ApiKey, str]]:
        """Return the keys that begin so, each with its digest."""
        query = "SELECT digest, record, revoked_at, last_used_at, expires_at FROM keys WHERE "
        rows = await self._read(query + "prefix = ?", prefix)
        return [(_to_key(row[1:]), str(row[0])) for row in rows]

    async def get_key(self, key_id: str) -> ApiKey | None:
        """Return a key by its id."""
        query = "SELECT record, revoked_at, last_used_at, expires_at FROM keys WHERE id = ?"
        rows = await self._read(query, key_id)
        return _to_key(rows[0]) if rows else None

    async def list_keys(self, tenant: str) -> list[ApiKey]:
        """Return the keys of a tenant, oldest first."""
        query = "SELECT record, revoked_at, last_used_at, expires_at FROM keys WHERE tenant = ?"
        return [_to_key(row) for row in await self._read(query + " ORDER BY id", tenant)]

    async def replace_key(self, old: ApiKey, new: ApiKey, digest: str) -> bool:
        """Keep a key in the place of another one, both or neither; `False` if it is revoked."""

        def work(at: sqlite3.Connection) -> bool:
            done = at.execute(
                "UPDATE keys SET revoked_at = ?, expires_at = ? WHERE id = ? AND revoked_at = 0",
                (old.revoked_at, old.expires_at, old.id),
            )
            if done.rowcount != 1:
                return False
            _insert_key(at, new, digest)
            return True

        return await self._write(work)

    async def end_key(self, key_id: str, *, at: float) -> None:
        """Revoke a key; one that is revoked stays so since then."""
        query = "UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at = 0"
        await self._write(lambda to: to.execute(query, (at, key_id)))

    async def note_use(self, key_id: str, *, at: float) -> None:
        """Note when a key was used last."""
        query = "UPDATE keys SET last_used_at = max(last_used_at, ?) WHERE id = ?"
        await self._write(lambda to: to.execute(query, (at, key_id)))

    async def delete_keys(self, tenant: str, *, subject: str = "") -> int:
        """Remove the keys of a tenant, or of one subject of it; returns how many."""
        query, values = "DELETE FROM keys WHERE tenant = ?", (tenant,)
        if subject:
            query, values = f"{query} AND subject = ?", (tenant, subject)  # type: ignore[assignment]
        return await self._write(lambda to: to.execute(query, values).rowcount)

    async def add_login(self, login: Login, digest: str, sealed: bytes, *, most: int) -> None:
        """Keep a login; those that have expired go, and the oldest of its subject beyond `most`."""

        def work(at: sqlite3.Connection) -> None:
            at.execute("DELETE FROM logins WHERE expires_at <= ?", (login.created_at,))
            at.execute(
                "DELETE FROM logins WHERE id IN (SELECT id FROM logins WHERE tenant = ? AND "
                "subject = ? AND kind = ? ORDER BY created_at DESC, id DESC LIMIT -1 OFFSET ?)",
                (login.tenant, login.subject, login.kind, most - 1),
            )
            values = (*msgspec.structs.astuple(login), digest, sealed)
            at.execute(
                f"INSERT INTO logins ({_LOGIN}, digest, sealed) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )

        await self._write(work)

    async def find_login(self, digest: str) -> tuple[Login, bytes] | None:
        """Return a login by the SHA-256 of its token, and what is sealed with it."""
        rows = await self._read(f"SELECT {_LOGIN}, sealed FROM logins WHERE digest = ?", digest)
        return _to_sealed(rows[0]) if rows else None

    async def take_login(self, digest: str) -> tuple[Login, bytes] | None:
        """Remove a login and return it: of several that ask, one gets it."""
        query = f"DELETE FROM logins WHERE digest = ? RETURNING {_LOGIN}, sealed"
        rows = await self._write(lambda to: to.execute(query, (digest,)).fetchall())
        return _to_sealed(rows[0]) if rows else None

    async def list_logins(self, tenant: str) -> list[Login]:
        """Return the logins of a tenant, oldest first."""
        query = f"SELECT {_LOGIN} FROM logins WHERE tenant = ? ORDER BY created_at, id"
        return [_to_login(row) for row in await self._read(query, tenant)]

    async def delete_logins(self, tenant: str, *, subject: str = "", login_id: str = "") -> int:
        """Remove the logins of a tenant, or of one subject, or one; returns how many."""
        query = (
            "DELETE FROM logins WHERE tenant = ?1 AND (?2 = '' OR subject = ?2) "
            "AND (?3 = '' OR id = ?3)"
        )
        values = (tenant, subject, login_id)
        return await self._write(lambda to: to.execute(query, values).rowcount)

    async def add_tenant(self, tenant: Tenant) -> bool:
        """Keep a tenant; `False` if there is one of this name."""
        query = "INSERT INTO tenants (name, state, created_at, note) VALUES (?, ?, ?, ?) "
        values = (tenant.name, tenant.state, tenant.created_at, tenant.note)
        done = await self._write(lambda to: to.execute(query + "ON CONFLICT DO NOTHING", values))
        return done.rowcount == 1

    async def get_tenant(self, name: str) -> Tenant | None:
        """Return a tenant by name."""
        query = "SELECT name, state, created_at, note FROM tenants WHERE name = ?"
        rows = await self._read(query, name)
        return _to_tenant(rows[0]) if rows else None

    async def list_tenants(self) -> list[Tenant]:
        """Return all tenants by name, deleted ones too."""
        query = "SELECT name, state, created_at, note FROM tenants ORDER BY name"
        return [_to_tenant(row) for row in await self._read(query)]

    async def set_tenant_state(self, name: str, state: TenantState) -> None:
        """Change the state of a tenant."""
        query = "UPDATE tenants SET state = ? WHERE name = ?"
        await self._write(lambda to: to.execute(query, (state, name)))

    def has_keys(self) -> bool:
        """Say whether there is any key that was not revoked; blocks for a moment."""
        if not self._path.exists():
            return False
        with self._opened() as connection:
            query = "SELECT count(*) FROM keys WHERE revoked_at = 0"
            return bool(connection.execute(query).fetchone()[0])

    async def close(self) -> None:
        """Close the file; safe to repeat."""
        await asyncio.to_thread(self._close)

    # --- inside -----------------------------------------------------------------------

    async def _read(self, query: str, *values: object) -> list[tuple[object, ...]]:
        def work() -> list[tuple[object, ...]]:
            if self._connection is None and not self._path.exists():
                return []
            with self._opened() as connection:
                return connection.execute(query, values).fetchall()

        return await asyncio.to_thread(work)

    async def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def whole() -> T:
            with self._opened() as connection:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    found = work(connection)
                    connection.execute("COMMIT")
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                return found

        return await asyncio.to_thread(whole)

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = _open(self._path)
                yield self._connection
            except sqlite3.Error as error:
                raise _translate(error, self._path) from error
            except OSError as error:
                detail = error.strerror or str(error)
                raise StorageError(path=str(self._path), detail=detail) from error

    def _close(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # With the right mode from the start: others never see it open.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    connection = sqlite3.connect(
        path, timeout=_PATIENCE_S, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("BEGIN IMMEDIATE")
        _migrate(connection, path)
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    folder = resources.files("holdfast.identity.stores") / "sql"
    files = sorted(folder.iterdir(), key=lambda entry: entry.name)
    steps = [entry.read_text(encoding="utf-8") for entry in files if entry.name.endswith(".sql")]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if application != APPLICATION_ID and (application or tables):
        raise StorageDamaged(path=str(path), detail="it belongs to another program")
    if version > len(steps):
        raise SchemaTooNew(what=str(path), found=version, known=len(steps))
    for script in steps[version:]:
        for statement in script.split(";\n"):
            if statement.strip():
                connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {len(steps)}")


def _insert_key(at: sqlite3.Connection, key: ApiKey, digest: str) -> None:
    at.execute(
        "INSERT INTO keys (id, prefix, digest, tenant, subject, expires_at, record) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            key.id,
            key.prefix,
            digest,
            key.tenant,
            key.subject,
            key.expires_at,
            msgspec.json.encode(key).decode(),
        ),
    )


def _to_key(row: tuple[object, ...]) -> ApiKey:
    from holdfast.identity.keys import ApiKey  # noqa: PLC0415 - that module names this store

    record, revoked_at, last_used_at, expires_at = row
    key = msgspec.json.decode(str(record), type=ApiKey)
    return msgspec.structs.replace(
        key, revoked_at=revoked_at, last_used_at=last_used_at, expires_at=expires_at
    )


def _to_login(row: tuple[object, ...]) -> Login:
    from holdfast.identity.logins import Login  # noqa: PLC0415 - that module names this store

    names = ("id", "kind", "tenant", "subject", "created_at", "expires_at")
    return msgspec.convert(dict(zip(names, row, strict=True)), Login)


def _to_sealed(row: tuple[object, ...]) -> tuple[Login, bytes]:
    sealed = row[-1]
    return _to_login(row[:-1]), sealed if isinstance(sealed, bytes) else b""


def _to_tenant(row: tuple[object, ...]) -> Tenant:
    from holdfast.identity.tenants import Tenant  # noqa: PLC0415 - that module names this store

    names = ("name", "state", "created_at", "note")
    return msgspec.convert(dict(zip(names, row, strict=True)), Tenant)


def _translate(error: sqlite3.Error, path: Path) -> StorageError | StorageDamaged:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageLocked(path=str(path))
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StorageDamaged(path=str(path), detail=str(error))
    return StorageError(path=str(path), detail=str(error))


__all__ = ["SqliteControlStore"]
