"""`holdfast audit`: prove that the records were not changed."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client
from holdfast.errors import InvalidImport

_MOST_BYTES = 256 * 1024 * 1024
"""Of heads: those of a million sessions."""


@click.group("audit", cls=Group)
def command() -> None:
    """Prove that the records were not changed."""


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
    """Check the hash chain of every session, or of one.

    Ends with 1 if anything was edited, removed or reordered. Without --heads, and without the
    setting audit.anchor, a chain that was cut at its end, or rewritten as a whole, cannot be told
    from a sound one.
    """
    heads = _read(heads_file) if heads_file else None
    checked: list[int] = []
    with open_client(invocation) as client:
        findings = client.audit.verify(
            session_id=session,
            heads=heads,
            progress=lambda _session_id, events: checked.append(events),
        )
    rows = [
        {"session": found.session_id, "event": found.session_seq, "problem": found.problem}
        for found in findings
    ]
    if not invocation.is_text:
        emit({"ok": not rows, "sessions": len(checked), "events": sum(checked), "findings": rows})
    elif rows:
        emit(rows, columns=("session", "event", "problem"))
    if rows:
        say(f"{len(rows)} problems found. Keep the file as evidence.", err=True)
        sys.exit(1)
    say(f"All is well: {sum(checked)} events in {len(checked)} chains.")


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
