"""What a lifecycle hears of, and what it does not."""

from __future__ import annotations

from holdfast.hooks import BusEvent
from holdfast.sessions import Session, SessionManager
from holdfast.sessions.lifecycle import SessionLifecycle, make_lifecycle_handler


class _Heard(SessionLifecycle):
    def __init__(self) -> None:
        self.names: list[str] = []

    async def on_session_created(self, session: Session) -> None:
        self.names.append("created")


async def test_session_that_is_gone_meanwhile_is_passed_over(
    manager: SessionManager, session: Session
) -> None:
    heard = _Heard()
    handle = make_lifecycle_handler(manager, heard)
    [created] = await manager.journal.read(session.id, limit=1)
    event = BusEvent(name=created.kind, time=created.time, fact=created)
    await handle(event)
    await manager.delete_session(session.id)
    await handle(event)
    assert heard.names == ["created"]
