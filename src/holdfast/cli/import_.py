"""`holdfast import`: bring in what `holdfast export` has written."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client
from holdfast.errors import InvalidImport

_LARGEST_HEADER = 4096


@click.command("import", cls=CliCommand)
@click.argument("file", metavar="FILE")
@click.option("--as-new", is_flag=True, help="A session: give it a new id.")
@pass_invocation
def command(invocation: Invocation, file: str, as_new: bool) -> None:
    """Bring in what `holdfast export` has written.

    The first line says whether it is a session or a run. The whole file is checked first: a
    damaged or changed one is refused. A run that was still being written counts up to its last
    whole line.
    """
    kind = _classify_kind(file)
    with open_client(invocation) as client:
        if kind == "holdfast-run":
            run = client.loops.load(file)
            told = {"run": run.id, "session": run.session_id, "status": run.status}
            text = f"Imported the run {run.id} ({run.status}). Go on: holdfast --resume {run.id}"
        else:
            session = client.sessions.load(file, as_new=as_new)
            told = {"session": session.id, "title": session.title}
            text = f"Imported {session.id} ({session.title})."
    if invocation.is_text:
        say(text)
    else:
        emit(told)


def _classify_kind(file: str) -> str:
    try:
        with Path(file).open("rb") as source:
            header = msgspec.json.decode(source.readline(_LARGEST_HEADER))
    except OSError as error:
        raise InvalidImport(detail=f"it cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidImport(detail="its first line is no header of an export") from error
    return str(header.get("format", "")) if isinstance(header, dict) else ""
