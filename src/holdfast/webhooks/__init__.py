"""Webhooks: other systems are told what happened, by signed requests that are not lost.

The journal is the outbox: what is told follows from facts that are stored. Each message is queued
once under an id that follows from its fact, and sent until it was taken (at least once) or given
up (a dead letter, which can be sent again).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.webhooks.events import WEBHOOK_PROJECTIONS as WEBHOOK_PROJECTIONS
    from holdfast.webhooks.events import Delivery as Delivery
    from holdfast.webhooks.events import DeliveryStatus as DeliveryStatus
    from holdfast.webhooks.events import Webhook as Webhook
    from holdfast.webhooks.events import WebhookType as WebhookType
    from holdfast.webhooks.service import CreatedWebhook as CreatedWebhook
    from holdfast.webhooks.service import WebhookService as WebhookService
    from holdfast.webhooks.signature import sign as sign
    from holdfast.webhooks.signature import verify as verify
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "events": "Delivery DeliveryStatus WEBHOOK_PROJECTIONS Webhook WebhookType",
            "service": "CreatedWebhook WebhookService",
            "signature": "sign verify",
        },
    )
