"""Roles of Postgres: who may read and write records, and who only carries wake-ups.

Row-level security keeps tenants apart, so a role that it does not hold back must not serve them:
a superuser, one with BYPASSRLS, or the owner of the tables, who could switch it off.
"""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg
from psycopg import sql

from holdfast.errors import NotFound, StorageError, UsageError
from holdfast.journal.stores._postgres_connections import Connection
from holdfast.journal.stores.registry import RoleKind

_STANDING = """
SELECT r.rolsuper OR r.rolbypassrls, pg_has_role(r.oid, n.nspowner, 'MEMBER'),
    pg_has_role(n.nspowner, 'MEMBER')
FROM pg_catalog.pg_roles r, pg_catalog.pg_namespace n
WHERE r.rolname = {} AND n.nspname = 'holdfast'
"""
_RECORDS: tuple[LiteralString, ...] = (
    "GRANT USAGE ON SCHEMA holdfast, holdfast_jobs TO {}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO {}",
    "REVOKE INSERT, UPDATE, DELETE ON holdfast.migrations, holdfast.projections FROM {}",
    # Tables that a later migration makes.
    "ALTER DEFAULT PRIVILEGES IN SCHEMA holdfast "
    "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {}",
    # To put wake-ups there, and to remove those of a tenant that is deleted.
    "GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast_jobs.procrastinate_jobs TO {}",
    "GRANT SELECT, UPDATE ON holdfast_jobs.procrastinate_periodic_defers TO {}",
    "GRANT SELECT, INSERT ON holdfast_jobs.procrastinate_events TO {}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA holdfast_jobs TO {}",
)
# Memories and artifacts keep schemas of their own, where they are kept here.
_OTHER_SCHEMAS = """
SELECT nspname FROM pg_catalog.pg_namespace
WHERE starts_with(nspname, 'holdfast_') AND nspname <> 'holdfast_jobs'
    AND pg_has_role(nspowner, 'MEMBER')
"""
_OTHERS: tuple[LiteralString, ...] = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA {schema} "
    "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {role}",
)
_WAKEUPS: tuple[LiteralString, ...] = (
    "GRANT USAGE ON SCHEMA holdfast_jobs TO {}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast_jobs TO {}",
    "GRANT USAGE ON ALL SEQUENCES IN SCHEMA holdfast_jobs TO {}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA holdfast_jobs "
    "GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA holdfast_jobs GRANT USAGE ON SEQUENCES TO {}",
)


async def grant_role(connection: psycopg.AsyncConnection[Any], role: str, kind: RoleKind) -> None:
    """Let a role do what a kind of process needs, and nothing else; safe to repeat.

    Raises:
        NotFound: there is no such role, or the schema is not set up.
        UsageError: row-level security would not hold it back.
        StorageError: the caller does not own the schema.
    """
    async with connection.transaction():
        query = sql.SQL(_STANDING).format(sql.Literal(role))
        found = await (await connection.execute(query)).fetchone()
        if found is None:
            raise NotFound(kind="role (or schema) of the database", value=role)
        is_mighty, owns, is_asked_by_owner = found
        if not is_asked_by_owner:
            # Others are only warned by the server, and nothing is granted.
            raise StorageError(
                path="the schema holdfast", detail="only its owner can let other roles use it"
            )
        if is_mighty or owns:
            raise UsageError(
                detail=f"The role {role!r} is a superuser, has BYPASSRLS or owns the tables: "
                "what keeps tenants apart would not hold it. Take one that is none of these."
            )
        for statement in _RECORDS if kind == "records" else _WAKEUPS:
            await connection.execute(sql.SQL(statement).format(sql.Identifier(role)))
        others = await (await connection.execute(_OTHER_SCHEMAS)).fetchall()
        for (schema,) in others if kind == "records" else ():
            names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
            for statement in _OTHERS:
                await connection.execute(sql.SQL(statement).format(**names))


async def require_held_role(connection: Connection, where: str) -> None:
    """Refuse a role that row-level security does not hold back.

    Raises:
        StorageError: it is a superuser, has BYPASSRLS, or owns the tables.
    """
    query = sql.SQL(_STANDING).format(sql.SQL("current_user"))
    found = await (await connection.execute(query)).fetchone()
    if found is None or any(found[:2]):
        raise StorageError(
            path=where,
            detail="its role is a superuser, has BYPASSRLS or owns the tables, so nothing keeps "
            "tenants apart: make one that does not, and allow it with `holdfast storage grant`",
        )
