"""`holdfast export`: a session, a run, or everything, as files."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client
from holdfast.errors import NotFound, UsageError
from holdfast.orchestration import LOOP_AGENT
from holdfast.sync import Client


@click.command("export", cls=CliCommand)
@click.argument("name", metavar="SESSION|RUN", required=False, default="")
@click.option("--to", "target", metavar="PATH", help="File to write, or directory with --layout.")
@click.option("--layout", is_flag=True, help="Everything, as plain JSON files for other programs.")
@pass_invocation
def command(invocation: Invocation, name: str, target: str | None, layout: bool) -> None:
    """Write a session, a run, or everything to files.

    A loop becomes run-ID.jsonl, with the sessions of its agents; `holdfast import` or
    `holdfast --resume FILE` takes it up on another machine. --layout writes copies that are
    never read back.
    """
    if layout == bool(name):
        raise UsageError(detail="Name a session or a run, or say --layout.")
    with open_client(invocation) as client:
        if layout:
            place = Path(target or "holdfast-export")
            count = client.storage.export_layout(place)
            told = {"directory": str(place), "files": count}
        else:
            place, count = _export_one(client, name, target)
            told = {"file": str(place), "lines": count}
    if invocation.is_text:
        say(f"Wrote {count} {'files below' if layout else 'lines to'} {place}.")
    else:
        emit(told)


def _export_one(client: Client, name: str, target: str | None) -> tuple[Path, int]:
    try:
        run = client.runs.get(name)
    except NotFound:
        session = client.get_session(name)
        place = Path(target or f"{session.slug}.jsonl")
        return place, client.sessions.export(session.id, place)
    if run.agent != LOOP_AGENT:
        detail = f"Export the session of this run: holdfast export {run.session_id}."
        raise UsageError(detail=detail)
    place = Path(target or f"run-{run.id}.jsonl")
    return place, client.loops.export(run.id, place)
