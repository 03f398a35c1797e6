"""A reader of the feed that is cancelled while a fact arrives ends."""

from __future__ import annotations

import asyncio

from holdfast.hooks import EventBus


async def test_cancellation_that_meets_a_fact_is_not_lost(bus: EventBus, note) -> None:
    async def hear(event) -> None:
        """Listen."""

    await bus.subscribe("spec.*", hear)
    await bus.settle()
    for _ in range(10):
        await asyncio.sleep(0)
    assert bus._pump is not None
    await note(1)
    bus._pump.cancel()
    done, _ = await asyncio.wait([bus._pump], timeout=30)
    assert done
