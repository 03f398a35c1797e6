"""`holdfast docs`: explain an error by its code, offline."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator

import click

from holdfast.cli.exits import choose_exit_code
from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.errors import HoldfastError, UsageError


@click.command("docs", cls=CliCommand)
@click.argument("code", required=False, default="")
@pass_invocation
def command(invocation: Invocation, code: str) -> None:
    """Explain an error by its code, offline.

    Such as `session.busy`; without a code all are listed. Codes never change, and the
    beginning of one will do: `holdfast docs session` explains all errors of sessions.
    """
    known = {one.code: one for one in list_error_classes()}
    if not code:
        rows = [
            {"code": name, "meaning": explain_error(one)["meaning"]}
            for name, one in sorted(known.items())
        ]
        emit(rows, columns=("code", "meaning"))
        return
    wanted = code.strip().lower()
    chosen = [wanted] if wanted in known else sorted(_list_below(known, wanted))
    if not chosen:
        near = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
        meant = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            detail=f"There is no error code {code!r}.{meant} `holdfast docs` lists all."
        )
    if not invocation.is_text:
        told = [explain_error(known[name]) for name in chosen]
        emit(told[0] if wanted in known else told)
        return
    for number, name in enumerate(chosen):
        if number:
            say("")
        _say_error(explain_error(known[name]))


def list_error_classes(cls: type[HoldfastError] = HoldfastError) -> Iterator[type[HoldfastError]]:
    """Yield every error of Holdfast's own, parents before children; the root is none."""
    for child in cls.__subclasses__():
        if child.__module__.startswith("holdfast.errors."):
            yield child
            yield from list_error_classes(child)


def explain_error(cls: type[HoldfastError]) -> dict[str, object]:
    """Return what is known about an error; `{…}` stands for what an instance names."""
    return {
        "code": cls.code,
        "class": cls.__name__,
        "kind_of": cls.__mro__[1].__name__,
        "meaning": " ".join(inspect.cleandoc(cls.__doc__ or "").split()),
        "says": _make_one_line(cls.message).replace("!r", ""),
        "next_step": _make_one_line(cls.next_step),
        "is_retryable": cls.is_retryable,
        "exit_code": int(choose_exit_code(cls())),
    }


def _list_below(known: dict[str, type[HoldfastError]], prefix: str) -> list[str]:
    return [name for name in known if name.startswith(f"{prefix.rstrip('.')}.")]


def _say_error(told: dict[str, object]) -> None:
    say(str(told["code"]), color="cyan")
    say(str(told["meaning"]))
    say(f"  says:      {told['says']}")
    say(f"  next:      {told['next_step'] or 'see the message.'}")
    again = "yes, unchanged" if told["is_retryable"] else "not unchanged"
    say(f"  try again: {again}")
    say(f"  in Python: holdfast.errors.{told['class']}, a kind of {told['kind_of']}")
    say(f"  exit code: {told['exit_code']}")


def _make_one_line(text: str) -> str:
    return " ".join(text.split())
