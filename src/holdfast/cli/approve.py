"""The approval prompt: a person at the terminal consents to one call, or does not."""

from __future__ import annotations

import asyncio
import getpass
import json

import click

from holdfast.cli.output import printable
from holdfast.tools.gate import ApprovalAnswer, ApprovalRequest


class AskInTerminal:
    """Asks whoever sits at the terminal; the loop goes on meanwhile."""

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Show the call and wait for y or n; anything but yes refuses."""
        return await asyncio.to_thread(_ask, request)


def _ask(request: ApprovalRequest) -> ApprovalAnswer | None:
    arguments = json.dumps(request.arguments, indent=2, ensure_ascii=False)
    click.echo(
        printable(
            f"\n{request.tool} wants to run ({request.decision.explain()}).\n"
            f"It touches: {', '.join(request.targets)}\n{arguments}"
        ),
        err=True,
    )
    try:
        answer = click.prompt("Allow this call? [y/N]", default="n", show_default=False, err=True)
    except click.Abort:
        return None
    is_yes = answer.strip().lower() in ("y", "yes")
    return ApprovalAnswer(verdict="allow" if is_yes else "deny", by=getpass.getuser())


ask_in_terminal = AskInTerminal()
"""Pass it as `approve=` to have calls that ask put before whoever sits at the terminal."""
