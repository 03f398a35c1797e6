"""`holdfast state`: look at what agents keep between runs, and change it."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

import click
import msgspec

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client
from holdfast.errors import NotFound, UsageError
from holdfast.state import STRATEGIES, StateChange, StateEntry


@click.group("state", cls=Group)
def command() -> None:
    """Read, set, list or watch what agents keep between runs.

    A value has an address: SCOPE/KEY, such as user/language, or SCOPE:ID/KEY, such as
    agent:critic/notes and session:ID/todos. Scopes are global, user, project, session, agent,
    tool, workflow, run and custom.
    """


@command.command("get")
@click.argument("address", metavar="ADDRESS")
@pass_invocation
def get(invocation: Invocation, address: str) -> None:
    """Print a value; with --json also its version, labels and times."""
    with open_client(invocation) as client:
        entry = client.state.entry(address)
    if entry is None:
        raise NotFound(kind="state value", value=address)
    if invocation.is_text:
        say(_write_value(entry.value))
    else:
        emit(msgspec.to_builtins(entry))


@command.command("set")
@click.argument("address", metavar="ADDRESS")
@click.argument("value", metavar="VALUE")
@click.option("--text", is_flag=True, help="Take VALUE as a text, even if it is JSON.")
@click.option(
    "--expected",
    type=click.IntRange(0),
    metavar="VERSION",
    help="Only if it is at this version; 0 if it must not exist.",
)
@click.option(
    "--on-conflict",
    type=click.Choice(STRATEGIES),
    default="ask-again",
    show_default=True,
    help="What to do if it is at another version.",
)
@click.option("--ttl", type=click.FloatRange(0, min_open=True), metavar="SECONDS")
@click.option(
    "--label",
    "labels",
    multiple=True,
    type=click.Choice(["untrusted", "private"]),
    help="Who may have written it, or must not learn it; may be repeated.",
)
@pass_invocation
def set_(
    invocation: Invocation,
    address: str,
    value: str,
    text: bool,
    expected: int | None,
    on_conflict: str,
    ttl: float | None,
    labels: tuple[str, ...],
) -> None:
    """Set a value: JSON where it is JSON, else a text; `-` reads it from standard input."""
    given = sys.stdin.read() if value == "-" else value
    with open_client(invocation) as client:
        entry = client.state.set(
            address,
            given if text else _parse(given),
            expected=expected,
            on_conflict=on_conflict,
            ttl_s=ttl,
            labels=labels,
        )
    if invocation.is_text:
        say(f"{address} is at version {entry.version}.")
    else:
        emit(msgspec.to_builtins(entry))


@command.command("delete")
@click.argument("address", metavar="ADDRESS")
@click.option("--expected", type=click.IntRange(0), metavar="VERSION", help="Only at this version.")
@pass_invocation
def delete(invocation: Invocation, address: str, expected: int | None) -> None:
    """Remove a value; its history stays."""
    with open_client(invocation) as client:
        was_there = client.state.delete(address, expected=expected)
    if not was_there:
        raise NotFound(kind="state value", value=address)
    if invocation.is_text:
        say(f"Removed {address}.")
    else:
        emit({"removed": address})


@command.command("list")
@click.argument("prefix", metavar="PREFIX")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option("--cursor", default="", metavar="CURSOR", help="Continue an earlier listing.")
@pass_invocation
def list_(invocation: Invocation, prefix: str, limit: int, cursor: str) -> None:
    """List values whose address begins so, such as user/ or project/build."""
    with open_client(invocation) as client:
        page = client.state.list(prefix, limit=limit, cursor=cursor)
    rows = [_make_row(entry) for entry in page.entries]
    if invocation.output == "json":
        emit({"entries": msgspec.to_builtins(page.entries), "cursor": page.cursor})
    elif rows or not invocation.is_text:
        emit(rows, columns=("key", "version", "labels", "updated", "value"))
    else:
        say("Nothing is kept there.")
    if page.cursor and invocation.is_text:
        say(f"There is more: --cursor {page.cursor}")


@command.command("watch")
@click.argument("prefix", metavar="PREFIX")
@click.option("--after", type=click.IntRange(0), metavar="SEQ", help="From this change on.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after so many changes.")
@pass_invocation
def watch(invocation: Invocation, prefix: str, after: int | None, count: int | None) -> None:
    """Print changes as they happen, in any process; Ctrl-C ends it."""
    seen = 0
    with open_client(invocation) as client:
        for change in client.state.watch(prefix, after=after):
            if invocation.is_text:
                say(_write_line(change))
            else:
                click.echo(json.dumps(msgspec.to_builtins(change)))
            sys.stdout.flush()
            seen += 1
            if seen == count:
                break


@command.command("history")
@click.argument("address", metavar="ADDRESS")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@click.option("--before", type=click.IntRange(0), default=0, metavar="NUMBER", help="Older ones.")
@pass_invocation
def history(invocation: Invocation, address: str, limit: int, before: int) -> None:
    """Show the changes of a value, newest first."""
    with open_client(invocation) as client:
        changes = client.state.history(address, limit=limit, before=before)
    if invocation.is_text and not changes:
        raise NotFound(kind="state value", value=address)
    rows = [
        {**msgspec.to_builtins(one), "time": _format_time(one.time), "value": _show_change(one)}
        if invocation.is_text
        else msgspec.to_builtins(one)
        for one in changes
    ]
    emit(rows, columns=("number", "version", "time", "cause", "agent_path", "labels", "value"))


def _make_row(entry: StateEntry) -> dict[str, object]:
    return {
        "key": entry.key,
        "version": entry.version,
        "labels": list(entry.labels),
        "updated": _format_time(entry.time_updated),
        "value": _write_value(entry.value),
    }


def _write_line(change: StateChange) -> str:
    scope = f"{change.scope}:{change.scope_id}" if change.scope_id else change.scope
    name = f"{scope}/{change.key}  v{change.version}"
    return f"{_format_time(change.time)}  {name}  {_show_change(change)}"


def _show_change(change: StateChange) -> str:
    if change.is_redacted:
        return "(removed for good)"
    return f"(removed: {change.cause})" if change.is_deleted else _write_value(change.value)


def _write_value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _format_time(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(" ", "seconds")


def _parse(text: str) -> object:
    """Return JSON, or the text itself if it is none."""
    try:
        value: object = msgspec.json.decode(text.encode())
    except UnicodeEncodeError as error:
        raise UsageError(detail="The value holds bytes that are no text.") from error
    except msgspec.DecodeError:
        return text
    return value
