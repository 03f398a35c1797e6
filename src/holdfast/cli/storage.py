"""`holdfast storage`: look after the files in which everything is kept."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.progress import progress_bar
from holdfast.cli.sessions import open_client


@click.group("storage", cls=Group)
def command() -> None:
    """Look after the files in which everything is kept."""


@command.command("export")
@click.argument("directory")
@pass_invocation
def export(invocation: Invocation, directory: str) -> None:
    """Write the journal as plain JSON files below DIRECTORY.

    Copies for people and other programs: storage/session/, message/, tool_execution/,
    agent/ and memory/, and one run-<id>.jsonl per run. Nothing is ever read back from them.
    """
    with open_client(invocation) as client:
        count = client.storage.export_layout(directory)
    if invocation.is_text:
        say(f"Wrote {count} files below {directory}.")
    else:
        emit({"directory": directory, "files": count})


@command.command("rebuild")
@pass_invocation
def rebuild(invocation: Invocation) -> None:
    """Rebuild all tables from the log."""
    with open_client(invocation) as client, progress_bar(invocation, "events") as progress:
        count = client.storage.rebuild(progress)
    if invocation.is_text:
        say(f"Rebuilt the tables from {count} events.")
    else:
        emit({"events": count})


@command.command("clean")
@pass_invocation
def clean(invocation: Invocation) -> None:
    """Remove what the retention settings no longer want, and free space.

    See `holdfast config view storage.retention`.
    """
    with open_client(invocation) as client:
        report = client.storage.clean_up()
    emit(msgspec.to_builtins(report))


@command.command("stats")
@pass_invocation
def stats(invocation: Invocation) -> None:
    """Count sessions, events and bytes."""
    with open_client(invocation) as client:
        emit({"path": str(invocation.settings.storage_path), **client.storage.stats()})
