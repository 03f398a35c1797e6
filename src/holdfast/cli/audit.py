"""`holdfast audit`: what was done and by whom, and proof that the records were not changed."""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client
from holdfast.errors import InvalidImport, StorageDamaged, StorageReadOnly
from holdfast.observability import AuditEntry
from holdfast.private_files import open_whole_file
from holdfast.runtime import TrailFinding
from holdfast.sync import Client

_MOST_BYTES = 256 * 1024 * 1024
"""Of heads: those of a million sessions."""
_LOOK_S = 1.0


@click.group("audit", cls=Group)
def command() -> None:
    """Show what was done and by whom; prove that the records were not changed."""


@command.command("verify")
@click.argument("session", required=False)
@click.option(
    "--heads",
    "heads_file",
    metavar="FILE",
    help="Heads exported earlier: also finds what was cut off, rewritten or removed.",
)
@pass_invocation
def verify(invocation: Invocation, session: str | None, heads_file: str | None) -> None:
    """Check the hash chain of every session, or of one; and the audit trail against them.

    Ends with 1 if anything was edited, removed or reordered, in the journal or in `audit/`. Without
    --heads, and without the setting audit.anchor, a chain that was cut at its end, or rewritten as
    a whole, cannot be told from a sound one.
    """
    heads = _read(heads_file) if heads_file else None
    checked: list[int] = []
    with open_client(invocation) as client:
        findings = client.audit.verify(
            session_id=session,
            heads=heads,
            progress=lambda _session_id, events: checked.append(events),
        )
        # A damaged or read-only journal cannot say what the trail should hold.
        is_whole = session is None and not findings and invocation.settings.audit.enabled
        lines = _verify_trail(client) if is_whole else []
    rows = [
        {"session": found.session_id, "event": found.session_seq, "problem": found.problem}
        for found in findings
    ]
    rows += [
        {"session": one.place or "audit", "event": one.seq, "problem": one.problem} for one in lines
    ]
    if not invocation.is_text:
        emit({"ok": not rows, "sessions": len(checked), "events": sum(checked), "findings": rows})
    elif rows:
        emit(rows, columns=("session", "event", "problem"))
    if rows:
        say(f"{len(rows)} problems found. Keep the file as evidence.", err=True)
        sys.exit(1)
    say(f"All is well: {sum(checked)} events in {len(checked)} chains.")


def _verify_trail(client: Client) -> Sequence[TrailFinding]:
    try:
        return client.audit.verify_trail()
    except StorageReadOnly:
        return []
    except StorageDamaged as error:
        return [TrailFinding(place="audit", seq=0, problem=str(error))]


C = TypeVar("C", bound=Callable[..., object])


def _add_filters(function: C) -> C:
    options = (
        click.option("--action", default="", help="Such as tool.call, mcp_invoke, policy.loaded."),
        click.option("--actor", default="", help="Subject, agent's principal, or command."),
        click.option("--run", "run_id", default="", metavar="RUN", help="Of one run."),
        click.option("--session", "session_id", default="", metavar="SESSION", help="Of one."),
        click.option("--tool", default="", help="Of one tool."),
        click.option("--after", default=0, metavar="SEQ", help="Behind this event."),
    )
    for option in reversed(options):
        function = option(function)
    return function


@command.command("list")
@_add_filters
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1, 1000))
@pass_invocation
def list_(invocation: Invocation, /, after: int, limit: int, **match: str) -> None:
    """Show what was done and by whom, oldest first: calls, consents, policies, network, keys."""
    with open_client(invocation) as client:
        entries = client.audit.list(after=after, limit=limit, **match)
    _show(invocation, entries)
    if len(entries) == limit:
        say(f"More: holdfast audit list --after {entries[-1].seq}", err=True)


@command.command("tail")
@_add_filters
@click.option("--follow", "-f", is_flag=True, help="Go on until interrupted.")
@click.option("-n", "count", default=20, show_default=True, help="Lines to begin with.")
@pass_invocation
def tail(invocation: Invocation, /, after: int, follow: bool, count: int, **match: str) -> None:
    """Show the newest lines, and with --follow those that come."""
    with open_client(invocation) as client:
        last: deque[AuditEntry] = deque(_iterate(client, after, match), maxlen=max(count, 1))
        _show(invocation, last)
        place = last[-1].seq if last else after
        pause = threading.Event()
        while follow:
            found = list(_iterate(client, place, match))
            _show(invocation, found)
            place = found[-1].seq if found else place
            pause.wait(_LOOK_S)


@command.command("export")
@_add_filters
@click.option("--to", "target", metavar="FILE", help="File to write; standard output if none.")
@pass_invocation
def export(invocation: Invocation, /, after: int, target: str | None, **match: str) -> None:
    """Write lines as JSON, one each, for whatever reads audit trails."""
    with open_client(invocation) as client:
        lines = (msgspec.json.encode(one) + b"\n" for one in _iterate(client, after, match))
        if target is None:
            for line in lines:
                click.echo(line, nl=False)
            return
        with open_whole_file(Path(target)) as file:
            count = 0
            for line in lines:
                file.write(line)
                count += 1
    say(f"Wrote {count} lines to {target}.")


def _iterate(client: Client, after: int, match: Mapping[str, str]) -> Iterator[AuditEntry]:
    while page := client.audit.list(after=after, limit=1000, **match):
        yield from page
        after = page[-1].seq


def _show(invocation: Invocation, entries: Iterable[AuditEntry]) -> None:
    rows = [msgspec.to_builtins(entry) for entry in entries]
    if not invocation.is_text or rows:
        emit(rows, columns=("time", "seq", "action", "actor", "agent", "tool", "outcome"))


@command.command("head")
@click.option("--to", "target", metavar="FILE", help="File to write; standard output if none.")
@pass_invocation
def head(invocation: Invocation, target: str | None) -> None:
    """Export the end of every chain, to be kept elsewhere.

    The person who can write the records can rewrite a whole chain; a head that lies where they
    cannot write proves what was there: `holdfast audit verify --heads FILE`.
    """
    with open_client(invocation) as client:
        data = client.audit.heads()
    if target is None:
        click.echo(data.decode(), nl=False)
        return
    Path(target).write_bytes(data)
    say(f"Wrote the heads to {target}. Keep them where the journal's owner cannot write.")


@command.command("anchor")
@pass_invocation
def anchor(invocation: Invocation) -> None:
    """Anchor now: write the ends of all chains to where audit.anchor says.

    It happens by itself after each run, or as often as audit.anchor_interval_s says. `holdfast
    audit verify` compares with all anchors, and names what was rolled back or rewritten.
    """
    with open_client(invocation) as client:
        report = client.audit.anchor()
    if not invocation.is_text:
        emit({"seq": report.seq, "sessions": report.sessions})
    else:
        say(f"Anchored up to event {report.seq}: {report.sessions} sessions have grown.")


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InvalidImport(detail=f"{path}: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise InvalidImport(detail=f"{path}: it is too large for heads")
    return data
