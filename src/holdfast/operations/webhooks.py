"""Webhooks: addresses that are told when runs end, wait or fail, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.operations.caller import Caller
from holdfast.operations.operation import operation
from holdfast.runtime import Runtime
from holdfast.webhooks import CreatedWebhook, Delivery, DeliveryStatus, Webhook, WebhookType


@operation("webhooks:admin")
async def add(
    runtime: Runtime, caller: Caller, /, url: str, types: Sequence[WebhookType] = ()
) -> CreatedWebhook:
    """Tell an address of what happens from now on; returns the secret, which is shown this once.

    `types` are run.ended, run.failed, run.parked, approval.asked, budget.exhausted; all of them
    unless given. Messages are signed by the Standard Webhooks scheme, hold ids and no content,
    and come at least once; `webhook-id` tells repetitions.

    Raises:
        UsageError: the address or a type cannot be meant.
        PermissionDenied: the address is not public, and its network is not named in
            `server.webhook_networks`.
    """
    return await runtime.webhooks.add(url, types, by=caller.subject)


@operation("webhooks:read")
async def list_(runtime: Runtime, caller: Caller, /) -> list[Webhook]:
    """Return the webhooks, oldest first; no secrets."""
    return await runtime.webhooks.list_webhooks()


@operation("webhooks:admin")
async def remove(runtime: Runtime, caller: Caller, /, webhook_id: str) -> None:
    """Tell an address of nothing any more; raises NotFound."""
    await runtime.webhooks.remove(webhook_id, by=caller.subject)


@operation("webhooks:read")
async def deliveries(
    runtime: Runtime,
    caller: Caller,
    /,
    *,
    status: DeliveryStatus | None = None,
    webhook_id: str = "",
    limit: int = 100,
) -> list[Delivery]:
    """Return messages, newest first; those with the status `dead` are dead letters."""
    return await runtime.webhooks.list_deliveries(
        status=status, webhook_id=webhook_id, limit=max(1, min(limit, 1000))
    )


@operation("webhooks:admin")
async def redeliver(runtime: Runtime, caller: Caller, /, message_id: str) -> Delivery:
    """Send a message again under the same id, a dead letter or any other; raises NotFound."""
    return await runtime.webhooks.redeliver(message_id, by=caller.subject)


@operation("webhooks:admin")
async def deliver(runtime: Runtime, caller: Caller, /) -> int:
    """Send what is due now and return how many were taken; a server does so by itself."""
    return await runtime.webhooks.deliver()
