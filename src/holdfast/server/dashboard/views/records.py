"""Sessions, memories, artifacts and state: what agents leave behind."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from holdfast.errors import UsageError
from holdfast.operations import artifacts, memory, runs, sessions, state
from holdfast.server.dashboard.asks import PAGE_HEADERS, Ask, GoTo, Shown, Streamed
from holdfast.server.dashboard.listing import (
    FormAction,
    FormField,
    ListRow,
    PageListing,
    make_badge,
    make_code,
    make_facts,
    make_lines,
    make_link,
    make_pre,
    show_listing,
)
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.words import (
    Markup,
    cut_text,
    format_ago,
    format_bytes,
    format_count,
    format_money,
)
from holdfast.server.http import ServerResponse
from holdfast.server.streams import send_download
from holdfast.sessions import Run, SessionFilter

_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_LONGEST_PREVIEW: Final = 200_000
_LARGEST_PICTURE: Final = 20_000_000


async def _list_sessions(ask: Ask) -> Shown:
    words = ask.query.get("q", "")
    where = SessionFilter(title_contains=words) if words else None
    page = await ask.perform(sessions.list_, where, cursor=ask.query.get("cursor", ""))
    rows = [
        ListRow(
            cells=(
                make_link(ask.link("sessions", one.id), one.title or one.slug, one.id),
                make_badge(one.state),
                format_count(one.message_count),
                format_count(one.total_tokens),
                format_money(one.total_cost),
                format_ago(one.time_updated),
            )
        )
        for one in page.items
    ]
    return show_listing(
        ask,
        PageListing(
            title="Sessions",
            filters=[FormField(name="q", label="Title", value=words)],
            columns=("Session", "State", "Messages", "Tokens", "Cost", "Used"),
            rows=rows,
            empty="No session yet",
            next_step="A session begins with the first message of a run or a chat.",
            older=ask.link("sessions", q=words, cursor=page.next_cursor)
            if page.next_cursor
            else "",
        ),
    )


async def _show_session(ask: Ask) -> Shown:
    one = await ask.perform(sessions.get, ask.words["session_id"])
    begun: tuple[Run, ...] = ()
    if ask.may("runs:read"):
        begun = (await ask.perform(runs.find, session_id=one.id)).items
    origin: Any = ""
    if one.forked_from is not None:
        at = f"event {one.forked_from.session_seq} of {one.forked_from.session_id}"
        origin = make_link(ask.link("sessions", one.forked_from.session_id), at)
    facts = [
        ("Id", make_code(one.id)),
        ("State", make_badge(one.state)),
        ("Owner", one.owner or "owner"),
        ("Directory", make_code(one.directory)),
        ("Begun", format_ago(one.time_created)),
        ("Used", format_ago(one.time_updated)),
        ("Tokens", format_count(one.total_tokens)),
        ("Cost", format_money(one.total_cost)),
        ("Forked from", origin),
        ("Summary", one.summary),
        ("Rules", [make_code(f"{r.permission} {r.pattern} {r.action}") for r in one.permission]),
    ]
    rows = [
        ListRow(
            cells=(
                make_link(ask.link("runs", run.id), run.agent or "call", run.id),
                make_badge(run.status),
                format_ago(run.time_queued),
            )
        )
        for run in begun
    ]
    word = "restore" if one.state == "archived" else "archive"
    action = FormAction(
        label="Restore" if word == "restore" else "Archive",
        address=ask.link("sessions", one.id, word),
        scope="sessions:write",
    )
    talk = Markup('<p><a class="button main" href="{}">Open in Chat</a></p>').format(
        ask.link("chat", one.id)
    )
    return show_listing(
        ask,
        PageListing(
            title=one.title or one.slug,
            blocks=[("", make_facts(facts) + talk)],
            columns=("Run", "Status", "Begun"),
            rows=rows,
            empty="No run in it",
            forms=[("Put it away" if word == "archive" else "Bring it back", action)],
            place="sessions",
        ),
    )


async def _archive(ask: Ask) -> Shown:
    await ask.perform(sessions.archive, ask.words["session_id"], reason="dashboard")
    return GoTo(ask.link("sessions", ask.words["session_id"]), "archived")


async def _restore(ask: Ask) -> Shown:
    await ask.perform(sessions.restore, ask.words["session_id"], reason="dashboard")
    return GoTo(ask.link("sessions", ask.words["session_id"]), "restored")


async def _list_memories(ask: Ask) -> Shown:
    words = ask.query.get("q", "").strip()
    if words:
        found = await ask.perform(memory.search, "", words, 30, across_sessions=True)
    else:
        found = await ask.perform(memory.list_, across_sessions=True, limit=50)
    rows = []
    for one in found:
        score: Any = ""
        if words:
            parts = one.parts
            names = type(parts).__struct_fields__ if parts is not None else ()
            why = ", ".join(
                f"{name.replace('_', ' ')} {getattr(parts, name):.2f}"
                for name in names
                if isinstance(getattr(parts, name), float) and getattr(parts, name)
            )
            score = make_lines(f"{one.relevance_score:.2f}", why)
        actions = (
            FormAction(
                label="Supersede",
                address=ask.link("memory", one.id, "supersede"),
                scope="memory:write",
                fields=[FormField(name="content", label="What is true now", is_required=True)],
            ),
            FormAction(
                label="Forget",
                address=ask.link("memory", one.id, "forget"),
                scope="memory:write",
                confirm="Forget this for good, bytes included?",
                is_danger=True,
            ),
        )
        rows.append(
            ListRow(
                cells=(
                    make_lines(cut_text(one.content, 600), f"{one.scope} · {one.kind}"),
                    score,
                    format_ago(one.created),
                ),
                actions=actions,
            )
        )
    return show_listing(
        ask,
        PageListing(
            title="Memory",
            about="What agents remember. A search says what each part gave to the ranking.",
            filters=[FormField(name="q", label="Search by meaning and words", value=words)],
            columns=("Memory", "Score", "Stored"),
            rows=rows,
            empty="Nothing found" if words else "Nothing is remembered yet",
            next_step="Agents store memories with a tool, people with `holdfast memory`.",
        ),
    )


async def _supersede(ask: Ask) -> Shown:
    words = ask.form.get("content", "").strip()
    if not words:
        raise UsageError(detail="Say what is true now.")
    await ask.perform(memory.update, ask.words["memory_id"], words)
    return GoTo(ask.link("memory"), "superseded")


async def _forget(ask: Ask) -> Shown:
    await ask.perform(memory.forget, [ask.words["memory_id"]], reason="dashboard")
    return GoTo(ask.link("memory"), "forgotten")


async def _list_artifacts(ask: Ask) -> Shown:
    page = await ask.perform(artifacts.list_, cursor=ask.query.get("cursor", ""))
    rows = [
        ListRow(
            cells=(
                make_link(ask.link("artifacts", one.id), one.name, one.id),
                one.media_type,
                format_bytes(one.size),
                one.scope,
                str(one.version),
                format_ago(one.time),
            )
        )
        for one in page.items
    ]
    return show_listing(
        ask,
        PageListing(
            title="Artifacts",
            about="Files that runs made or were given; each version is kept.",
            columns=("Name", "Type", "Size", "Scope", "Version", "Saved"),
            rows=rows,
            empty="No file yet",
            next_step="Drop a file into a chat, or let a tool save one.",
            older=ask.link("artifacts", cursor=page.next_cursor) if page.next_cursor else "",
        ),
    )


async def _show_artifact(ask: Ask) -> Shown:
    one = await ask.perform(artifacts.get, ask.words["artifact_id"])
    address = ask.link("artifacts", one.id, "content")
    blocks: list[tuple[str, Any]] = []
    if one.media_type in _PICTURES and one.size <= _LARGEST_PICTURE:
        picture = Markup('<img class="preview" alt="{}" src="{}">').format(one.name, address)
        blocks.append(("Preview", picture))
    elif one.media_type.startswith("text/") or one.media_type == "application/json":
        if one.size <= _LONGEST_PREVIEW:
            data = await ask.perform(artifacts.load, one.id)
            blocks.append(("Preview", make_pre(data.decode(errors="replace"))))
    facts = [
        ("Type", one.media_type),
        ("Size", format_bytes(one.size)),
        ("Digest", make_code(one.digest)),
        ("Version", str(one.version)),
        ("Scope", one.scope),
        ("Run", make_link(ask.link("runs", one.run_id), one.run_id) if one.run_id else ""),
        ("Saved", format_ago(one.time)),
    ]
    save = Markup('<p><a class="button" href="{}?save=1" download>Download</a></p>').format(address)
    blocks.append(("About it", make_facts(facts) + save))
    return show_listing(ask, PageListing(title=one.name, blocks=blocks, place="artifacts"))


async def _load_artifact(ask: Ask) -> Shown:
    """Return the bytes; only pictures are shown, all else is saved by the browser."""
    assert ask.send is not None
    one = await ask.perform(artifacts.get, ask.words["artifact_id"])
    name = "".join([c if c.isalnum() and c.isascii() or c in "-_. " else "_" for c in one.name])
    if one.media_type in _PICTURES and one.size <= _LARGEST_PICTURE and "save" not in ask.query:
        data = await ask.perform(artifacts.load, one.id)
        headers = (("content-disposition", f'inline; filename="{name}"'),)
        return ServerResponse(200, data, one.media_type, headers)
    told = [(b"content-disposition", f'attachment; filename="{name}"'.encode())]
    told += [(key.encode(), value.encode()) for key, value in PAGE_HEADERS]
    pieces = ask.stream(artifacts.stream, one.id)
    async with contextlib.aclosing(pieces):
        kind = "application/octet-stream"
        await send_download(pieces, ask.request, ask.send, headers=told, media_type=kind)
    return Streamed()


async def _list_state(ask: Ask) -> Shown:
    prefix = ask.query.get("prefix", "user/")
    page = await ask.perform(state.list_, prefix, cursor=ask.query.get("cursor", ""))
    rows = [
        ListRow(
            cells=(
                make_code(one.address),
                make_code(one.value),
                str(one.version),
                ", ".join(one.labels),
                format_ago(one.time_updated),
            )
        )
        for one in page.entries
    ]
    return show_listing(
        ask,
        PageListing(
            title="State",
            about="Values that agents keep between runs, by scope.",
            filters=[FormField(name="prefix", label="Prefix, such as user/", value=prefix)],
            columns=("Address", "Value", "Version", "Labels", "Changed"),
            rows=rows,
            empty="No value below this prefix",
            next_step="Agents keep values with tools; people with `holdfast state set`.",
            older=ask.link("state", prefix=prefix, cursor=page.cursor) if page.cursor else "",
        ),
    )


def add_to(routes: Routes) -> None:
    """Put the pages at their addresses."""
    routes.add("GET", "sessions", _list_sessions)
    routes.add("GET", "sessions/{session_id}", _show_session)
    routes.add("POST", "sessions/{session_id}/archive", _archive)
    routes.add("POST", "sessions/{session_id}/restore", _restore)
    routes.add("GET", "memory", _list_memories)
    routes.add("POST", "memory/{memory_id}/supersede", _supersede)
    routes.add("POST", "memory/{memory_id}/forget", _forget)
    routes.add("GET", "artifacts", _list_artifacts)
    routes.add("GET", "artifacts/{artifact_id}", _show_artifact)
    routes.add("GET", "artifacts/{artifact_id}/content", _load_artifact)
    routes.add("GET", "state", _list_state)


__all__ = ["add_to"]
