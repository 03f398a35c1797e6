"""`holdfast memory`: look at what is remembered, and forget it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client
from holdfast.errors import FileError, UsageError
from holdfast.memory import READY, SCOPES, MemoryEntry, MemoryOptions
from holdfast.runtime import write_whole

_SCALAR: msgspec.json.Decoder[str | int | float | bool | None] = msgspec.json.Decoder(
    str | int | float | bool | None
)
_session = click.option("--session", default="", metavar="ID", help="The session it belongs to.")
_everywhere = click.option(
    "--everywhere",
    is_flag=True,
    help="Look at all sessions, and at what is kept for the user and for everyone.",
)
_filters = click.option(
    "--where",
    "filters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only memories with this type, speaker, scope, pinned, since, until, or metadata (3 and "
    "true are no texts, '\"3\"' is one); may be repeated.",
)


@click.group("memory", cls=Group)
def command() -> None:
    """Store, search, show or forget memories."""


@command.command("add")
@click.argument("content")
@_session
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    help="Who finds it.  [default: session if one is given, else the project in this folder]",
)
@click.option("--type", "kind", default="", metavar="NAME", help="Such as fact or preference.")
@click.option("--speaker", default="", metavar="NAME", help="Who said it.")
@click.option("--importance", type=click.FloatRange(0, 1), default=0.5, show_default=True)
@click.option("--ttl", type=click.FloatRange(0, min_open=True), metavar="SECONDS")
@click.option("--pin", is_flag=True, help="Never remove it by retention.")
@pass_invocation
def add(  # noqa: PLR0913 - one argument per option
    invocation: Invocation,
    content: str,
    session: str,
    scope: str | None,
    kind: str,
    speaker: str,
    importance: float,
    ttl: float | None,
    pin: bool,
) -> None:
    """Store a memory; `-` reads it from standard input."""
    text = sys.stdin.read() if content == "-" else content
    options = MemoryOptions(
        scope=scope or ("session" if session else "project"),  # type: ignore[arg-type]
        kind=kind,
        speaker=speaker,
        importance=importance,
        ttl_s=ttl,
        is_pinned=pin,
    )
    with open_client(invocation) as client:
        memory_id = client.store_memory(session, text, options=options)
    if invocation.is_text:
        say(f"Stored {memory_id}.")
    else:
        emit({"id": memory_id})


@command.command("search")
@click.argument("query")
@_session
@_everywhere
@_filters
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--as-of", metavar="TIME", help="What was true then, such as 2026-03-01.")
@click.option("--explain", is_flag=True, help="Show what each part gave to the score.")
@pass_invocation
def search(
    invocation: Invocation,
    query: str,
    session: str,
    everywhere: bool,
    filters: tuple[str, ...],
    limit: int,
    as_of: str | None,
    explain: bool,
) -> None:
    """Find memories by words and by meaning, best first.

    Looks at the project in this folder, and at a session if one is named; `--where scope=user`
    looks at what is kept for the user instead, `--everywhere` at everything.
    """
    where = _parse(filters)
    if as_of is not None:
        where["as_of"] = _parse_time(as_of)
    with open_client(invocation) as client:
        found = client.search_memory(
            session,
            query,
            limit,
            where,
            across_sessions=everywhere,
            scopes=SCOPES if everywhere else (),
        )
        former = client.memory.stats().former if explain else {}
    rows = [_make_row(entry, explain=explain) for entry in found]
    parts = tuple(rows[0])[6:] if explain and rows else ()
    if rows or not invocation.is_text:
        emit(rows, columns=("score", "id", "content", *parts))
    else:
        say("Nothing was found." if everywhere else "Nothing was found here; try --everywhere.")
    for model, state in former.items():
        if invocation.is_text and state != READY:
            say(f"Older memories were looked at by their words only: {model} ({state}).")


@command.command("show")
@click.argument("memory_id", metavar="ID")
@click.option("--history", is_flag=True, help="Show all versions, oldest first.")
@pass_invocation
def show(invocation: Invocation, memory_id: str, history: bool) -> None:
    """Show a memory with everything that is known about it."""
    with open_client(invocation) as client:
        if history:
            versions = client.memory.history(memory_id)
            emit([msgspec.to_builtins(entry) for entry in versions], columns=("id", "content"))
            return
        emit(msgspec.to_builtins(client.memory.get(memory_id)))


@command.command("list")
@_session
@_filters
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--after", default="", metavar="ID", help="Continue after this memory.")
@pass_invocation
def list_(
    invocation: Invocation, session: str, filters: tuple[str, ...], limit: int, after: str
) -> None:
    """List memories, newest first; all of them unless a session is named."""
    with open_client(invocation) as client:
        found = client.memory.list(
            session,
            _parse(filters),
            limit=limit,
            after=after,
            across_sessions=not session,
            scopes=() if session else SCOPES,
        )
    if found or not invocation.is_text:
        emit([_make_row(entry) for entry in found], columns=("id", "type", "created", "content"))
    else:
        say("Nothing is remembered yet.")


@command.command("forget")
@click.argument("memory_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--reason", default="", help="Why, for the log.")
@pass_invocation
def forget(invocation: Invocation, memory_ids: tuple[str, ...], reason: str) -> None:
    """Remove memories for good: content, index, vectors and what was derived from them."""
    with open_client(invocation) as client:
        for memory_id in memory_ids:
            client.memory.get(memory_id)  # all of them exist, or nothing is forgotten
        gone = client.memory.forget(memory_ids, reason=reason)
    if invocation.is_text:
        say(f"Forgot {len(gone)}: {', '.join(gone)}.")
    else:
        emit({"forgotten": gone})


@command.command("stats")
@pass_invocation
def stats(invocation: Invocation) -> None:
    """Count memories, vectors and bytes."""
    with open_client(invocation) as client:
        emit(msgspec.to_builtins(client.memory.stats()))


@command.command("reindex")
@click.option("--words-only", is_flag=True, help="Leave the vectors as they are.")
@pass_invocation
def reindex(invocation: Invocation, words_only: bool) -> None:
    """Make the indexes anew from the memories."""
    with open_client(invocation) as client:
        count = client.memory.reindex(vectors=not words_only)
    if invocation.is_text:
        say(f"Indexed {count} memories.")
    else:
        emit({"memories": count})


@command.command("export")
@click.option("--to", "target", default="-", metavar="FILE", help="File to write; `-` is output.")
@click.option("--vectors", is_flag=True, help="Also vectors and tokens of the embedder.")
@_session
@pass_invocation
def export(invocation: Invocation, target: str, vectors: bool, session: str) -> None:
    """Write memories as JSON lines; `holdfast memory import` reads them."""
    with open_client(invocation) as client:
        lines = list(client.memory.lines(session, with_vectors=vectors))
    if target == "-":
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
        return
    write_whole(Path(target), b"".join(lines))
    if invocation.is_text:
        say(f"Wrote {len(lines)} memories to {target}.")
    else:
        emit({"file": target, "memories": len(lines)})


@command.command("import")
@click.argument("file", metavar="FILE")
@pass_invocation
def import_(invocation: Invocation, file: str) -> None:
    """Bring in exported memories; `-` reads standard input."""
    with open_client(invocation) as client:
        try:
            source = sys.stdin.buffer.read().splitlines() if file == "-" else file
            stored, skipped = client.memory.load(source)
        except OSError as error:
            raise FileError(path=file, detail=error.strerror or str(error)) from error
    if invocation.is_text:
        say(f"Stored {stored} memories; {skipped} were known or expired.")
    else:
        emit({"stored": stored, "skipped": skipped})


def _make_row(entry: MemoryEntry, *, explain: bool = False) -> dict[str, object]:
    row: dict[str, object] = {
        "score": round(entry.relevance_score, 3),
        "id": entry.id,
        "type": entry.kind,
        "created": datetime.fromtimestamp(entry.created, UTC).isoformat(" ", "seconds"),
        "session_id": entry.session_id,
        "content": f"{entry.speaker}: {entry.content}" if entry.speaker else entry.content,
    }
    if explain and entry.parts is not None:
        for name, value in msgspec.to_builtins(entry.parts).items():
            row[name] = round(value, 3) if isinstance(value, float) else value
    return row


def _parse(filters: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in filters:
        name, mark, value = text.partition("=")
        if not mark or not name or name[-1] in "<>!~":
            raise UsageError(detail=f"--where takes NAME=VALUE, not {text!r}.")
        if name in ("since", "until", "as_of"):
            found[name] = _parse_time(value)
        elif name in ("pinned", "include_superseded"):
            found[name] = _parse_truth(name, value)
        elif name in ("type", "speaker", "scope"):
            found[name] = value
        else:
            found[name] = _simplify(value)
    return found


def _simplify(text: str) -> str | float | bool | None:
    """Return a value of metadata as it stands in JSON; what is none there is a text."""
    try:
        return _SCALAR.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text


def _parse_truth(name: str, text: str) -> bool:
    known = {"true": True, "yes": True, "false": False, "no": False}
    if text.lower() not in known:
        raise UsageError(detail=f"{name} is true or false, not {text!r}.")
    return known[text.lower()]


def _parse_time(text: str) -> float:
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(detail=f"{text!r} is no time such as 2026-03-01T12:00.") from error
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
