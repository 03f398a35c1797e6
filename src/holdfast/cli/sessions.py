"""`holdfast sessions`: look at conversations, and move them around."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.times import format_age
from holdfast.errors import UsageError
from holdfast.messages import Message, TextPart, ToolPart
from holdfast.sessions import STATES, PermissionRule, Session, SessionFilter
from holdfast.sync import Client

_SHORT = 60
_COLUMNS = ("id", "title", "state", "messages", "used")


@click.group("sessions", cls=Group)
def command() -> None:
    """List, show, export, fork or remove sessions."""


def open_client(invocation: Invocation) -> Client:
    """Return a client on the state directory of this call."""
    return Client(invocation.place, settings=invocation.settings)


@command.command("list")
@click.option("--state", type=click.Choice(STATES), help="Only sessions in this state.")
@click.option("--project", metavar="ID", help="Only sessions of this project.")
@click.option("--directory", metavar="DIR", help="Only sessions of this directory.")
@click.option("--title", metavar="TEXT", help="Only sessions whose title contains this.")
@click.option(
    "--sort",
    type=click.Choice(["time_updated", "time_created", "title", "message_count", "total_cost"]),
    default="time_updated",
    show_default=True,
    help="What to order by.",
)
@click.option("--ascending", is_flag=True, help="Smallest or oldest first.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--all", "is_nested", is_flag=True, help="Also sessions inside of others.")
@click.option("--cursor", default="", metavar="CURSOR", help="Continue an earlier listing.")
@pass_invocation
def list_(  # noqa: PLR0913 - one argument per option
    invocation: Invocation,
    state: str | None,
    project: str | None,
    directory: str | None,
    title: str | None,
    sort: str,
    ascending: bool,
    limit: int,
    is_nested: bool,
    cursor: str,
) -> None:
    """List sessions, most recently used first.

    Sessions that runs began for their own children are left out; --all lists them too. With
    --json the result is a list, as of every list command; where there is more, stderr has
    {"next_cursor": "..."} for --cursor.
    """
    where = SessionFilter(
        state=state,  # type: ignore[arg-type] # click has checked it
        project_id=project,
        directory=str(Path(directory).absolute()) if directory else None,
        title_contains=title,
        parent_id=None if is_nested else "",
    )
    with open_client(invocation) as client:
        page = client.list_sessions(
            where,
            sort=sort,  # type: ignore[arg-type] # click has checked it
            descending=not ascending,
            limit=limit,
            cursor=cursor,
        )
    rows = [_make_row(session) for session in page.items]
    if invocation.is_text and not rows:
        say("There are no sessions yet.")
    else:
        shown = [
            {**row, "used": format_age(one.time_updated)}
            for row, one in zip(rows, page.items, strict=True)
        ]
        emit(shown if invocation.is_text else rows, columns=_COLUMNS)
    if page.next_cursor and invocation.is_text:
        say(f"More: add --cursor {page.next_cursor}", err=True)
    elif page.next_cursor:
        click.echo(msgspec.json.encode({"next_cursor": page.next_cursor}), err=True)


@command.command("show")
@click.argument("session", required=False)
@click.option("--events", is_flag=True, help="Show the events of the log, not the conversation.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@pass_invocation
def show(invocation: Invocation, session: str | None, events: bool, limit: int) -> None:
    """Show SESSION, by default the last, and its newest messages.

    SESSION is an id or a slug.
    """
    with open_client(invocation) as client:
        found = client.get_session(session) if session else _find_last(client)
        if events:
            last = max(0, client.events.count(found.id) - limit)
            rows = [
                {
                    "n": event.session_seq,
                    "time": _format_when(event.time),
                    "kind": event.kind,
                    "run": event.run_id,
                    "payload": msgspec.json.decode(event.payload) if event.payload else None,
                }
                for event in client.events.list(found.id, after=last, limit=limit)
            ]
            emit(rows, columns=("n", "time", "kind", "run"))
            return
        page = client.list_messages(found.id, limit=limit, newest_first=True)
    messages = list(reversed(page.items))
    if not invocation.is_text:
        emit({**msgspec.to_builtins(found), "messages": msgspec.to_builtins(messages)})
        return
    emit({**_make_row(found), "directory": found.directory, "cost": f"${found.total_cost:.4f}"})
    for message in messages:
        say(f"\n[{message.role}] {_format_when(message.time_created)}\n{_render(message)}")


def _find_last(client: Client) -> Session:
    """Return the session that was used last, of all folders."""
    found = client.sessions.most_recent(SessionFilter(parent_id=""))
    if found is None:
        raise UsageError(detail="There are no sessions yet: `holdfast chat` begins one.")
    return found


@command.command("export")
@click.argument("session")
@click.option(
    "--to",
    "target",
    metavar="FILE",
    help="File to write; by default <slug>.jsonl here; `-` is standard output.",
)
@pass_invocation
def export(invocation: Invocation, session: str, target: str | None) -> None:
    """Write a whole session to one file, without loss.

    `holdfast sessions import` reads it, here or on another machine.
    """
    with open_client(invocation) as client:
        found = client.get_session(session)
        if target == "-":
            for line in client.sessions.lines(found.id):
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            return
        path = Path(target or f"{found.slug}.jsonl")
        count = client.sessions.export(found.id, path)
    if invocation.is_text:
        say(f"Wrote {count} events to {path}.")
    else:
        emit({"session_id": found.id, "file": str(path), "events": count})


@command.command("import")
@click.argument("file", metavar="FILE")
@click.option("--as-new", is_flag=True, help="Give the session a new id.")
@click.option("--trust-rules", is_flag=True, help="Let the rules that it brings hold here.")
@pass_invocation
def import_(invocation: Invocation, file: str, as_new: bool, trust_rules: bool) -> None:
    """Bring in an exported session; `-` reads standard input.

    The whole file is checked first: a damaged or changed one is refused. Rules that allow
    something are inert here until you trust them, now or with `holdfast sessions trust`.
    """
    with open_client(invocation) as client:
        source = sys.stdin.buffer if file == "-" else file
        session = client.sessions.load(source, as_new=as_new, trusts_rules=trust_rules)
    _tell(invocation, session, f"Imported {session.id} ({session.title}).")
    inert = session.metadata.get("imported_rules")
    if isinstance(inert, list) and invocation.is_text:
        told = f"{len(inert)} of its rules allow something and are inert"
        say(f"{told}; `holdfast sessions trust {session.id}` shows them and lets them hold.")


@command.command("trust")
@click.argument("session")
@pass_invocation
def trust(invocation: Invocation, session: str) -> None:
    """Let the rules hold that an imported session brought; they are shown."""
    with open_client(invocation) as client:
        found = client.get_session(session)
        inert = msgspec.convert(found.metadata.get("imported_rules", []), list[PermissionRule])
        client.sessions.update(
            found.id,
            permission=[*inert, *found.permission] if inert else None,
            metadata={"imported_rules": None},
        )
    rows = [msgspec.to_builtins(rule) for rule in inert]
    if invocation.is_text and not rows:
        say("Nothing to do: no rule of this session is inert.")
    else:
        emit(rows, columns=["permission", "pattern", "action"])


@command.command("fork")
@click.argument("session")
@click.option("--at", type=click.IntRange(1), metavar="N", help="Last event to take over.")
@click.option("--title", default="", help="Title of the new session.")
@pass_invocation
def fork(invocation: Invocation, session: str, at: int | None, title: str) -> None:
    """Begin a new session from an old one, up to any event.

    `holdfast sessions show SESSION --events` shows the numbers.
    """
    with open_client(invocation) as client:
        forked = client.fork_session(session, at=at, title=title)
    _tell(invocation, forked, f"Forked to {forked.id} ({forked.message_count} messages).")


@command.command("revert")
@click.argument("session")
@click.option("--to", type=click.IntRange(1), required=True, metavar="N", help="Event to go to.")
@pass_invocation
def revert(invocation: Invocation, session: str, to: int) -> None:
    """Take everything after an event out of the conversation.

    The log keeps it: `fork --at` still reaches what was reverted.
    """
    with open_client(invocation) as client:
        reverted = client.revert_session(session, to=to)
    count = reverted.message_count
    _tell(invocation, reverted, f"{reverted.id} now has {count} messages.")


@command.command("undo")
@click.argument("session")
@click.option("--to", type=click.IntRange(1), metavar="N", help="Event to go to.")
@pass_invocation
def undo(invocation: Invocation, session: str, to: int | None) -> None:
    """Take back the last message of a session, or all after an event: files included.

    Files that calls changed since have again what they had, where nothing is lost by it; what
    commands did stays. The log keeps all of it.
    """
    with open_client(invocation) as client:
        done = client.sessions.undo(session, to=to)
    if not invocation.is_text:
        emit(msgspec.to_builtins(done))
        return
    say(f"Taken back: {' '.join(done.message.split())[:_SHORT]}")
    for path in done.restored:
        say(f"  restored {path}")
    for path, why in done.left.items():
        say(f"  left as it is: {path}: {why}", err=True)


@command.command("archive")
@click.argument("session")
@click.option("--reason", default="", help="Why, for the log.")
@pass_invocation
def archive(invocation: Invocation, session: str, reason: str) -> None:
    """Put a session away; `restore` brings it back."""
    with open_client(invocation) as client:
        archived = client.archive_session(session, reason=reason)
    _tell(invocation, archived, f"Archived {archived.id}.")


@command.command("restore")
@click.argument("session")
@click.option("--reason", default="", help="Why, for the log.")
@pass_invocation
def restore(invocation: Invocation, session: str, reason: str) -> None:
    """Make a session active again."""
    with open_client(invocation) as client:
        restored = client.restore_session(session, reason=reason)
    _tell(invocation, restored, f"Restored {restored.id}.")


@command.command("delete")
@click.argument("session")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--reason", default="", help="Why, for the log.")
@pass_invocation
def delete(invocation: Invocation, session: str, yes: bool, reason: str) -> None:
    """Remove a session for good; only the fact that it existed remains."""
    with open_client(invocation) as client:
        found = client.get_session(session)
        if not yes:
            if not sys.stdin.isatty():
                raise UsageError(detail="No approver is here to ask; add --yes to delete for good.")
            question = f"Delete {found.id} ({found.title}, {found.message_count} messages)?"
            click.confirm(question, abort=True)
        client.delete_session(found.id, reason=reason)
    _tell(invocation, found, f"Deleted {found.id}.")


@command.command("watch")
@click.argument("session", required=False)
@click.option("--since", type=click.IntRange(0), metavar="SEQ", help="Begin after this number.")
@click.option("--kind", "kinds", multiple=True, metavar="PATTERN", help="Such as message.* ")
@pass_invocation
def watch(
    invocation: Invocation, session: str | None, since: int | None, kinds: tuple[str, ...]
) -> None:
    """Print events while they happen, here or in another process; end with Ctrl-C."""
    with open_client(invocation) as client:
        name = client.get_session(session).id if session else ""
        for event in client.events.watch(after=since, patterns=kinds or ("*",), session_id=name):
            if invocation.is_text:
                say(f"{event.seq:>6}  {_format_when(event.time)}  {event.session_id}  {event.kind}")
                continue
            line = {
                "seq": event.seq,
                "session_id": event.session_id,
                "session_seq": event.session_seq,
                "time": event.time,
                "kind": event.kind,
                "run_id": event.run_id,
                "payload": msgspec.json.decode(event.payload) if event.payload else None,
            }
            click.echo(msgspec.json.encode(line))


def _tell(invocation: Invocation, session: Session, sentence: str) -> None:
    if invocation.is_text:
        say(sentence)
    else:
        emit(_make_row(session))


def _make_row(session: Session) -> dict[str, object]:
    return {
        "id": session.id,
        "slug": session.slug,
        "title": session.title,
        "state": session.state,
        "messages": session.message_count,
        "cost_usd": session.total_cost,
        "created": _format_when(session.time_created),
        "updated": _format_when(session.time_updated),
        "used": format_age(session.time_updated),
    }


def _format_when(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(sep=" ", timespec="seconds")


def _render(message: Message) -> str:
    lines = []
    for part in message.parts:
        if isinstance(part, TextPart):
            lines.append(part.text)
        elif isinstance(part, ToolPart):
            outcome = part.output or part.error or msgspec.json.encode(part.input).decode()
            lines.append(f"  {part.tool} ({part.state}): {outcome[:_SHORT]}")
        else:
            lines.append(f"  <{type(part).__name__}>")
    return "\n".join(lines)
