"""Changes to a database of memories; each runs inside one transaction of the caller."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from holdfast.errors import AlreadyExists, LeaseLost, NotFound
from holdfast.memory.dialogue import NOTHING, WINDOW, Inferred, describe_label, infer_turn
from holdfast.memory.space import VectorSpace
from holdfast.memory.storage import MemoryDraft, Purge
from holdfast.memory.stores._database import MemoryDatabase
from holdfast.memory.stores._reading import describe_places, list_lines_before
from holdfast.memory.words import index_text

_BEFORE_CHARACTERS = 2_000
"""How much of the turn before is indexed with a turn."""
_INFERRED_AT_ONCE = 200
_NEWEST = 2**62


def take_revision(db: MemoryDatabase) -> int:
    """Return a number above all revisions so far."""
    db.execute("UPDATE revisions SET last = last + 1")
    last: int = db.execute("SELECT last FROM revisions").fetchone()[0]
    return last


def add(db: MemoryDatabase, draft: MemoryDraft) -> int:
    """Store a memory with its words; returns its row."""
    options = draft.options
    if draft.fence:
        _check_fence(db, draft)
    before = _read_row(db, draft.tenant, options.previous_id) if options.previous_id else None
    if draft.supersedes:
        _supersede(db, draft)
    said = _infer(db, draft)
    if before is None and said.follows is not None:
        before = (said.follows, _read_content(db, said.follows))
    taken = "SELECT 1 FROM memories WHERE tenant = ? AND id = ?"
    if db.execute(taken, (draft.tenant, draft.id)).fetchone() is not None:
        raise AlreadyExists(kind="memory", value=draft.id)
    row = _insert(db, draft, before[0] if before else None, said.speaker)
    db.index_words(
        row,
        describe_places(draft.tenant, options.scope, draft.owner),
        index_text(draft.content),
        _before_text(before[1] if before else ""),
    )
    for relation, others in (
        ("contradicts", options.contradicts),
        ("derived_from", options.derived_from),
    ):
        for other in others:
            link(db, draft.tenant, row, relation, other)
            if relation == "contradicts":
                # Each of the two contradicts the other one.
                link_ids(db, draft.tenant, other, relation, draft.id)
    for earlier in said.earlier:
        _make_turn(db, *earlier)
    if draft.vector:
        put_vector(db, draft.tenant, row, draft.vector_model, draft.vector)
        if draft.vector_space is not None:
            note_space(db, draft.vector_space)
    if draft.tokens:
        put_tokens(db, draft.tenant, row, draft.vector_model, draft.tokens)
    return row


def _check_fence(db: MemoryDatabase, draft: MemoryDraft) -> None:
    """Refuse what a process stores that has lost its session to another one."""
    found = db.execute(
        "SELECT fence FROM fences WHERE session_id = ?", (draft.session_id,)
    ).fetchone()
    if found is not None and found[0] > draft.fence:
        raise LeaseLost(session_id=draft.session_id, current=found[0], held=draft.fence)
    change = (
        "INSERT INTO fences (fence, session_id) VALUES (?, ?)"
        if found is None
        else "UPDATE fences SET fence = ? WHERE session_id = ?"
    )
    db.execute(change, (draft.fence, draft.session_id))


def _infer(db: MemoryDatabase, draft: MemoryDraft) -> Inferred:
    """Say who says a line that is stored without a speaker."""
    options = draft.options
    if options.speaker or draft.supersedes or options.derived_from:
        return NOTHING
    session = (draft.tenant, options.scope, draft.owner, draft.session_id)
    return _read_inferred(db, draft.content, session, _NEWEST)


def _read_inferred(
    db: MemoryDatabase, content: str, session: tuple[str, str, str, str], row: int
) -> Inferred:
    # Most texts have no label, and need no look at the lines before.
    if not describe_label(content):
        return NOTHING
    return infer_turn(content, list_lines_before(db, session, row, WINDOW - 1))


def _make_turn(db: MemoryDatabase, row: int, speaker: str, previous: int | None) -> None:
    """Note that a stored line is a turn: who says it, and after which one.

    Its vector was made with the label in the text, so it is made anew.
    """
    known = db.execute("SELECT previous FROM memories WHERE row = ?", (row,)).fetchone()
    follows = previous if known[0] is None else known[0]
    db.execute(
        "UPDATE memories SET inferred_speaker = ?, previous = ?, revision = ? WHERE row = ?",
        (speaker, follows, take_revision(db), row),
    )
    if known[0] is None and previous is not None:
        text = _before_text(_read_content(db, previous))
        db.index_before(row, text)
    for table in ("vectors", "tokens", "refusals"):
        db.execute(f"DELETE FROM {table} WHERE row = ?", (row,))


def infer_old_turns(db: MemoryDatabase) -> bool:
    """Look at some lines that an older version stored; returns whether there may be more."""
    found = db.execute(
        "SELECT row, content, tenant, scope, owner, session_id, speaker, supersedes"
        f" FROM memories {db.require_index('memories_not_inferred')}"
        " WHERE inferred_speaker IS NULL AND forgotten IS NULL ORDER BY row LIMIT ?",
        (_INFERRED_AT_ONCE,),
    ).fetchall()
    for row, content, *session, speaker, supersedes in found:
        said = NOTHING
        if not speaker and not supersedes:
            said = _read_inferred(db, content, tuple(session), row)
        for earlier in said.earlier:
            _make_turn(db, *earlier)
        if said.speaker:
            _make_turn(db, row, said.speaker, said.follows)
        else:
            db.execute("UPDATE memories SET inferred_speaker = '' WHERE row = ?", (row,))
    return len(found) == _INFERRED_AT_ONCE


def _read_content(db: MemoryDatabase, row: int) -> str:
    content: str = db.execute("SELECT content FROM memories WHERE row = ?", (row,)).fetchone()[0]
    return content


def _insert(db: MemoryDatabase, draft: MemoryDraft, previous: int | None, inferred: str) -> int:
    options = draft.options
    values: dict[str, object] = {
        "tenant": draft.tenant,
        "id": draft.id,
        "scope": options.scope,
        "owner": draft.owner,
        "session_id": draft.session_id,
        "kind": options.kind,
        "speaker": options.speaker,
        "content": draft.content,
        "metadata": msgspec.json.encode(draft.metadata).decode(),
        "provenance": msgspec.json.encode(options.provenance).decode(),
        "created": draft.created,
        "valid_from": draft.valid_from,
        "valid_to": options.valid_to,
        "expires": draft.expires,
        "importance": options.importance,
        "is_pinned": options.is_pinned,
        "previous": previous,
        "supersedes": draft.supersedes,
        "superseded_by": "",
        "bytes": len(draft.content.encode()),
        "inferred_speaker": inferred,
        "revision": take_revision(db),
    }
    marks = ", ".join("?" * len(values))
    sql = f"INSERT INTO memories ({', '.join(values)}) VALUES ({marks})"
    return db.insert_memory(sql, list(values.values()))


def _supersede(db: MemoryDatabase, draft: MemoryDraft) -> None:
    row, _ = _read_row(db, draft.tenant, draft.supersedes)
    changed = db.execute(
        "UPDATE memories SET superseded_by = ?, revision = ?,"
        " valid_to = CASE WHEN valid_to < ? THEN valid_to ELSE ? END"
        " WHERE row = ? AND superseded_by = '' AND forgotten IS NULL",
        (draft.id, take_revision(db), draft.valid_from, draft.valid_from, row),
    )
    if not changed.rowcount:
        raise AlreadyExists(kind="newer version of memory", value=draft.supersedes)


def _read_row(db: MemoryDatabase, tenant: str, memory_id: str) -> tuple[int, str]:
    found: tuple[int, str] | None = db.execute(
        "SELECT row, content FROM memories WHERE tenant = ? AND id = ? AND forgotten IS NULL",
        (tenant, memory_id),
    ).fetchone()
    if found is None:
        raise NotFound(kind="memory", value=memory_id)
    return found


def _before_text(content: str) -> str:
    return index_text(content[:_BEFORE_CHARACTERS])


def link(db: MemoryDatabase, tenant: str, row: int, relation: str, other: str) -> None:
    """Note how a memory relates to another one of its tenant."""
    target, _ = _read_row(db, tenant, other)
    db.execute(
        "INSERT INTO links (tenant, row, relation, other) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (tenant, row, relation, target),
    )


def link_ids(db: MemoryDatabase, tenant: str, memory_id: str, relation: str, to: str) -> None:
    """Note how two memories relate."""
    link(db, tenant, _read_row(db, tenant, memory_id)[0], relation, to)


def pin(db: MemoryDatabase, tenant: str, memory_id: str, is_pinned: bool) -> None:
    """Protect a memory from retention, or no longer."""
    row, _ = _read_row(db, tenant, memory_id)
    db.execute(
        "UPDATE memories SET is_pinned = ?, revision = ? WHERE row = ?",
        (is_pinned, take_revision(db), row),
    )


def put_vector(db: MemoryDatabase, tenant: str, row: int, model: str, vector: bytes) -> None:
    """Keep the vector of a memory and drop those of other models."""
    db.execute("DELETE FROM vectors WHERE tenant = ? AND row = ?", (tenant, row))
    db.execute(f"DELETE FROM tokens WHERE row = ? AND {db.unindexed}model != ?", (row, model))
    db.insert_vector(tenant, row, model, vector)


def put_tokens(db: MemoryDatabase, tenant: str, row: int, model: str, tokens: bytes) -> None:
    """Keep the quantized tokens of a memory in the place of those of any other model."""
    db.execute(
        "INSERT INTO tokens (row, tenant, model, tokens) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (row) DO UPDATE SET model = excluded.model, tokens = excluded.tokens",
        (row, tenant, model, tokens),
    )


def note_space(db: MemoryDatabase, space: VectorSpace) -> None:
    """Keep how a model is reached; the newest address counts."""
    db.execute("DELETE FROM spaces WHERE model = ?", (space.model_id,))
    db.execute(
        "INSERT INTO spaces (model, dimension, provider, base_url, name) VALUES (?, ?, ?, ?, ?)",
        (space.model_id, space.dimension, space.provider, space.base_url, space.model),
    )


def put_vectors(
    db: MemoryDatabase,
    model: str,
    vectors: Mapping[int, bytes],
    refused: Mapping[int, str],
    tokens: Mapping[int, bytes],
    space: VectorSpace | None,
) -> None:
    """Keep what an embedder made; a memory that was forgotten meanwhile stays forgotten."""
    if space is not None:
        note_space(db, space)
    for row, vector in vectors.items():
        tenant = _read_tenant_of_living(db, row)
        if tenant is not None:
            put_vector(db, tenant, row, model, vector)
            db.execute("UPDATE memories SET revision = ? WHERE row = ?", (take_revision(db), row))
    for row, some in tokens.items():
        tenant = _read_tenant_of_living(db, row)
        if tenant is not None:
            put_tokens(db, tenant, row, model, some)
    for row, detail in refused.items():
        tenant = _read_tenant_of_living(db, row)
        if tenant is not None:
            _note_refusal(db, tenant, row, model, detail)
            # No caller goes on asking an old server for the sake of what the new one refuses.
            db.execute("DELETE FROM vectors WHERE tenant = ? AND row = ?", (tenant, row))
            db.execute("DELETE FROM tokens WHERE row = ?", (row,))
            db.execute("UPDATE memories SET revision = ? WHERE row = ?", (take_revision(db), row))
    _drop_empty_spaces(db, model)


def _note_refusal(db: MemoryDatabase, tenant: str, row: int, model: str, detail: str) -> None:
    changed = db.execute(
        "UPDATE refusals SET attempts = attempts + 1, detail = ?"
        " WHERE tenant = ? AND row = ? AND model = ?",
        (detail, tenant, row, model),
    )
    if not changed.rowcount:
        db.execute(
            "INSERT INTO refusals (tenant, row, model, attempts, detail) VALUES (?, ?, ?, 1, ?)",
            (tenant, row, model, detail),
        )


def list_changed_since(db: MemoryDatabase, revisions: Mapping[int, int]) -> set[int]:
    """Return the rows that have another revision by now."""
    find = "SELECT 1 FROM memories WHERE row = ? AND revision = ?"
    return {one[0] for one in revisions.items() if db.execute(find, one).fetchone() is None}


def _drop_empty_spaces(db: MemoryDatabase, current: str) -> None:
    db.execute(
        "DELETE FROM spaces WHERE model != ?"
        " AND NOT EXISTS (SELECT 1 FROM vectors v WHERE v.model = spaces.model)",
        (current,),
    )


def _read_tenant_of_living(db: MemoryDatabase, row: int) -> str | None:
    found = db.execute(
        "SELECT tenant FROM memories WHERE row = ? AND forgotten IS NULL", (row,)
    ).fetchone()
    return found[0] if found else None


def forget(
    db: MemoryDatabase,
    tenant: str,
    ids: Iterable[str],
    *,
    now: float,
    reason: str,
    keeps_pinned: bool = False,
) -> list[str]:
    """Remove memories and what was derived from them; returns the ids, in the order found.

    With `keeps_pinned` what was derived stays if a user pinned it.
    """
    waiting = list(ids)
    done: list[str] = []
    while waiting:
        memory_id = waiting.pop(0)
        found = db.execute(
            "SELECT row FROM memories WHERE tenant = ? AND id = ? AND forgotten IS NULL",
            (tenant, memory_id),
        ).fetchone()
        if found is None:
            continue
        waiting += [
            other
            for (other,) in db.execute(
                "SELECT m.id FROM links l JOIN memories m ON m.row = l.row"
                " WHERE l.tenant = ? AND l.other = ? AND l.relation = 'derived_from'"
                " AND NOT (? AND m.is_pinned)",
                (tenant, found[0], keeps_pinned),
            )
        ]
        _forget_row(db, tenant, found[0], now, reason)
        done.append(memory_id)
    return done


def _forget_row(db: MemoryDatabase, tenant: str, row: int, now: float, reason: str) -> None:
    db.execute(
        "UPDATE memories SET content = '', metadata = '{}', provenance = '{}', speaker = '',"
        " inferred_speaker = '', kind = '', bytes = 0, is_pinned = FALSE, forgotten = ?,"
        " forgotten_why = ?, revision = ? WHERE row = ?",
        (now, reason, take_revision(db), row),
    )
    db.drop_words(row)
    for table in ("vectors", "tokens", "refusals"):
        db.execute(f"DELETE FROM {table} WHERE tenant = ? AND row = ?", (tenant, row))
    db.execute("DELETE FROM links WHERE tenant = ? AND (row = ? OR other = ?)", (tenant, row, row))
    # The turn after it was indexed together with it.
    for (after,) in db.execute(
        "SELECT row FROM memories WHERE previous = ? AND forgotten IS NULL", (row,)
    ).fetchall():
        db.index_before(after, "")


def purge(db: MemoryDatabase, tenant: str, rule: Purge) -> list[str]:
    """Forget what has expired, then what is beyond the caps, least worth first."""
    expired = db.execute(
        "SELECT id FROM memories WHERE tenant = ? AND forgotten IS NULL AND NOT is_pinned"
        " AND expires <= ?",
        (tenant, rule.now),
    ).fetchall()
    forgetting = functools.partial(forget, db, tenant, now=rule.now, keeps_pinned=True)
    gone = forgetting([row[0] for row in expired], reason="expired")
    if rule.max_entries is None and rule.max_bytes is None:
        return gone
    places = db.execute(
        "SELECT scope, owner, count(*), sum(bytes) FROM memories"
        " WHERE tenant = ? AND forgotten IS NULL GROUP BY scope, owner",
        (tenant,),
    ).fetchall()
    for scope, owner, count, size in places:
        beyond = _list_beyond_caps(db, (tenant, scope, owner), (count, size), rule)
        gone += forgetting(beyond, reason="over the cap")
    return gone


def _list_beyond_caps(
    db: MemoryDatabase, place: tuple[str, str, str], held: tuple[int, int], rule: Purge
) -> list[str]:
    count, size = held
    most = rule.max_entries if rule.max_entries is not None else count
    most_bytes = rule.max_bytes if rule.max_bytes is not None else size
    if count <= most and size <= most_bytes:
        return []
    candidates: Sequence[tuple[str, int, float, float]] = db.execute(
        "SELECT id, bytes, importance, created FROM memories WHERE tenant = ? AND scope = ?"
        " AND owner = ? AND forgotten IS NULL AND NOT is_pinned",
        place,
    ).fetchall()

    def worth(one: tuple[str, int, float, float]) -> tuple[float, float]:
        age = max(0.0, rule.now - one[3])
        return one[2] * 0.5 ** min(age / rule.half_life_s, 1_000.0), one[3]

    beyond = []
    for memory_id, length, _, _ in sorted(candidates, key=worth):
        if count <= most and size <= most_bytes:
            break
        beyond.append(memory_id)
        count, size = count - 1, size - length
    return beyond


def reindex(db: MemoryDatabase) -> int:
    """Make the index of words anew."""
    db.clear_words()
    found = db.execute(
        "SELECT m.row, m.tenant, m.scope, m.owner, m.content, coalesce(p.content, '')"
        " FROM memories m LEFT JOIN memories p ON p.row = m.previous"
        " WHERE m.forgotten IS NULL ORDER BY m.row"
    )
    count = 0
    for row, tenant, scope, owner, content, before in found:
        marks = describe_places(tenant, scope, owner)
        db.index_words(row, marks, index_text(content), _before_text(before))
        count += 1
    return count


def drop_vectors(db: MemoryDatabase, model: str) -> int:
    """Remove all vectors and tokens of a model, and the notes about what it refused."""
    db.execute("DELETE FROM refusals WHERE model = ?", (model,))
    db.execute("DELETE FROM tokens WHERE model = ?", (model,))
    db.execute(
        "UPDATE memories SET revision = ? WHERE row IN (SELECT row FROM vectors WHERE model = ?)",
        (take_revision(db), model),
    )
    return db.execute("DELETE FROM vectors WHERE model = ?", (model,)).rowcount
