"""`holdfast config`: show or check the settings, or vouch for a file of them."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.settings import vouch_for


@click.group("config", cls=Group)
def command() -> None:
    """Show, check or trust the settings."""


@command.command("view")
@click.argument("key", required=False)
@pass_invocation
def view(invocation: Invocation, key: str | None) -> None:
    """Show every setting with its source; keys are hidden.

    KEY narrows it to one setting or one section, such as model.name or storage.
    """
    rows = invocation.loaded.rows()
    if key is None:
        emit(rows, columns=("key", "value", "source"))
        return
    names = [str(row["key"]) for row in rows]
    if key in names:
        row = rows[names.index(key)]
        if invocation.is_text:
            emit([row], columns=("key", "value", "source"))
        else:
            emit(row)
        return
    inside = [row for row in rows if str(row["key"]).startswith(f"{key}.")]
    if not inside:
        near = difflib.get_close_matches(key, names, n=1, cutoff=0.5)
        also = f" Did you mean {near[0]!r}?" if near else ""
        raise click.BadParameter(f"There is no setting {key!r}.{also}", param_hint="KEY")
    emit(inside, columns=("key", "value", "source"))


@command.command("validate")
@pass_invocation
def validate(invocation: Invocation) -> None:
    """Check all sources; name every mistake at once.

    Ends with 3 if anything is wrong.
    """
    loaded = invocation.loaded
    if invocation.is_text:
        say("The configuration is valid.")
        for path in loaded.files:
            say(f"read: {path}")
    else:
        emit({"valid": True, "files": [str(path) for path in loaded.files]})


@command.command("trust")
@click.argument("path", type=click.Path(path_type=Path))
@pass_invocation
def trust(invocation: Invocation, path: Path) -> None:
    """Obey a settings file, policies or instructions that a run could have made.

    Where there was none, a command of an agent can make one; nothing goes by it before you
    have looked at it and trusted it. The same holds for an AGENTS.md or CLAUDE.md that a run
    wrote or changed.
    """
    from holdfast.settings import RunWrites  # noqa: PLC0415 - first use
    from holdfast.skills import InstructionTrust, TrustStore  # noqa: PLC0415 - first use

    was_in_doubt = vouch_for(path, overrides=invocation.overrides)
    state = invocation.settings.storage_path
    was_in_doubt |= InstructionTrust(TrustStore(state), RunWrites(state)).accept(path)
    if not invocation.is_text:
        emit({"path": str(path.absolute()), "was_in_doubt": was_in_doubt})
    elif was_in_doubt:
        say(f"Trusted: {path}")
    else:
        say(f"Nothing to do: no command could have made {path}.")
