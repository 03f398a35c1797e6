"""`holdfast acp`: be an agent of an editor."""

from __future__ import annotations

import asyncio

import click

from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.errors import MissingExtra


@click.command("acp", cls=CliCommand)
@click.argument("target", required=False, metavar="[MODULE:NAME]")
@click.option("--agent", default="", metavar="NAME", help="Agent that sessions begin with.")
@pass_invocation
def command(invocation: Invocation, target: str | None, agent: str) -> None:
    """Be an agent of an editor: the Agent Client Protocol on standard input and output.

    Editors such as Zed start this command themselves, in the project's folder. Its modes are your
    agents, also those of MODULE:NAME; what needs consent is asked in the editor, and everything
    is kept as in `holdfast chat`.

    \b
    Zed, settings.json:
      "agent_servers": {"Holdfast": {"command": "holdfast", "args": ["acp"]}}
    """
    from holdfast.server import load_agents  # noqa: PLC0415 - an optional extra

    try:
        from holdfast.server import serve_acp  # noqa: PLC0415 - an optional extra
    except ModuleNotFoundError as error:
        if error.name != "acp":
            raise
        raise MissingExtra(what="holdfast acp", package="acp", extra="acp") from error

    settings = invocation.settings
    served = load_agents(target, directory=settings.workspace) if target else ()
    asyncio.run(serve_acp(settings, served=served, default_agent=agent))


__all__ = ["command"]
