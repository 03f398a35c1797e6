"""`holdfast artifacts`: the files that agents, tools and people left."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from holdfast.artifacts import (
    Access,
    Artifact,
    ArtifactFilter,
    ArtifactKind,
    ArtifactOptions,
    ArtifactScope,
)
from holdfast.cli.exits import ExitCode
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.preview import MOST_PREVIEW_BYTES, show_preview
from holdfast.cli.progress import show_progress_bar
from holdfast.cli.sessions import open_client
from holdfast.errors import AlreadyExists, UsageError
from holdfast.sync import Client

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_COLUMNS = ("id", "name", "version", "size", "media_type", "kind", "scope", "time")


@click.group("artifacts", cls=Group)
def command() -> None:
    """List, show, save, share or remove files that agents left."""


@command.command("list")
@click.option("--name", default="", metavar="TEXT", help="Part of the name, in any case.")
@click.option("--tag", default="", help="Only with this tag.")
@click.option("--kind", type=click.Choice(get_args(ArtifactKind)))
@click.option("--scope", type=click.Choice(get_args(ArtifactScope)))
@click.option("--session", default="", metavar="ID", help="Only those of this session.")
@click.option("--since", type=click.DateTime(), help="Saved at this time or later.")
@click.option("--until", type=click.DateTime(), help="Saved at this time or before.")
@click.option("--min-size", type=click.IntRange(0), metavar="BYTES")
@click.option("--max-size", type=click.IntRange(0), metavar="BYTES")
@click.option("--all-versions", is_flag=True, help="Not only the newest of each file.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True)
@click.option("--cursor", default="", help="Continue after an earlier page.")
@pass_invocation
def list_(invocation: Invocation, /, limit: int, cursor: str, **given: object) -> None:
    """List artifacts, newest first.

    Example: holdfast artifacts list --tag report --since 2026-11-01
    """
    with open_client(invocation) as client:
        session = str(given.pop("session"))
        session_id = client.sessions.get(session).id if session else ""
        for name in ("since", "until"):
            moment = given[name]
            given[name] = None if moment is None else moment.timestamp()  # type: ignore[attr-defined]
        given["has_old_versions"] = given.pop("all_versions")
        wanted = msgspec.convert({**given, "session_id": session_id}, ArtifactFilter)
        page = client.artifacts.list(wanted, limit=limit, cursor=cursor)
    emit([_describe(invocation, one) for one in page.items], columns=_COLUMNS)
    if page.next_cursor:
        say(f"More: holdfast artifacts list --cursor {page.next_cursor}", err=True)


@command.command("show")
@click.argument("artifact_id", metavar="ID")
@click.option("--versions", is_flag=True, help="List all versions of the file.")
@click.option("--no-preview", is_flag=True, help="Only what is known of it.")
@pass_invocation
def show(invocation: Invocation, artifact_id: str, versions: bool, no_preview: bool) -> None:
    """Show what is known of an artifact, and on a terminal a preview of it.

    Images are drawn as blocks, CSV as a table, text as its first lines.
    """
    with open_client(invocation) as client:
        if versions:
            found = client.artifacts.versions(artifact_id)
            emit([_describe(invocation, one) for one in found], columns=_COLUMNS)
            return
        artifact = client.artifacts.get(artifact_id)
        emit(_describe(invocation, artifact))
        if invocation.is_text and sys.stdout.isatty() and not no_preview:
            show_preview(invocation, artifact.media_type, _read_beginning(client, artifact))


@command.command("save")
@click.argument("file")
@click.option("--name", default="", help="Name of the artifact.  [default: that of the file]")
@click.option("--session", default="", metavar="ID", help="The session that it belongs to.")
@click.option("--scope", type=click.Choice(get_args(ArtifactScope)), help="Whose it is.")
@click.option(
    "--kind", type=click.Choice(get_args(ArtifactKind)), default="user_input", show_default=True
)
@click.option("--tag", "tags", multiple=True, help="May be repeated.")
@click.option("--media-type", default="", help="Guessed from content and name unless given.")
@click.option("--ttl", default="", metavar="TIME", help="Removed after this, such as 30d.")
@click.option("--sha256", default="", metavar="DIGEST", help="Refuse any other content.")
@pass_invocation
def save(  # noqa: PLR0913 - one argument per option
    invocation: Invocation,
    file: str,
    name: str,
    session: str,
    scope: ArtifactScope | None,
    kind: ArtifactKind,
    tags: tuple[str, ...],
    media_type: str,
    ttl: str,
    sha256: str,
) -> None:
    """Save FILE as an artifact; `-` reads standard input and needs --name.

    A name that is there already gets a new version. The content is kept to the byte.
    """
    options = ArtifactOptions(
        media_type=media_type,
        kind=kind,
        tags=tags,
        scope=scope,
        ttl_s=_parse_seconds(ttl) if ttl else None,
        sha256=sha256,
    )
    if file == "-" and not name:
        raise UsageError(detail="Say --name for what comes from standard input.")
    source = sys.stdin.buffer if file == "-" else file
    with open_client(invocation) as client:
        saved = client.artifacts.upload(source, name=name, session_id=session, options=options)
    if invocation.is_text:
        say(f"Saved {saved.id} ({saved.name}, version {saved.version}, {saved.size} bytes).")
    else:
        emit(msgspec.to_builtins(saved))


@command.command("get")
@click.argument("artifact_id", metavar="ID")
@click.option("--to", "target", metavar="PATH", help="File to write; `-` is standard output.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@pass_invocation
def get(invocation: Invocation, artifact_id: str, target: str | None, force: bool) -> None:
    """Write the content of an artifact to a file, checked against its SHA-256.

    Without --to it goes to a file of its name in the working directory.
    """
    with open_client(invocation) as client:
        if target == "-":
            for piece in client.artifacts.stream(artifact_id):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return
        artifact = client.artifacts.get(artifact_id)
        # A name may look like a path; only its last part is used.
        place = Path(target) if target else Path(Path(artifact.name.replace("\\", "/")).name)
        if place.exists() and not force:
            raise AlreadyExists(kind="file", value=str(place))
        client.artifacts.download(artifact_id, place)
    if invocation.is_text:
        say(f"Wrote {artifact.size} bytes to {place}.")
    else:
        emit({"file": str(place), "size": artifact.size, "sha256": artifact.digest})


@command.command("share")
@click.argument("artifact_id", metavar="ID")
@click.option("--with", "subject", default="", metavar="SUBJECT", help="A person or key.")
@click.option("--access", type=click.Choice(get_args(Access)), default="read", show_default=True)
@click.option("--expires", default="1d", show_default=True, metavar="TIME", help="Such as 2h, 7d.")
@click.option("--list", "is_listing", is_flag=True, help="Show who has access, and links.")
@click.option("--revoke", default="", metavar="SUBJECT|LINK", help="Take access or a link back.")
@pass_invocation
def share(
    invocation: Invocation,
    artifact_id: str,
    subject: str,
    access: Access,
    expires: str,
    is_listing: bool,
    revoke: str,
) -> None:
    """Make a signed link to an artifact, or give a subject access; both expire.

    A link needs HOLDFAST_LINK_KEY in the secrets file. `holdfast serve` answers links.
    """
    with open_client(invocation) as client:
        if is_listing:
            found = client.artifacts.grants(artifact_id)
            emit([msgspec.to_builtins(one) for one in found])
        elif revoke:
            is_link = revoke.startswith("lnk_")
            chosen = {"link_id": revoke} if is_link else {"subject": revoke}
            client.artifacts.revoke(artifact_id, **chosen)
            say(f"{revoke} no longer has access to {artifact_id}.")
        elif subject:
            grant = client.artifacts.grant(
                artifact_id, subject, access=access, expires_in_s=_parse_seconds(expires)
            )
            emit(msgspec.to_builtins(grant))
        else:
            link = client.artifacts.share(artifact_id, expires_in_s=_parse_seconds(expires))
            # Behind the address of whatever server answers for this state directory.
            path = f"/v1/artifact-links/{link.token}/content"
            emit({**msgspec.to_builtins(link), "path": path})


@command.command("rm")
@click.argument("artifact_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--all-versions", is_flag=True, help="All versions of each file.")
@click.option("--reason", default="", help="Kept in the journal.")
@pass_invocation
def remove(
    invocation: Invocation, artifact_ids: tuple[str, ...], all_versions: bool, reason: str
) -> None:
    """Delete artifacts for good; a content goes unless another artifact has the same."""
    removed = []
    with open_client(invocation) as client:
        for artifact_id in artifact_ids:
            doomed = [artifact_id]
            if all_versions:
                doomed = [one.id for one in client.artifacts.versions(artifact_id)]
            for one in doomed:
                client.artifacts.delete(one, reason=reason)
                removed.append(one)
    if invocation.is_text:
        say(f"Deleted {len(removed)}.")
    else:
        emit({"deleted": removed})


@command.command("gc")
@pass_invocation
def gc(invocation: Invocation) -> None:
    """Remove what nothing refers to, and what retention no longer wants.

    What a journal refers to is never removed. Safe to interrupt and to repeat.
    """
    with open_client(invocation) as client, show_progress_bar(invocation, "contents") as progress:
        report = client.artifacts.collect(progress)
    emit(msgspec.to_builtins(report))


@command.command("verify")
@pass_invocation
def verify(invocation: Invocation) -> None:
    """Read every content and compare it with its SHA-256; exit code 1 if one is damaged."""
    with open_client(invocation) as client, show_progress_bar(invocation, "contents") as progress:
        findings = client.artifacts.verify(progress)
    if findings or not invocation.is_text:
        emit([msgspec.to_builtins(one) for one in findings])
    else:
        say("Every artifact is what was saved.")
    if findings:
        raise click.exceptions.Exit(ExitCode.FAILED)


@command.command("rekey")
@pass_invocation
def rekey(invocation: Invocation) -> None:
    """Encrypt every content with HOLDFAST_ARTIFACT_KEY; without one, decrypt it.

    Put the key in use so far into HOLDFAST_ARTIFACT_FORMER_KEY first, and keep it there until
    this is through: each content is whole under one of the two at any moment.
    """
    with open_client(invocation) as client, show_progress_bar(invocation, "contents") as progress:
        report = client.artifacts.rekey(progress)
    emit(msgspec.to_builtins(report))
    if report.failed:
        raise click.exceptions.Exit(ExitCode.FAILED)


def _describe(invocation: Invocation, artifact: Artifact) -> dict[str, Any]:
    """Return what is known of an artifact; for people, times as dates."""
    known: dict[str, Any] = msgspec.to_builtins(artifact)
    if invocation.is_text:
        for name in ("time", "expires_at"):
            moment = known[name]
            date = datetime.fromtimestamp(moment, UTC).isoformat(" ", "seconds")
            known[name] = date if moment else ""
    return known


def _read_beginning(client: Client, artifact: Artifact) -> bytes:
    found = bytearray()
    for piece in client.artifacts.stream(artifact.id):
        found += piece
        if len(found) >= MOST_PREVIEW_BYTES:
            break
    return bytes(found[:MOST_PREVIEW_BYTES])


def _parse_seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw]?)", text.strip().lower())
    if found is None:
        raise UsageError(detail=f"{text!r} is no time such as 90, 15m, 2h or 30d.")
    return float(found[1]) * _UNITS.get(found[2], 1)
