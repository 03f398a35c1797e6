"""Chat: talk with an agent; its words as they come, its requests for consent between them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from holdfast.agents import AgentResult
from holdfast.clock import SYSTEM
from holdfast.errors import NotFound, RequestInvalid, UsageError
from holdfast.messages import FilePart, TextPart
from holdfast.operations import agents, artifacts, events, runs, sessions
from holdfast.server.dashboard.asks import Ask, GoTo, Shown, ShownPage
from holdfast.server.dashboard.history import read_history
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.views.approvals import read_waiting
from holdfast.server.dashboard.views.live import send_stream
from holdfast.server.http import ServerResponse
from holdfast.server.streams import OPENED, StreamEvent
from holdfast.sessions import Session

_WINDOW: Final = 300
_MOST_FILE: Final = 20_000_000
_MOST_TALKS: Final = 30
_MOST_FORKS: Final = 60


async def _begin(ask: Ask) -> Shown:
    """Show the conversations, and a place to begin another one."""
    values = {
        "session": None,
        "history": None,
        "waits": [],
        "run": None,
        "agents": await _list_agents(ask),
        "tree": await _list_talks(ask),
        "kin": [],
    }
    return ShownPage("chat.html", values)


async def _show(ask: Ask) -> Shown:
    session = await ask.perform(sessions.get, ask.words["session_id"])
    last = await ask.perform(events.count, session.id)
    found = await ask.perform(events.list_, session.id, after=max(0, last - _WINDOW), limit=_WINDOW)
    under_way = None
    if ask.may("runs:read"):
        page = await ask.perform(runs.find, session_id=session.id, limit=1)
        under_way = next((run for run in page.items if not run.has_ended), None)
    waits = await read_waiting(ask, session.id) if ask.may("approvals:read") else []
    values: dict[str, Any] = {
        "session": session,
        "history": read_history(found, now=SYSTEM.now()),
        "waits": waits,
        "run": under_way,
        "agents": await _list_agents(ask),
        "kin": await _grow_tree(ask, session),
        "live": f"topic=all&session={session.id}",
        "place": "chat",
    }
    return ShownPage("chat.html", values)


async def _list_talks(ask: Ask) -> list[Session]:
    """Return the newest conversations, without those that runs began by themselves."""
    newest = (await ask.perform(sessions.list_, limit=100)).items
    return [one for one in newest if not one.parent_id][:_MOST_TALKS]


async def _list_agents(ask: Ask) -> list[str]:
    if not ask.may("agents:read"):
        return []
    return [one.name for one in await ask.perform(agents.list_)]


class TreeLine(msgspec.Struct, frozen=True):
    """A session in the tree of what was forked from what, and how deep it stands."""

    session: Session
    depth: int


async def _grow_tree(ask: Ask, session: Session) -> list[TreeLine]:
    """Return the first of all that a session comes from, and every fork below it, in order."""
    newest = (await ask.perform(sessions.list_, limit=100)).items
    known = {one.id: one for one in (*newest, session)}
    root = session
    for _ in range(_MOST_FORKS):
        if root.forked_from is None:
            break
        try:
            origin = root.forked_from.session_id
            if origin not in known:
                known[origin] = await ask.perform(sessions.get, origin)
            root = known[origin]
        except NotFound:
            break  # it was removed, or may not be read
    forks: dict[str, list[Session]] = {}
    for one in sorted(known.values(), key=lambda each: each.time_created):
        if one.forked_from is not None:
            forks.setdefault(one.forked_from.session_id, []).append(one)
    lines: list[TreeLine] = []
    waiting = [TreeLine(root, 0)]
    while waiting and len(lines) < _MOST_FORKS:
        line = waiting.pop()
        lines.append(line)
        below = forks.get(line.session.id, [])
        waiting += [TreeLine(one, min(line.depth + 1, 8)) for one in reversed(below)]
    return lines


async def _say(ask: Ask) -> Shown:
    """Send a message; a run that is under way reads it before its next step."""
    words = ask.form.get("message", "").strip()
    kept = [value for name, value in ask.fields if name == "file" and value]
    if not words and not kept:
        raise UsageError(detail="Say something, or drop a file.")
    session_id = ask.words.get("session_id", "")
    content: str | list[TextPart | FilePart] = words
    if kept:
        parts: list[TextPart | FilePart] = [TextPart(text=words)] if words else []
        for artifact_id in kept[:20]:
            one = await ask.perform(artifacts.get, artifact_id)
            data = await ask.perform(artifacts.load, one.id)
            parts.append(FilePart(media_type=one.media_type, name=one.name, data=data))
        content = parts
    run = await ask.perform(
        runs.start,
        ask.form.get("agent", ""),
        session_id,
        content,
        on_ask="park",
        on_busy="steer" if isinstance(content, str) else "queue",
    )
    return GoTo(ask.link("chat", run.session_id))


async def _interrupt(ask: Ask) -> Shown:
    session_id = ask.words["session_id"]
    page = await ask.perform(runs.find, session_id=session_id, limit=5)
    for run in page.items:
        if not run.has_ended:
            await ask.perform(runs.cancel, run.id, reason="interrupted in the dashboard")
    return GoTo(ask.link("chat", session_id), "cancelled")


async def _fork(ask: Ask) -> Shown:
    at = ask.form.get("at", "")
    copy = await ask.perform(
        sessions.fork,
        ask.words["session_id"],
        at=int(at) if at.isdigit() and len(at) < 16 else None,
    )
    return GoTo(ask.link("chat", copy.id), "forked")


async def _follow(ask: Ask) -> Shown:
    """Stream the pieces of the answer that is being written, as text."""
    run = await ask.perform(runs.get, ask.words["run_id"])
    items = ask.stream(runs.follow, run.id, raise_on_failure=False)
    return await send_stream(ask, _read_pieces(items))


async def _read_pieces(items: AsyncGenerator[Any, None]) -> AsyncGenerator[StreamEvent, None]:
    async with contextlib.aclosing(items):
        yield StreamEvent(OPENED, b"{}")
        async for item in items:
            if isinstance(item, AgentResult):
                yield StreamEvent("end", b"{}")
                return
            text = getattr(item, "text", None)
            if type(item).__name__.startswith("TextDelta") and isinstance(text, str):
                yield StreamEvent("piece", msgspec.json.encode({"text": text}))
            elif not isinstance(text, str):
                yield StreamEvent("whole", b"{}")


async def _upload(ask: Ask) -> Shown:
    """Keep a dropped file; the message that is sent next names it."""
    assert ask.app is not None
    ask.caller.check("artifacts:write")  # before its bytes are read
    if ask.fields:
        raise RequestInvalid(detail="The body is the file itself, not a form.")
    data = await ask.request.read_body(
        limit=min(_MOST_FILE, ask.app.options.max_upload_bytes),
        timeout_s=ask.app.options.body_timeout_s,
    )
    name = ask.query.get("name", "").strip()[:200] or "file"
    made = await ask.perform(artifacts.save, name, data)
    return ServerResponse(201, msgspec.json.encode({"id": made.id, "name": made.name}))


def add_to(routes: Routes) -> None:
    """Put the pages at their addresses."""
    routes.add("GET", "chat", _begin)
    routes.add("POST", "chat", _say)
    routes.add("POST", "chat-files", _upload)
    routes.add("GET", "chat-pieces/{run_id}", _follow)
    routes.add("GET", "chat/{session_id}", _show)
    routes.add("POST", "chat/{session_id}", _say)
    routes.add("POST", "chat/{session_id}/interrupt", _interrupt)
    routes.add("POST", "chat/{session_id}/fork", _fork)


__all__ = ["add_to"]
