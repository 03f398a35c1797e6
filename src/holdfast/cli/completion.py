"""`holdfast completion`: print the script that completes commands in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from holdfast.cli.frame import CliCommand

_COMPLETE_VAR = "_HOLDFAST_COMPLETE"


@click.command("completion", cls=CliCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands.

    \b
    bash:  eval "$(holdfast completion bash)"      (in ~/.bashrc)
    zsh:   eval "$(holdfast completion zsh)"       (in ~/.zshrc)
    fish:  holdfast completion fish | source       (in ~/.config/fish/config.fish)
    """
    make = get_completion_class(shell)
    if make is None:
        raise click.BadParameter(f"click does not know the shell {shell}")
    click.echo(make(ctx.find_root().command, {}, "holdfast", _COMPLETE_VAR).source())
