"""SessionLifecycle: methods that are called when sessions change, here or elsewhere."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from holdfast.errors import NotFound
from holdfast.hooks import BusEvent
from holdfast.journal import Event
from holdfast.messages import Message
from holdfast.sessions.events import MessageCreated
from holdfast.sessions.manager import SessionManager
from holdfast.sessions.session import Session

LIFECYCLE_EVENTS: tuple[str, ...] = ("session.*", "message.created")
"""What to subscribe to for a lifecycle."""


class SessionLifecycle:
    """Override the methods that you need, and hand the object to `client.events.follow_sessions`.

    Each is called after the fact is stored, by this process or another, at least once: keep
    the subscription's `position` and go on after it, and a call that a crash interrupted is
    repeated. Sessions are handed over as they are now, messages as they were added.
    """

    async def on_session_created(self, session: Session) -> None:
        """A session began."""

    async def on_session_updated(self, session: Session) -> None:
        """A session's fields or its state changed."""

    async def on_message_added(self, session: Session, message: Message) -> None:
        """A message joined the conversation."""

    async def on_session_archived(self, session: Session) -> None:
        """A session was put away."""

    async def on_session_compacted(self, session: Session) -> None:
        """A summary stands for the earlier part of the conversation from now on."""


def make_lifecycle_handler(
    sessions: SessionManager, lifecycle: SessionLifecycle
) -> Callable[[BusEvent], Awaitable[None]]:
    """Return the handler that calls a lifecycle's methods.

    What happened in a session that was deleted meanwhile is passed over: there is no session
    to hand over any more.
    """

    async def handle(event: BusEvent) -> None:
        fact = event.fact
        if fact is None or fact.kind == "session.deleted":
            return
        try:
            session = await sessions.get_session(fact.session_id)
        except NotFound:
            return
        await _call(lifecycle, session, fact)

    return handle


async def _call(lifecycle: SessionLifecycle, session: Session, fact: Event) -> None:
    if fact.kind == "session.created":
        await lifecycle.on_session_created(session)
    elif fact.kind == "session.archived":
        await lifecycle.on_session_archived(session)
    elif fact.kind == "message.created":
        message = fact.expect(MessageCreated).message
        added = msgspec.structs.replace(message, session_id=session.id)
        await lifecycle.on_message_added(session, added)
    elif fact.kind == "session.compacted":
        await lifecycle.on_session_compacted(session)
    else:
        await lifecycle.on_session_updated(session)


__all__ = ["LIFECYCLE_EVENTS", "SessionLifecycle", "make_lifecycle_handler"]
