"""`holdfast webhooks`: who is told what happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, get_args

import click
import msgspec

from holdfast.cli.event_loop import run_async
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.client import AsyncClient
from holdfast.webhooks import WebhookType

_T = TypeVar("_T")


@click.group("webhooks", cls=Group)
def command() -> None:
    """Tell other systems when runs end, wait or fail."""


@command.command("add")
@click.argument("url")
@click.option(
    "--type", "types", multiple=True, type=click.Choice(get_args(WebhookType)), help="Repeat."
)
@pass_invocation
def add(invocation: Invocation, url: str, types: tuple[Any, ...]) -> None:
    """Tell URL of what happens from now on, and print the secret of its signatures.

    \b
    holdfast webhooks add https://example.com/hooks --type run.failed --type approval.asked
    """
    made = _run(invocation, lambda client: client.webhooks.add(url, types))
    if not invocation.is_text:
        emit({**msgspec.to_builtins(made.webhook), "secret": made.secret})
        return
    say(f"The webhook {made.webhook.id}. Its secret is not shown again:", err=True)
    say(made.secret)


@command.command("list")
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the webhooks."""
    found = _run(invocation, lambda client: client.webhooks.list())
    rows = [{**msgspec.to_builtins(one), "told of": " ".join(one.types)} for one in found]
    emit(rows, columns=["id", "url", "told of"])


@command.command("remove")
@click.argument("webhook_id")
@pass_invocation
def remove(invocation: Invocation, webhook_id: str) -> None:
    """Tell the webhook WEBHOOK_ID of nothing any more."""
    _run(invocation, lambda client: client.webhooks.remove(webhook_id))
    if invocation.is_text:
        say(f"Removed the webhook {webhook_id}.")
    else:
        emit({"removed": webhook_id})


@command.command("deliveries")
@click.option(
    "--status", type=click.Choice(["pending", "delivered", "dead"]), help="dead: given up."
)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, help="So many at most.")
@pass_invocation
def deliveries(invocation: Invocation, status: Any, limit: int) -> None:  # noqa: ANN401 - click's
    """List messages, newest first; with --status dead the dead letters."""
    found = _run(invocation, lambda client: client.webhooks.deliveries(status=status, limit=limit))
    rows = [msgspec.to_builtins(one) for one in found]
    emit(rows, columns=["id", "type", "status", "attempts", "error"])


@command.command("redeliver")
@click.argument("message_id")
@pass_invocation
def redeliver(invocation: Invocation, message_id: str) -> None:
    """Send the message MESSAGE_ID again, under the same id."""

    async def work(client: AsyncClient) -> str:
        await client.webhooks.redeliver(message_id)
        await client.webhooks.deliver()
        found = await client.webhooks.deliveries(limit=1000)
        return next((one.status for one in found if one.id == message_id), "pending")

    status = _run(invocation, work)
    if invocation.is_text:
        say(f"The message {message_id} is {status}.")
    else:
        emit({"id": message_id, "status": status})


@command.command("deliver")
@pass_invocation
def deliver(invocation: Invocation) -> None:
    """Send what is due now; `holdfast serve` does so by itself."""
    count = _run(invocation, lambda client: client.webhooks.deliver())
    if invocation.is_text:
        say(f"{count} messages were taken.")
    else:
        emit({"delivered": count})


def _run(invocation: Invocation, work: Callable[[AsyncClient], Awaitable[_T]]) -> _T:
    async def whole() -> _T:
        async with AsyncClient(settings=invocation.settings) as client:
            return await work(client)

    return run_async(whole())
