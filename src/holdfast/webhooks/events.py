"""The facts of webhooks and the tables that follow from them; they hold no content."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import AnyProjection, Event, Payload, Projection, payload

WebhookType: TypeAlias = Literal[
    "run.ended", "run.failed", "run.parked", "approval.asked", "budget.exhausted"
]
DeliveryStatus: TypeAlias = Literal["pending", "delivered", "dead"]


@payload("webhook.added", is_open=True, is_inherited=False, is_synced=True, is_of_store=True)
class WebhookAdded(Payload, frozen=True, kw_only=True):
    """From `position` on an address is told of these; its secret is kept elsewhere."""

    webhook_id: str
    url: str
    types: tuple[WebhookType, ...]
    position: int
    by: str = ""


@payload("webhook.removed", is_open=True, is_inherited=False, is_synced=True, is_of_store=True)
class WebhookRemoved(Payload, frozen=True, kw_only=True):
    """An address is told of nothing any more."""

    webhook_id: str
    by: str = ""


@payload("webhook.queued", is_open=True, is_inherited=False, has_content=True, is_of_store=True)
class WebhookQueued(Payload, frozen=True, kw_only=True):
    """A message is to be sent; `position` is the event that it follows from."""

    message_id: str
    webhook_id: str
    type: WebhookType
    position: int
    time: float
    data: JsonObject

    def redacted(self) -> WebhookQueued:
        """Keep that there was a message; drop of whom and of what it told."""
        return msgspec.structs.replace(self, data={})


@payload("webhook.tried", is_open=True, is_inherited=False, is_of_store=True)
class WebhookTried(Payload, frozen=True, kw_only=True):
    """A message was sent, and this is what came of it; `next_at` is when it is sent again."""

    message_id: str
    webhook_id: str
    attempt: int
    status: DeliveryStatus
    http_status: int = 0
    error: str = ""
    next_at: float = 0.0


@payload("webhook.redelivered", is_open=True, is_inherited=False, is_of_store=True)
class WebhookRedelivered(Payload, frozen=True, kw_only=True):
    """Somebody asked for a message to be sent again."""

    message_id: str
    webhook_id: str
    by: str = ""


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """An address that is told of what happens."""

    id: str
    url: str
    types: tuple[WebhookType, ...]
    created_at: float
    created_by: str = ""
    position: int = 0
    """The last event of which it was told, or from which on it is told."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message to an address, and how far it came."""

    id: str
    webhook_id: str
    type: WebhookType
    data: JsonObject
    time: float
    status: DeliveryStatus = "pending"
    attempts: int = 0
    next_at: float = 0.0
    http_status: int = 0
    error: str = ""


class WebhooksTable(Projection[Webhook]):
    """The addresses, and how far each has been told."""

    name: ClassVar[str] = "webhooks"
    version: ClassVar[int] = 1
    row_type = Webhook
    columns: ClassVar[tuple[str, ...]] = ("created_at",)
    kinds: ClassVar[frozenset[str]] = frozenset(
        {WebhookAdded.kind, WebhookRemoved.kind, WebhookQueued.kind}
    )

    def key(self, event: Event, payload: Payload) -> str:
        """Return the id of the webhook."""
        assert isinstance(payload, WebhookAdded | WebhookRemoved | WebhookQueued)
        return payload.webhook_id

    def apply(self, row: Webhook | None, event: Event, payload: Payload) -> Webhook | None:
        """Add, remove, or note how far it was told."""
        if isinstance(payload, WebhookAdded):
            return Webhook(
                id=payload.webhook_id,
                url=payload.url,
                types=payload.types,
                created_at=event.time,
                created_by=payload.by,
                position=payload.position,
            )
        if row is None or not isinstance(payload, WebhookQueued):
            return None
        return msgspec.structs.replace(row, position=max(row.position, payload.position))


class DeliveriesTable(Projection[Delivery]):
    """The messages, each queued once."""

    name: ClassVar[str] = "webhook_deliveries"
    version: ClassVar[int] = 1
    row_type = Delivery
    columns: ClassVar[tuple[str, ...]] = ("status", "time", "next_at", "webhook_id")
    indexes: ClassVar[tuple[tuple[str, ...], ...]] = (("status", "next_at"),)
    kinds: ClassVar[frozenset[str]] = frozenset(
        {WebhookQueued.kind, WebhookTried.kind, WebhookRedelivered.kind}
    )

    def key(self, event: Event, payload: Payload) -> str:
        """Return the id of the message."""
        assert isinstance(payload, WebhookQueued | WebhookTried | WebhookRedelivered)
        return payload.message_id

    def apply(self, row: Delivery | None, event: Event, payload: Payload) -> Delivery | None:
        """Queue once, and note what came of each attempt."""
        if isinstance(payload, WebhookQueued):
            return row or Delivery(
                id=payload.message_id,
                webhook_id=payload.webhook_id,
                type=payload.type,
                data=payload.data,
                time=payload.time,
            )
        if row is None:
            return None
        if isinstance(payload, WebhookTried):
            return msgspec.structs.replace(
                row,
                status=payload.status,
                attempts=payload.attempt,
                next_at=payload.next_at,
                http_status=payload.http_status,
                error=payload.error,
            )
        return msgspec.structs.replace(row, status="pending", attempts=0, next_at=0.0)


WEBHOOKS = WebhooksTable()
DELIVERIES = DeliveriesTable()
WEBHOOK_PROJECTIONS: tuple[AnyProjection, ...] = (WEBHOOKS, DELIVERIES)
"""The tables of this room, for the store."""

__all__ = [
    "DELIVERIES",
    "WEBHOOKS",
    "WEBHOOK_PROJECTIONS",
    "DeliveriesTable",
    "Delivery",
    "DeliveryStatus",
    "Webhook",
    "WebhookAdded",
    "WebhookQueued",
    "WebhookRedelivered",
    "WebhookRemoved",
    "WebhookTried",
    "WebhookType",
    "WebhooksTable",
]
