"""`holdfast hooks`: programs that are asked when something happens."""

from __future__ import annotations

import click

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, make_printable, say
from holdfast.cli.sessions import open_client
from holdfast.hooks import list_points
from holdfast.runs import HookFile

_COLUMNS = ("name", "source", "trusted", "point", "command")


@click.group("hooks", cls=Group)
def command() -> None:
    """List or trust programs that are asked when something happens."""


@command.command("list")
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the hooks of the project and of the user."""
    with open_client(invocation) as client:
        _show(client.hooks.list())


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
            for name, cls in list_points().items()
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
        _show(client.hooks.trust(revoke=revoke))


def say_what_is_left_out(found: list[HookFile]) -> None:
    """Say which hooks of files do not run: broken, or not trusted as they are."""
    _say_problems(found)
    left = [one for one in found if not one.is_trusted and not one.problem]
    if not left:
        return
    names = ", ".join(make_printable(one.name) for one in left)
    why = "have changed since they were trusted" if left[0].was_trusted else "are not trusted"
    guards = "; its guards refuse" if any(one.was_trusted and one.is_guard for one in left) else ""
    say(
        f"The hooks of this project do not run, they {why}: {names}{guards}. "
        "Read them, then: holdfast hooks trust",
        err=True,
        color="yellow",
    )


def _show(found: list[HookFile]) -> None:
    emit([_make_row(one) for one in found if not one.problem], columns=list(_COLUMNS))
    _say_problems(found)


def _say_problems(found: list[HookFile]) -> None:
    for one in found:
        if one.problem:
            say(one.problem, err=True, color="yellow")


def _make_row(one: HookFile) -> dict[str, object]:
    return {
        "name": one.name,
        "source": one.source,
        "trusted": one.is_trusted,
        "point": one.point,
        "command": " ".join(one.command),
        "guard": one.is_guard,
        "agent": one.agent,
        "priority": one.priority,
        "file": one.path,
    }
