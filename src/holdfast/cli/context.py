"""`holdfast context`: what a model would see."""

from __future__ import annotations

import click

from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, make_printable, say
from holdfast.client import AsyncClient
from holdfast.context import ContextAccount, ContextView, compute_room
from holdfast.errors import UsageError
from holdfast.sessions import SessionFilter


@click.group("context", cls=Group)
def command() -> None:
    """Show what a model would see, and what takes how much of it."""


@command.command("show")
@click.argument("session", required=False)
@click.option(
    "--agent", default="", metavar="NAME", help="Agent; default: the session's, or build."
)
@click.option("--model", default="", metavar="NAME", help="Model whose limits count.")
@click.option("--prompt", "with_prompt", is_flag=True, help="Print the system prompt too.")
@pass_invocation
def show(
    invocation: Invocation, session: str | None, agent: str, model: str, with_prompt: bool
) -> None:
    """Show what the next turn of SESSION, by default the last, would send, piece by piece.

    Nothing is asked and nothing is changed.
    """
    context, account = run_async(_account(invocation, session, agent, model))
    rows = [
        {"part": line.name, "tokens": line.tokens, "characters": line.characters, "note": line.note}
        for line in account.lines
    ]
    if not invocation.is_text:
        whole: dict[str, object] = {
            "session": context.session.id,
            "agent": context.agent,
            "parts": rows,
            "total": account.total,
            "limit": account.limit,
            "left": account.left,
        }
        if with_prompt:
            whole["system_prompt"] = context.system_prompt
        emit(whole)
        return
    emit(rows, columns=["part", "tokens", "characters", "note"])
    say(f"{account.total} of {account.limit} tokens, {account.left} left.")
    if with_prompt:
        say("")
        say(make_printable(context.system_prompt))


async def _account(
    invocation: Invocation, session: str | None, agent: str, model: str
) -> tuple[ContextView, ContextAccount]:
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        if not session:
            last = await client.sessions.most_recent(SessionFilter(parent_id=""))
            if last is None:
                raise UsageError(detail="There are no sessions yet: `holdfast chat` begins one.")
            session = last.id
        context = await client.sessions.context(session, agent)
        ready = await client.providers.model(model)
        limit = compute_room(ready.model.info).usable
        return context, context.account_for(ready.model.count_tokens, limit=limit)
