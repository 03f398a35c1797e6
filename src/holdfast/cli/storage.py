"""`holdfast storage`: look after the files in which everything is kept."""

from __future__ import annotations

import sys

import click
import msgspec

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.progress import show_progress_bar
from holdfast.cli.sessions import open_client
from holdfast.errors import StorageDamaged
from holdfast.journal import MendReport, SchemaStatus


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
    """Rebuild all tables from the log; mend a damaged file first.

    A damaged file is replaced by one with all that can be read and proves to be unchanged; it
    stays beside it, as evidence. What is lost is listed, and the command then ends with 1.
    """
    mended: MendReport | None = None
    try:
        count = _rebuild(invocation)
    except StorageDamaged:
        with open_client(invocation) as client:
            mended = client.storage.mend()
        count = _rebuild(invocation)
    lost = [msgspec.to_builtins(found) for found in mended.lost] if mended is not None else []
    if not invocation.is_text:
        aside = mended.aside if mended is not None else ""
        emit({"events": count, "damaged": aside, "lost": lost})
    else:
        if mended is not None:
            say(f"The file was damaged. It is now {mended.aside}.")
        if lost:
            emit(lost, columns=("session_id", "session_seq", "problem"))
        say(f"Rebuilt the tables from {count} events.")
    if lost:
        sys.exit(1)


def _rebuild(invocation: Invocation) -> int:
    with open_client(invocation) as client, show_progress_bar(invocation, "events") as progress:
        count: int = client.storage.rebuild(progress)
    return count


@command.command("status")
@pass_invocation
def status(invocation: Invocation) -> None:
    """Show which schema the database server has, and what `migrate` would change."""
    with open_client(invocation) as client:
        _show_schema(invocation, client.storage.status())


@command.command("migrate")
@pass_invocation
def migrate(invocation: Invocation) -> None:
    """Bring the schema of the database server up to date, all of it or nothing.

    Needs the address of a role that owns the schema. Workers of the version before go on where
    the migration says so; others are refused and have to be upgraded.
    """
    with open_client(invocation) as client:
        _show_schema(invocation, client.storage.migrate())


def _show_schema(invocation: Invocation, found: SchemaStatus) -> None:
    if not invocation.is_text:
        emit(msgspec.to_builtins(found))
        return
    for name in found.applied:
        say(f"Applied {name}.")
    say(f"{found.store} has schema {found.version}; this Holdfast knows {found.known}.")
    if found.pending:
        say(f"Pending: {', '.join(found.pending)}. Run `holdfast storage migrate`.")


@command.command("grant")
@click.argument("role")
@click.option("--wakeups", is_flag=True, help="Only what workers take sessions from; no records.")
@pass_invocation
def grant(invocation: Invocation, role: str, wakeups: bool) -> None:
    """Let a ROLE of the database serve: append, read, wake sessions; of one tenant at a time.

    Needs the address of a role that owns the schema. The ROLE must be none that could step over
    what keeps tenants apart (SUPERUSER, BYPASSRLS, the owner itself).

    \b
    createuser holdfast_app
    holdfast storage grant holdfast_app
    """
    with open_client(invocation) as client:
        client.storage.grant(role, kind="wakeups" if wakeups else "records")
    if invocation.is_text:
        say(f"{role} may now use {'wake-ups only' if wakeups else 'the records'}.")
    else:
        emit({"role": role, "kind": "wakeups" if wakeups else "records"})


@command.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@pass_invocation
def copy(invocation: Invocation, source: str, target: str) -> None:
    """Copy all records FROM one store TO another, and compare their chains.

    Both are addresses as in `storage.url`: sqlite:///DIRECTORY or postgresql://USER@HOST/DATABASE.
    Nothing may use either of them meanwhile. Called again after an interruption, it goes on. Then
    name the new address in `storage.url`. Keys, memories and files stay in the state directory.

    \b
    holdfast storage copy sqlite:///var/lib/holdfast postgresql://me@db/holdfast
    """
    with open_client(invocation) as client, show_progress_bar(invocation, "events") as progress:
        report = client.storage.copy(source, target, progress=progress)
    if not invocation.is_text:
        emit(msgspec.to_builtins(report))
        return
    known = f"; {report.known_sessions} were there already" if report.known_sessions else ""
    say(f"Copied {report.events} events of {report.sessions} sessions{known}. All chains agree.")


@command.command("backup")
@click.argument("directory")
@pass_invocation
def backup(invocation: Invocation, directory: str) -> None:
    """Copy the state directory to DIRECTORY while it is in use, and check the copy.

    To restore: end all processes, and let DIRECTORY take the place of the state directory. For
    Postgres use pg_dump, see the runbook on stores.
    """
    with open_client(invocation) as client, show_progress_bar(invocation, "pages") as progress:
        report = client.storage.backup(directory, progress=progress)
    if not invocation.is_text:
        emit(msgspec.to_builtins(report))
        return
    say(
        f"Copied {len(report.databases)} databases and {report.files} files; "
        f"{report.events} events of {report.sessions} sessions are sound."
    )


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
