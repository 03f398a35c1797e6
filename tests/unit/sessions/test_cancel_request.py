"""A request to cancel reaches whoever waits for it, and whoever wants to be called."""

from __future__ import annotations

import asyncio

from holdfast.sessions.turns import CancelRequest


async def test_whoever_wants_to_know_is_called_at_once() -> None:
    asked, calls = CancelRequest(), list[str]()
    asked.call(lambda: calls.append("first"))
    assert calls == []
    asked.set()
    assert calls == ["first"]
    async with asyncio.timeout(5):
        await asked.wait()


async def test_who_comes_late_is_called_and_who_has_left_is_not() -> None:
    asked, calls = CancelRequest(), list[str]()
    asked.call(lambda: calls.append("left"))
    asked.call(None)
    asked.set()
    assert calls == []
    asked.call(lambda: calls.append("late"))
    assert calls == ["late"]
