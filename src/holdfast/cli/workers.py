"""`holdfast workers`: who works, and what was given up."""

from __future__ import annotations

import click
import msgspec

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client


@click.group("workers", cls=Group)
def command() -> None:
    """See who works, and try again what was given up."""


@command.command("list")
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the workers that live, since when, and which sessions they hold."""
    with open_client(invocation) as client:
        found = client.workers.list()
    columns = (
        *("name", "host", "process", "queues", "concurrency"),
        *("time_started", "time_seen", "sessions"),
    )
    emit([msgspec.to_builtins(one) for one in found], columns=columns)


@command.group("dead", cls=Group)
def dead() -> None:
    """What failed too often, or killed too many workers."""


@dead.command("list")
@pass_invocation
def list_dead(invocation: Invocation) -> None:
    """List the sessions that workers leave alone, oldest first."""
    with open_client(invocation) as client:
        found = client.workers.list_dead()
    columns = ("id", "session_id", "queue", "failures", "error", "time")
    emit([msgspec.to_builtins(one) for one in found], columns=columns)


@dead.command("retry")
@click.argument("letter_id", type=int)
@pass_invocation
def retry(invocation: Invocation, letter_id: int) -> None:
    """Have the session of the dead letter LETTER_ID tried again."""
    with open_client(invocation) as client:
        letter = client.workers.retry(letter_id)
    if invocation.is_text:
        say(f"Woke {letter.session_id}.")
    else:
        emit(msgspec.to_builtins(letter))
