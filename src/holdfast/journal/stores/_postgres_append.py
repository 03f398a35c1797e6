"""Appends to Postgres: one statement that is fenced by epoch and number, in groups.

What a batch needs is worked out here, against the chain's end as it is remembered; the statement
stores it only if the chain still ends there under that epoch, together with the rows that follow
from it. Otherwise it stores nothing of that batch, and the end is read anew. So an append that is
sent again after a lost connection can never be stored twice.

Numbers are given under a lock that is held until the commit, which takes a sync of the server's
log: appends that wait meanwhile go together with the next statement.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import psycopg

from holdfast.errors import (
    AlreadyExists,
    HoldfastError,
    LeaseLost,
    NotFound,
    SessionBusy,
    StaleWriter,
    StorageUnavailable,
    UsageError,
)
from holdfast.journal.envelope import GENESIS, SYSTEM_SESSION, Event, chain_events
from holdfast.journal.store import BLOB_THRESHOLD, AppendRequest, HeldSession
from holdfast.journal.stores._postgres_connections import (
    Connection,
    Connections,
    Runner,
    is_lost,
    may_repeat,
    run_one,
    run_within,
    translate,
)
from holdfast.journal.stores._postgres_rows import Changes, Place, PostgresTables

INLINE, BLOB, REDACTED = 0, 1, 2
CHANNEL = "holdfast"
"""Told of every commit; what is told is empty, for everybody may listen."""
_MOST_TOGETHER = 64
_MOST_EVENTS = 1_000
_MOST_CHAINS = 2_000
_MOST_ROWS = 1_000
_MOST_TRIES = 100

_HEADS = """
SELECT session_id, stream, session_seq, hash, epoch, owner, lease_until > holdfast.lease_clock()
FROM holdfast.streams WHERE tenant = %s AND session_id = ANY(%s) ORDER BY stream
"""
_STORED = """
SELECT i.request, e.seq FROM unnest(%s::integer[], %s::text[], %s::bigint[], %s::bytea[])
    AS i(request, session_id, session_seq, hash)
JOIN holdfast.streams s ON s.tenant = %s AND s.session_id = i.session_id
JOIN holdfast.events e ON e.stream = s.stream AND e.session_seq = i.session_seq
    AND e.hash = i.hash
"""
# In this order: streams, then the counter. Everything that is stored depends on `numbers`, and
# so comes after its lock.
_APPEND = """
WITH wanted AS MATERIALIZED (
    SELECT * FROM unnest(%b::integer[], %b::bigint[], %b::text[], %b::bigint[], %b::bigint[],
        %b::bigint[], %b::bytea[], %b::boolean[], %b::text[], %b::double precision[],
        %b::bigint[], %b::bigint[])
    AS w(request, stream, session_id, epoch, session_seq, new_seq, new_hash, is_released,
        owner, ttl_s, held_stream, held_epoch)
), locked AS MATERIALIZED (
    SELECT stream, epoch FROM holdfast.streams
    WHERE stream IN (SELECT stream FROM wanted UNION SELECT held_stream FROM wanted)
    ORDER BY stream FOR UPDATE
), overtaken AS MATERIALIZED (
    SELECT request FROM wanted w
    WHERE held_stream > 0 AND NOT EXISTS (
        SELECT FROM locked l WHERE l.stream = w.held_stream AND l.epoch = w.held_epoch)
), changed AS (
    UPDATE holdfast.streams s SET
        session_seq = w.new_seq, hash = w.new_hash,
        epoch = s.epoch + CASE WHEN w.owner = '' THEN 0 ELSE 1 END,
        unproved_epoch =
            CASE WHEN w.owner <> '' AND s.owner <> '' THEN s.epoch ELSE s.unproved_epoch END,
        owner = CASE WHEN w.is_released THEN '' WHEN w.owner <> '' THEN w.owner ELSE s.owner END,
        lease_until = CASE WHEN w.is_released THEN '-infinity'
            WHEN w.owner <> '' THEN holdfast.lease_clock() + make_interval(secs => w.ttl_s)
            ELSE s.lease_until END
    FROM wanted w
    WHERE (SELECT count(*) FROM locked) > 0 AND s.stream = w.stream AND s.epoch = w.epoch
        AND s.session_seq = w.session_seq
        AND (w.owner = '' OR s.owner = '' OR s.lease_until <= holdfast.lease_clock())
        AND w.request NOT IN (SELECT request FROM overtaken)
    RETURNING w.request, s.stream
), created AS (
    INSERT INTO holdfast.streams (tenant, session_id, session_seq, hash, epoch, owner, lease_until)
    SELECT %b::text, session_id, new_seq, new_hash, CASE WHEN owner = '' THEN 0 ELSE 1 END,
        CASE WHEN is_released THEN '' ELSE owner END,
        CASE WHEN owner = '' OR is_released THEN '-infinity'
            ELSE holdfast.lease_clock() + make_interval(secs => ttl_s) END
    FROM wanted WHERE stream = 0 AND request NOT IN (SELECT request FROM overtaken)
    ORDER BY session_id
    ON CONFLICT (tenant, session_id) DO NOTHING
    RETURNING session_id, stream
), accepted AS MATERIALIZED (
    SELECT request, stream FROM changed
    UNION ALL
    SELECT w.request, c.stream FROM created c JOIN wanted w USING (session_id)
    WHERE w.stream = 0
), incoming AS MATERIALIZED (
    SELECT i.*, o.stream FROM unnest(%b::integer[], %b::bigint[], %b::text[], %b::integer[],
        %b::double precision[], %b::text[], %b::text[], %b::text[], %b::text[], %b::bigint[],
        %b::bytea[], %b::bytea[], %b::smallint[], %b::bytea[], %b::bigint[]) WITH ORDINALITY
    AS i(request, session_seq, kind, version, time, run_id, agent_path, correlation_id,
        causation_id, epoch, digest, hash, placement, payload, place, ordinal)
    JOIN accepted o USING (request)
), numbers AS (
    INSERT INTO holdfast.counters AS c (tenant, last)
    SELECT %b::text, count(*) FROM incoming HAVING count(*) > 0
    ON CONFLICT (tenant) DO UPDATE SET last = c.last + excluded.last
    RETURNING tenant, last
), numbered AS MATERIALIZED (
    SELECT i.*, n.tenant,
        n.last - count(*) OVER () + row_number() OVER (ORDER BY i.ordinal) AS seq
    FROM incoming i CROSS JOIN numbers n
), stored AS (
    INSERT INTO holdfast.events (tenant, seq, stream, session_seq, kind, version, time, run_id,
        agent_path, correlation_id, causation_id, epoch, digest, hash, placement, payload, place)
    SELECT tenant, seq, stream, session_seq, kind, version, time, run_id, agent_path,
        correlation_id, causation_id, epoch, digest, hash, placement,
        CASE WHEN placement <> 1 THEN payload END, place + seq
    FROM numbered
){more}
SELECT request, stream, min(seq), (SELECT pg_notify('{channel}', '') FROM numbers)
FROM numbered GROUP BY request, stream
"""
_BLOBS = """, kept AS (
    INSERT INTO holdfast.blobs (tenant, digest, data)
    SELECT n.tenant, i.digest, i.data FROM unnest(%b::integer[], %b::bytea[], %b::bytea[])
        AS i(request, digest, data)
    JOIN accepted o USING (request) CROSS JOIN numbers n
    ON CONFLICT (tenant, digest) DO NOTHING
)"""

# A job that waits is locked, not left alone: a worker that took it before this commits would not
# see what it is for. One that was taken already makes room for another.
_WAKES = """, woken AS (
    INSERT INTO holdfast_jobs.procrastinate_jobs AS j
        (queue_name, task_name, queueing_lock, args, priority)
    SELECT 'holdfast/' || n.tenant || i.queue, 'holdfast.wake',
        'holdfast/' || n.tenant || i.queue || '/' || i.session_id,
        jsonb_build_object('session', i.session_id, 'failures', 0,
            'since', extract(epoch FROM clock_timestamp())), i.priority
    FROM unnest(%b::integer[], %b::text[], %b::text[], %b::integer[])
        AS i(request, session_id, queue, priority)
    JOIN accepted o USING (request) CROSS JOIN numbers n ORDER BY i.session_id, i.queue
    ON CONFLICT (queueing_lock) WHERE status = 'todo'
        DO UPDATE SET scheduled_at = NULL, priority = greatest(j.priority, excluded.priority)
)"""


class KnownEnd(msgspec.Struct):
    """What this store knows of one session: where its chain ends, and rows that follow from it.

    It may have moved meanwhile; then the fence refuses what was made from this.
    """

    stream: int | None
    epoch: int = 0
    session_seq: int = 0
    hash: str = GENESIS
    owner: str = ""
    is_held: bool = False
    rows: dict[Place, Any] = msgspec.field(default_factory=dict)


class PendingAppend(msgspec.Struct):
    """An append that waits, and what it would become at the end of a chain."""

    request: AppendRequest
    done: asyncio.Future[tuple[Event, ...]]
    tries: int = 0
    chain: KnownEnd | None = None
    events: list[Event] = msgspec.field(default_factory=list)
    changes: Changes = msgspec.field(default_factory=dict)
    lost: list[list[Event]] = msgspec.field(default_factory=list)
    """What was sent on connections that broke: one of these may be stored, or still become so."""

    def list_wakes(self) -> dict[str, int]:
        """Return the queues whose workers have to look after the session, with priorities."""
        found: dict[str, int] = {}
        for draft in self.request.drafts:
            if draft.value.wakes_session:
                queue, priority = draft.value.wake_place
                found[queue] = max(priority, found.get(queue, priority))
        return found

    def fail(self, error: BaseException) -> None:
        """Tell the caller, if it still waits, that nothing of it was stored."""
        if not self.done.done():
            self.done.set_exception(error)

    def report_stored(self, first: int) -> None:
        """Tell the caller, if it still waits, what was stored, with the numbers that it got."""
        events = [
            msgspec.structs.replace(event, seq=first + number)
            for number, event in enumerate(self.events)
        ]
        if not self.done.done():
            self.done.set_result(tuple(events))


class PostgresAppender:
    """Stores appends in groups, one statement at a time."""

    def __init__(self, connections: Connections, tables: PostgresTables) -> None:
        """Write through these connections, and keep these tables up to date."""
        self._connections = connections
        self._tables = tables
        self._chains: dict[str, KnownEnd] = {}
        self._waiting: list[PendingAppend] = []
        self._task: asyncio.Task[None] | None = None
        self.last_seq = 0

    async def append(self, request: AppendRequest) -> tuple[Event, ...]:
        """Store a batch with its rows; see `Store.append`."""
        _require_storable(request)
        if not self._connections.is_open:
            raise self._connections.fail_closed()
        work = PendingAppend(request, asyncio.get_running_loop().create_future())
        self._waiting.append(work)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all())
        return await work.done

    async def append_within(
        self, connection: Connection, request: AppendRequest
    ) -> tuple[Event, ...]:
        """Store a batch as part of a transaction of several statements.

        The caller holds the lock of the session's row. Raises `StaleWriter` if the chain has
        moved all the same, because it has just been made.
        """
        _require_storable(request)
        work = PendingAppend(request, asyncio.get_running_loop().create_future(), tries=1)
        names = _list_sessions(request)
        for name in names:
            self._chains.pop(name, None)
        await self._look_up(connection, names, run_within)
        ready = [work] if self._check(work) else []
        await self._read_rows(connection, ready, run_within)
        if all(map(self._fold, ready)) and ready:
            statement, values = self._build(ready)
            tenant = self._connections.target.tenant
            for row in await run_within(connection, tenant, statement, values):
                self._accept(work, row[2], None)
        # Only its transaction decides whether all this holds.
        self._chains.pop(request.session_id, None)
        if not work.done.done():
            raise StaleWriter(session_id=request.session_id, current=0, expected=0)
        return await work.done

    async def finish(self) -> None:
        """Wait until everything that was accepted is stored or refused."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    def drop(self, session_id: str) -> None:
        """Forget a chain that was changed otherwise."""
        self._chains.pop(session_id, None)

    def forget(self) -> None:
        """Forget all chains."""
        self._chains.clear()

    # --- in groups --------------------------------------------------------------------

    async def _write_all(self) -> None:
        while self._waiting:
            group = self._take_group()
            try:
                await self._write(group)
            except Exception as error:  # noqa: BLE001 - the callers have to be told
                for work in group:
                    self._chains.pop(work.request.session_id, None)
                    work.fail(error)

    def _take_group(self) -> list[PendingAppend]:
        """Return appends of different sessions that fit into one statement, oldest first."""
        group: list[PendingAppend] = []
        rest: list[PendingAppend] = []
        sessions: set[str] = set()
        events = 0
        for work in self._waiting:
            session_id, count = work.request.session_id, len(work.request.drafts)
            is_fit = len(group) < _MOST_TOGETHER and (not group or events + count <= _MOST_EVENTS)
            if work.done.done():
                continue  # the caller was cancelled before anything was sent
            if session_id in sessions or not is_fit:
                rest.append(work)
            else:
                group.append(work)
                events += count
            sessions.add(session_id)
        self._waiting = rest
        return group

    async def _write(self, group: list[PendingAppend]) -> None:
        """Store a group; what is refused because its chain has moved is tried anew."""
        while group:
            try:
                group = await self._try(group)
            except psycopg.Error as error:
                where = self._connections.target.shown
                for work in group:
                    self._chains.pop(work.request.session_id, None)
                    work.tries += 1
                if not (is_lost(error) or may_repeat(error)) or group[0].tries > _MOST_TRIES:
                    raise translate(error, where) from error
                if is_lost(error):
                    # The old server process may still be at work. That does no harm: each append
                    # is fenced by the number before it, so the same one is stored once at most.
                    for work in group:
                        work.lost += [work.events] if work.events else []
                    await self._connections.drop_writer()

    async def _settle(
        self, connection: Connection, group: list[PendingAppend]
    ) -> list[PendingAppend]:
        """Return those of a group that are not stored although their connection broke."""
        sent = [(work, events) for work in group for events in work.lost]
        if not sent:
            return group
        ends = [events[-1] for _, events in sent]
        tenant = self._connections.target.tenant
        values = [
            list(range(len(ends))),
            [event.session_id for event in ends],
            [event.session_seq for event in ends],
            [bytes.fromhex(event.hash) for event in ends],
            tenant,
        ]
        settled: set[int] = set()
        for number, last in await run_one(connection, tenant, _STORED, values):
            work, work.events = sent[number]
            self._accept(work, last - len(work.events) + 1, None)
            settled.add(id(work))
        return [work for work in group if id(work) not in settled]

    async def _try(self, group: list[PendingAppend]) -> list[PendingAppend]:
        """Send a group once; returns those whose chains have moved."""
        connection = await self._reach(group)
        names = {name for work in group for name in _list_sessions(work.request)}
        if unknown := [name for name in names if name not in self._chains]:
            await self._look_up(connection, unknown)
        group = await self._settle(connection, group)
        ready = [work for work in group if self._check(work)]
        await self._read_rows(connection, ready)
        ready = [work for work in ready if self._fold(work)]
        if not ready:
            return []
        statement, values = self._build(ready)
        found = await run_one(connection, self._connections.target.tenant, statement, values)
        accepted = {row[0]: (row[1], row[2]) for row in found}
        moved = []
        for number, work in enumerate(ready):
            if number in accepted:
                stream, first = accepted[number]
                self._accept(work, first, stream)
            else:
                for name in _list_sessions(work.request):
                    self._chains.pop(name, None)
                work.tries += 1
                work.events = []
                moved.append(work)
        return moved

    async def _reach(self, group: list[PendingAppend]) -> Connection:
        try:
            return await self._connections.open_writer()
        except StorageUnavailable as failure:
            if not any(work.lost for work in group):
                raise
            raise StorageUnavailable(
                path=self._connections.target.shown,
                detail="the connection broke while something was being stored, and does not "
                "come back: reading shows whether it was",
            ) from failure

    # --- what a group becomes ---------------------------------------------------------

    async def _look_up(
        self, connection: Connection, sessions: list[str], run: Runner = run_one
    ) -> None:
        tenant = self._connections.target.tenant
        if len(self._chains) > _MOST_CHAINS:
            self._chains.clear()
        for row in await run(connection, tenant, _HEADS, (tenant, sessions)):
            self._chains[row[0]] = KnownEnd(
                stream=row[1],
                session_seq=row[2],
                hash=row[3].hex() if row[3] is not None else GENESIS,
                epoch=row[4],
                owner=row[5],
                is_held=bool(row[5]) and row[6],
            )

    def _check(self, work: PendingAppend) -> bool:
        """Say whether an append fits to the chain as it is known; else its caller is told.

        A refusal may rest on what was remembered: it is only given for what was just read.
        """
        request, session_id = work.request, work.request.session_id
        chain = self._chains.get(session_id)
        error: HoldfastError | None = None
        if chain is None:
            chain = KnownEnd(None)
            if not request.must_be_new and session_id != SYSTEM_SESSION:
                error = NotFound(kind="session", value=session_id)
        elif request.must_be_new:
            error = AlreadyExists(kind="session", value=session_id)
        if error is None and request.epoch not in (None, chain.epoch):
            error = LeaseLost(session_id=session_id, current=chain.epoch, held=request.epoch)
        if error is None and request.after not in (None, chain.session_seq):
            error = StaleWriter(
                session_id=session_id, current=chain.session_seq, expected=request.after
            )
        if error is None and request.acquire is not None and chain.is_held:
            error = SessionBusy(session_id=session_id)
        if error is None and request.held is not None:
            error = self._find_overtaken(request.held)
        if error is not None:
            is_remembered = chain.stream is not None or request.held is not None
            self._refuse(work, error, is_remembered=is_remembered)
            return False
        work.chain = chain
        epoch = chain.epoch + (request.acquire is not None)
        end = KnownEnd(chain.stream, epoch=epoch, session_seq=chain.session_seq, hash=chain.hash)
        work.events = chain_events(request.drafts, session_id, end, 0)
        return True

    def _refuse(self, work: PendingAppend, error: Exception, *, is_remembered: bool) -> None:
        """Tell the caller of an append why it cannot be; look anew first if that was remembered."""
        for name in _list_sessions(work.request):
            self._chains.pop(name, None)
        if work.tries == 0 and is_remembered:
            # Perhaps the memory is wrong, and not the caller: once more with a fresh look.
            work.tries = 1
            self._waiting.insert(0, work)
        else:
            work.fail(error)

    def _find_overtaken(self, held: HeldSession) -> LeaseLost | None:
        known = self._chains.get(held.session_id)
        current = known.epoch if known is not None else 0
        if known is not None and current == held.epoch:
            return None
        return LeaseLost(session_id=held.session_id, current=current, held=held.epoch)

    async def _read_rows(
        self, connection: Connection, group: list[PendingAppend], run: Runner = run_one
    ) -> None:
        """Read the rows that are needed and not known, of all in one go."""
        needed: dict[str, list[tuple[KnownEnd, str]]] = {}
        for work in group:
            chain = work.chain
            assert chain is not None
            for name, key in self._tables.list_needed(_list_facts(work), chain.rows):
                chain.rows[name, key] = None
                if chain.stream is not None:
                    needed.setdefault(name, []).append((chain, key))
        if not needed:
            return
        parts, values = [], []
        for name, places in needed.items():
            parts.append(
                f"SELECT '{name}', p.stream, p.key, p.data FROM unnest(%s::bigint[], %s::bytea[]) "
                f"AS i(stream, key) JOIN {self._tables.tables[name].name} p USING (stream, key)"
            )
            values += [[c.stream for c, _ in places], [key.encode() for _, key in places]]
        by_stream = {c.stream: c for places in needed.values() for c, _ in places}
        tenant = self._connections.target.tenant
        for row in await run(connection, tenant, " UNION ALL ".join(parts), values):
            found = self._tables.tables[row[0]].decode(row[3])
            by_stream[row[1]].rows[row[0], row[2].decode()] = found

    def _fold(self, work: PendingAppend) -> bool:
        """Work out the rows; a projection that refuses ends this append alone.

        As with chains, that is only said of rows that were just read.
        """
        assert work.chain is not None
        try:
            work.changes = self._tables.fold(_list_facts(work), work.chain.rows)
        except Exception as error:  # noqa: BLE001 - the caller gets it, whatever it is
            self._refuse(work, error, is_remembered=work.chain.stream is not None)
            return False
        return True

    def _accept(self, work: PendingAppend, first: int, stream: int | None) -> None:
        """Remember where the chain ends now, and tell the caller."""
        chain, last = work.chain, work.events[-1]
        self.last_seq = max(self.last_seq, first + len(work.events) - 1)
        if chain is not None and stream is not None:
            chain.stream, chain.epoch = stream, last.epoch
            chain.session_seq, chain.hash = last.session_seq, last.hash
            if work.request.acquire is not None:
                chain.owner, chain.is_held = work.request.acquire.owner, True
            if work.request.release:
                chain.owner, chain.is_held = "", False
            if len(chain.rows) > _MOST_ROWS:
                chain.rows.clear()
            chain.rows.update(work.changes)
            self._chains[work.request.session_id] = chain
        work.report_stored(first)

    def _build(self, group: list[PendingAppend]) -> tuple[str, list[Any]]:  # noqa: C901 - one statement
        """Return the statement for a group, and its values."""
        wanted: list[list[Any]] = [[] for _ in range(12)]
        events: list[list[Any]] = [[] for _ in range(15)]
        blobs: list[list[Any]] = [[], [], []]
        changes: dict[str, list[tuple[int, str, Any]]] = {}
        for number, work in enumerate(group):
            chain, request, last = work.chain, work.request, work.events[-1]
            assert chain is not None
            wish, held = request.acquire, request.held
            row = (
                number,
                chain.stream or 0,
                request.session_id,
                chain.epoch,
                chain.session_seq,
                last.session_seq,
                bytes.fromhex(last.hash),
                request.release,
                wish.owner if wish is not None else "",
                float(wish.ttl_s) if wish is not None else 0.0,
                (self._chains[held.session_id].stream or 0) if held is not None else 0,
                held.epoch if held is not None else 0,
            )
            for column, value in zip(wanted, row, strict=True):
                column.append(value)
            for event in work.events:
                for column, value in zip(events, _list_values(number, event), strict=True):
                    column.append(value)
                if len(event.payload) > BLOB_THRESHOLD:
                    digest = bytes.fromhex(event.payload_digest)
                    for column, value in zip(blobs, (number, digest, event.payload), strict=True):
                        column.append(value)
            for (name, key), row_after in work.changes.items():
                changes.setdefault(name, []).append((number, key, row_after))
        tenant = self._connections.target.tenant
        values: list[Any] = [*wanted, tenant, *events, tenant]
        more = []
        if blobs[0]:
            # The same content twice in one statement would meet itself.
            more.append(_BLOBS.replace("SELECT n.", "SELECT DISTINCT ON (i.digest) n.", 1))
            values += blobs
        if woken := [
            (number, work.request.session_id, queue and f"/{queue}", priority)
            for number, work in enumerate(group)
            for queue, priority in work.list_wakes().items()
        ]:
            more.append(_WAKES)
            values += [list(column) for column in zip(*woken, strict=True)]
        for name in sorted(changes):
            table = self._tables.tables[name]
            kept = [one for one in changes[name] if one[2] is not None]
            gone = [one for one in changes[name] if one[2] is None]
            if kept:
                more.append(f", u_{name} AS ({table.upsert})")
                values += table.list_values(kept)
            if gone:
                more.append(f", d_{name} AS ({table.remove})")
                values += [[one[0] for one in gone], [one[1].encode() for one in gone]]
        return _APPEND.replace("{more}", "".join(more)).replace("{channel}", CHANNEL), values


def _list_sessions(request: AppendRequest) -> list[str]:
    """Return the sessions whose epochs decide about an append."""
    held = request.held
    return [request.session_id, *([held.session_id] if held is not None else ())]


def _list_facts(work: PendingAppend) -> list[tuple[Event, Any]]:
    return [
        (event, draft.value) for event, draft in zip(work.events, work.request.drafts, strict=True)
    ]


def _list_values(request: int, event: Event) -> tuple[Any, ...]:
    is_large = len(event.payload) > BLOB_THRESHOLD and not event.is_redacted
    return (
        request,
        event.session_seq,
        event.kind,
        event.version,
        event.time,
        event.run_id,
        event.agent_path,
        event.correlation_id,
        event.causation_id,
        event.epoch,
        bytes.fromhex(event.payload_digest),
        bytes.fromhex(event.hash),
        REDACTED if event.is_redacted else BLOB if is_large else INLINE,
        b"" if is_large else event.payload,
        int(event.hash[:8], 16),
    )


def _require_storable(request: AppendRequest) -> None:
    """Refuse names that a text of Postgres cannot hold, before anything is sent."""
    names = {*_list_sessions(request), *([request.acquire.owner] if request.acquire else ())}
    for draft in request.drafts:
        origin = draft.origin
        names |= {origin.run_id, origin.agent_path, origin.correlation_id, origin.causation_id}
    if not all(map(is_name, names)):
        raise UsageError(
            detail="The name of a session, a run or an agent holds a NUL or a lone surrogate."
        )


def is_name(text: str) -> bool:
    """Say whether a text of Postgres can hold a name."""
    if text.isascii():
        return "\0" not in text
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False
