"""`holdfast hooks`: programs that are asked when something happens."""

from __future__ import annotations

import click

from holdfast.agents.hook_files import HookFile
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client
from holdfast.hooks import all_points

_COLUMNS = ("name", "source", "trusted", "point", "command")


@click.group("hooks", cls=Group)
def command() -> None:
    """List or trust programs that are asked when something happens."""


@command.command("list")
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the hooks of the project and of the user."""
    with open_client(invocation) as client:
        _show(client.list_hooks())


@command.command("points")
def points() -> None:
    """List the points at which hooks are asked or told."""
    emit(
        [
            {
                "point": name,
                "verdicts": ", ".join(sorted(cls.accepts)),
                "may change": ", ".join(sorted(cls.changeable)),
                "when": (cls.__doc__ or "").splitlines()[0],
            }
            for name, cls in all_points().items()
        ],
        columns=["point", "verdicts", "may change", "when"],
    )


@command.command("trust")
@click.option("--revoke", is_flag=True, help="Take the word back.")
@pass_invocation
def trust(invocation: Invocation, revoke: bool) -> None:
    """Vouch for the hooks of the project, as they are now.

    They run from now on, in the sandbox. When any file in .holdfast/hooks changes, they have
    to be trusted again. Read them first.
    """
    with open_client(invocation) as client:
        _show(client.trust_hooks(revoke=revoke))


def _show(found: list[HookFile]) -> None:
    emit([_row(one) for one in found if not one.problem], columns=list(_COLUMNS))
    for one in found:
        if one.problem:
            say(one.problem, err=True, color="yellow")


def _row(one: HookFile) -> dict[str, object]:
    return {
        "name": one.name,
        "source": one.source,
        "trusted": one.is_trusted,
        "point": one.point,
        "command": " ".join(one.command),
        "guard": one.is_guard,
        "agent": one.agent,
        "priority": one.priority,
        "file": str(one.path),
    }
