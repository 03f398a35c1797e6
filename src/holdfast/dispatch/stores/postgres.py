"""Wake-ups on Postgres: jobs of procrastinate, in the database of the journal.

The store puts a job there in the transaction that appends to an inbox; see `_postgres_append`.
Jobs have a queueing lock per session, so that those that wait are one, and no execution lock: the
session's lease keeps two workers apart. That avoids the engine's poll where a lock is handed over.

The engine's own ways to try again cannot meet a job that already waits for the same session, so
what failed is replaced by a new job that counts the failures. That also notifies the workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import SplitResult

import msgspec
import procrastinate
import psycopg
import psycopg_pool
from procrastinate import exceptions, jobs, worker

from holdfast.dispatch.dispatcher import DeadLetter, WakeHandler, WorkerOptions, WorkerStatus
from holdfast.errors import HoldfastError, NotFound, StorageUnavailable
from holdfast.journal import parse_postgres_target
from holdfast.observability import Logger

_TASK = "holdfast.wake"
_POLL_S = 0.5
_SWEEP_S = 0.5
_BEGIN_S = 0.02
_OPEN_S = 30.0
_log = Logger("holdfast.workers")

_WAKE = """
INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, args, scheduled_at, priority)
VALUES (%(queue)s::text, %(task)s, %(queue)s::text || '/' || %(session)s::text,
    jsonb_build_object('session', %(session)s::text, 'failures', %(failures)s::integer,
        'since', extract(epoch FROM clock_timestamp())),
    CASE WHEN %(delay)s::float8 > 0 THEN now() + make_interval(secs => %(delay)s::float8) END,
    %(priority)s)
ON CONFLICT (queueing_lock) WHERE status = 'todo' DO UPDATE SET
    priority = greatest(procrastinate_jobs.priority, excluded.priority),
    scheduled_at = CASE WHEN excluded.scheduled_at IS NOT NULL
        THEN LEAST(procrastinate_jobs.scheduled_at, excluded.scheduled_at) END,
    args = CASE WHEN (excluded.args->>'failures')::integer
        > (procrastinate_jobs.args->>'failures')::integer
        THEN excluded.args ELSE procrastinate_jobs.args END
"""
# What dead workers held: put back, or given up. `SKIP LOCKED`, since every worker looks for it.
_SWEEP = """
WITH lost AS MATERIALIZED (
    SELECT j.id, (j.args->>'failures')::integer + 1 AS failures
    FROM procrastinate_jobs j LEFT JOIN procrastinate_workers w ON w.id = j.worker_id
    WHERE j.status = 'doing' AND j.queue_name = ANY(%(queues)s)
        AND (w.id IS NULL OR w.last_heartbeat < now() - make_interval(secs => %(ttl)s))
    ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
), dead AS (
    UPDATE procrastinate_jobs j SET status = 'failed', attempts = j.attempts + 1,
        args = j.args || jsonb_build_object('failures', l.failures)
    FROM lost l WHERE j.id = l.id AND l.failures >= %(most)s RETURNING j.id
), gone AS (
    DELETE FROM procrastinate_jobs j USING lost l
    WHERE j.id = l.id AND l.failures < %(most)s
    RETURNING j.queue_name, j.task_name, j.priority, j.queueing_lock, j.args, l.failures
), again AS (
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, queueing_lock, args)
    SELECT DISTINCT ON (queueing_lock) queue_name, task_name,
        -- It was begun long ago: it goes before what has not begun.
        least(priority + 200, 1000), queueing_lock,
        args || jsonb_build_object('failures', failures)
    FROM gone ORDER BY queueing_lock, failures DESC
    ON CONFLICT (queueing_lock) WHERE status = 'todo' DO UPDATE SET args = excluded.args
    RETURNING 1
), past AS (
    DELETE FROM procrastinate_jobs WHERE queue_name = ANY(%(queues)s)
        AND status IN ('aborted', 'cancelled', 'succeeded')
)
SELECT (SELECT count(*) FROM again), (SELECT count(*) FROM dead)
"""
# The worker that comes first ages what waits; for the others it is young again.
_AGE = """
WITH old AS MATERIALIZED (
    SELECT id, extract(epoch FROM clock_timestamp()) - coalesce((args->>'since')::float8, 0)
        AS waited
    FROM procrastinate_jobs
    WHERE status = 'todo' AND queue_name = ANY(%(queues)s) AND priority < 1000
        AND (scheduled_at IS NULL OR scheduled_at <= now())
        AND coalesce((args->>'since')::float8, 0)
            <= extract(epoch FROM clock_timestamp()) - %(ageing)s
    ORDER BY id FOR UPDATE SKIP LOCKED
) UPDATE procrastinate_jobs j
SET priority = least(1000, j.priority + least(1000, floor(old.waited / %(ageing)s))::integer),
    args = j.args || jsonb_build_object('since', extract(epoch FROM clock_timestamp()))
FROM old WHERE j.id = old.id RETURNING 1
"""
_CLAIM = """
UPDATE procrastinate_jobs SET args = args || jsonb_build_object('kinds', %(kinds)s::text[])
WHERE id = %(job)s AND NOT EXISTS (
    SELECT FROM unnest(%(kinds)s::text[], %(most)s::integer[]) AS w(kind, most)
    WHERE w.most <= (SELECT count(*) FROM procrastinate_jobs o
        WHERE o.status = 'doing' AND o.args->'kinds' ? w.kind AND o.id <> %(job)s
            AND split_part(o.queue_name, '/', 2) = %(tenant)s))
RETURNING 1
"""
_NAME = """
INSERT INTO worker_names (worker_id, tenant, name, host, process, concurrency, queues, lease_ttl)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (worker_id) DO NOTHING
"""
_WORKERS = """
SELECT n.name, n.host, n.process, n.concurrency, extract(epoch FROM n.started)::float8,
    extract(epoch FROM w.last_heartbeat)::float8,
    coalesce(array_agg(j.args->>'session' ORDER BY j.id) FILTER (WHERE j.id IS NOT NULL), '{}'),
    n.queues
FROM worker_names n JOIN procrastinate_workers w ON w.id = n.worker_id
LEFT JOIN procrastinate_jobs j ON j.worker_id = w.id AND j.status = 'doing'
WHERE n.tenant = %s AND w.last_heartbeat > now() - make_interval(secs => n.lease_ttl)
GROUP BY n.worker_id, w.id ORDER BY n.started, n.worker_id
"""
_DEAD = """
SELECT j.id, j.args->>'session', (j.args->>'failures')::integer, coalesce(j.args->>'error', ''),
    coalesce((SELECT extract(epoch FROM max(e.at))::float8 FROM procrastinate_events e
        WHERE e.job_id = j.id), 0), split_part(j.queue_name, '/', 3)
FROM procrastinate_jobs j
WHERE split_part(j.queue_name, '/', 2) = %s AND j.status = 'failed'
"""


class Wakeup(msgspec.Struct, frozen=True):
    """What a job says."""

    session: str
    queue: str
    priority: int = 0
    failures: int = 0

    def list_values(self, delay_s: float) -> dict[str, Any]:
        """Return what `_WAKE` takes."""
        return {**msgspec.to_builtins(self), "task": _TASK, "delay": float(delay_s)}


class PostgresDispatcher:
    """Carries wake-ups to the workers of one tenant, on any machine."""

    has_store_wakeups = True

    def __init__(self, address: SplitResult) -> None:
        """Prepare; connects to nothing yet."""
        self._target = parse_postgres_target(address)
        self._doing: dict[str, int] = {}
        """The jobs of the sessions that are worked on here."""
        self._pool: psycopg_pool.AsyncConnectionPool[Any] | None = None

    async def open(self) -> None:
        """Connect, with at most three connections.

        Raises:
            StorageUnavailable: the server cannot be reached.
        """
        if self._pool is not None:
            return
        pool: psycopg_pool.AsyncConnectionPool[Any] = psycopg_pool.AsyncConnectionPool(
            self._target.conninfo,
            # What the engine asks names neither schema nor tenant. Workers need connections that
            # last anyway, because they listen.
            kwargs={
                "options": f"-c search_path=holdfast_jobs -c holdfast.tenant={self._target.tenant}"
            },
            min_size=0,
            max_size=3,
            open=False,
            check=psycopg_pool.AsyncConnectionPool.check_connection,
            name="holdfast-jobs",
        )
        await pool.open()
        self._pool = pool

    async def close(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def wake(
        self, session_id: str, *, delay_s: float = 0.0, queue: str = "", priority: int = 0
    ) -> None:
        """Store a job, unless one waits already."""
        await self._wake(Wakeup(session_id, self._name_queue(queue), priority), delay_s)

    async def claim(self, session_id: str, limits: Mapping[str, int]) -> bool:
        """Write into the job what it counts as, if there is room among all that are worked on."""
        values = {
            "job": self._doing.get(session_id),
            "kinds": list(limits),
            "most": list(limits.values()),
            "tenant": self._target.tenant,
        }
        async with self._connect() as connection, connection.transaction():
            # One after the other: what others have claimed is seen by the statement that follows.
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
                (f"holdfast claims of {self._target.tenant}",),
            )
            return await (await connection.execute(_CLAIM, values)).fetchone() is not None

    async def list_workers(self) -> list[WorkerStatus]:
        """Return the workers of the tenant that have shown themselves lately."""
        return [
            WorkerStatus(
                name=row[0],
                host=row[1],
                process=row[2],
                concurrency=row[3],
                time_started=row[4],
                time_seen=row[5],
                sessions=tuple(row[6]),
                queues=tuple(row[7]),
            )
            for row in await self._ask(_WORKERS, (self._target.tenant,))
        ]

    async def list_dead(self) -> list[DeadLetter]:
        """Return the jobs that were given up."""
        return [
            _make_letter(row)
            for row in await self._ask(f"{_DEAD} ORDER BY j.id", (self._target.tenant,))
        ]

    async def retry_dead(self, letter_id: int) -> DeadLetter:
        """Replace a job that was given up by a new one."""
        async with self._connect() as connection, connection.transaction():
            found = await connection.execute(
                f"{_DEAD} AND j.id = %s FOR UPDATE", (self._target.tenant, letter_id)
            )
            row = await found.fetchone()
            if row is None:
                raise NotFound(kind="dead letter", value=str(letter_id))
            letter = _make_letter(row)
            again = Wakeup(letter.session_id, self._name_queue(letter.queue))
            await connection.execute("DELETE FROM procrastinate_jobs WHERE id = %s", (letter_id,))
            await connection.execute(_WAKE, again.list_values(0.0))
        return letter

    async def work(self, handler: WakeHandler, options: WorkerOptions, stop: asyncio.Event) -> None:
        """Be a worker of the engine until told to stop; a lost server is waited for."""
        pool = await self._opened()
        while not stop.is_set():
            app = self._make_app(handler, options)
            async with app.open_async(pool):
                engine = self._make_worker(app, options)
                beside = [
                    asyncio.create_task(self._sweep(engine, options), name="sweep"),
                    asyncio.create_task(self._stop(engine, options, stop), name="stop"),
                ]
                try:
                    await engine.run()  # type: ignore[no-untyped-call]
                except (exceptions.ConnectorException, psycopg.Error) as error:
                    # The server is away, or forgot this worker while the process stood still.
                    _log.warning("worker.begins_anew", detail=str(error))
                finally:
                    for task in beside:
                        task.cancel()
                    await asyncio.gather(*beside, return_exceptions=True)
            if not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), 1.0)

    # --- inside -----------------------------------------------------------------------

    def _make_app(self, handler: WakeHandler, options: WorkerOptions) -> procrastinate.App:
        app = procrastinate.App(connector=procrastinate.PsycopgConnector())

        @app.task(name=_TASK, pass_context=True)
        async def wake(context: Any, /, session: str, failures: int = 0, **_: Any) -> None:  # noqa: ANN401
            job = context.job
            await self._handle(
                handler, options, Wakeup(session, job.queue, job.priority, failures), job.id
            )

        return app

    def _make_worker(self, app: procrastinate.App, options: WorkerOptions) -> worker.Worker:
        return worker.Worker(
            app=app,
            queues=[self._name_queue(queue) for queue in options.queues],
            name=options.name,
            concurrency=options.concurrency,
            fetch_job_polling_interval=_POLL_S,
            shutdown_graceful_timeout=options.grace_s + 0.2,
            delete_jobs=jobs.DeleteJobCondition.SUCCESSFUL,
            install_signal_handlers=False,
            update_heartbeat_interval=options.lease_ttl_s / 4,
            stalled_worker_timeout=max(options.lease_ttl_s * 4, 60.0),
        )

    async def _handle(
        self, handler: WakeHandler, options: WorkerOptions, wakeup: Wakeup, job: int
    ) -> None:
        session, failures = wakeup.session, wakeup.failures
        self._doing[session] = job
        try:
            if await handler(session) == "later":
                await self._wake(wakeup, options.look_again_s)
        except asyncio.CancelledError:
            # This worker leaves: another one goes on.
            await asyncio.shield(self._wake(wakeup, 0.0))
            raise
        except Exception as error:
            code = error.code if isinstance(error, HoldfastError) else type(error).__name__
            _log.warning("wake.failed", session_id=session, error=code, failures=failures + 1)
            if failures + 1 < options.most_failures:
                again = msgspec.structs.replace(wakeup, failures=failures + 1)
                await self._wake(again, options.retry_s * 2**failures)
                return
            await self._ask(
                "UPDATE procrastinate_jobs SET args = args || jsonb_build_object("
                "'failures', %s::integer, 'error', %s::text) WHERE id = %s RETURNING id",
                (failures + 1, code, job),
            )
            raise
        finally:
            # A second wake-up of the session may have begun here meanwhile.
            if self._doing.get(session) == job:
                del self._doing[session]

    async def _sweep(self, engine: worker.Worker, options: WorkerOptions) -> None:
        """Say who this worker is, and put back what dead ones held, again and again."""
        values = {
            "queues": [self._name_queue(queue) for queue in options.queues],
            "ageing": options.ageing_s,
            "ttl": options.lease_ttl_s,
            "most": options.most_failures,
        }
        known: int | None = None
        while True:
            try:
                if engine.worker_id is not None and engine.worker_id != known:
                    await self._introduce(engine.worker_id, options)
                    known = engine.worker_id
                [(again, dead)] = await self._ask(_SWEEP, values)
                if again or dead:
                    _log.warning("worker.lost", put_back=again, given_up=dead)
                await self._ask(_AGE, values)
            except (StorageUnavailable, psycopg.Error) as error:
                _log.warning("worker.sweep_failed", detail=str(error))
            pause = min(_SWEEP_S, options.lease_ttl_s / 4)
            await asyncio.sleep(pause if known is not None else _BEGIN_S)

    async def _introduce(self, worker_id: int, options: WorkerOptions) -> None:
        own = (options.name, socket.gethostname(), os.getpid(), options.concurrency)
        values = (worker_id, self._target.tenant, *own, list(options.queues), options.lease_ttl_s)
        async with self._connect() as connection:
            await connection.execute(_NAME, values)

    async def _stop(
        self, engine: worker.Worker, options: WorkerOptions, stop: asyncio.Event
    ) -> None:
        await stop.wait()
        engine.stop()  # type: ignore[no-untyped-call]
        await asyncio.sleep(options.grace_s)
        options.on_leaving()

    def _name_queue(self, queue: str) -> str:
        """Return how the engine calls a queue of this tenant."""
        return f"holdfast/{self._target.tenant}" + (f"/{queue}" if queue else "")

    async def _wake(self, wakeup: Wakeup, delay_s: float) -> None:
        async with self._connect() as connection:
            await connection.execute(_WAKE, wakeup.list_values(delay_s))

    async def _ask(self, statement: str, values: Any) -> list[tuple[Any, ...]]:  # noqa: ANN401
        async with self._connect() as connection:
            found = await connection.execute(statement, values)
            rows: list[tuple[Any, ...]] = await found.fetchall()
            return rows

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Have a connection for a while, in a transaction of its own."""
        pool = await self._opened()
        try:
            async with pool.connection() as connection:
                yield connection
        except (psycopg.OperationalError, psycopg_pool.PoolTimeout) as error:
            raise self._fail(error) from error

    async def _opened(self) -> psycopg_pool.AsyncConnectionPool[Any]:
        await self.open()
        assert self._pool is not None
        return self._pool

    def _fail(self, error: Exception) -> StorageUnavailable:
        said = str(error).strip().splitlines()[:1]
        return StorageUnavailable(path=self._target.shown, detail=said[0] if said else "lost")


def _make_letter(row: tuple[Any, ...]) -> DeadLetter:
    return DeadLetter(
        id=row[0], session_id=row[1], failures=row[2], error=row[3], time=row[4], queue=row[5]
    )
