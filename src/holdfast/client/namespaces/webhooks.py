"""`client.webhooks`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, webhooks


class WebhookNamespace(Surface[Mode]):
    """Webhooks: who is told what happens, and what became of it."""

    add = webhooks.add
    list = webhooks.list_
    remove = webhooks.remove
    deliveries = webhooks.deliveries
    redeliver = webhooks.redeliver
    deliver = webhooks.deliver
