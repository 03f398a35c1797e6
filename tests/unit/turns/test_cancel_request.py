"""A request to cancel reaches whoever waits for it, and ends what is under way."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.turns.turn import CancelRequest


async def test_a_request_ends_what_is_under_way() -> None:
    asked = CancelRequest()
    asyncio.get_running_loop().call_soon(asked.set)
    with pytest.raises(TimeoutError):
        async with asked.ending():
            await asyncio.Event().wait()
    async with asyncio.timeout(5):
        await asked.wait()


async def test_a_request_that_was_made_before_ends_it_at_once() -> None:
    asked = CancelRequest()
    asked.set()
    with pytest.raises(TimeoutError):
        async with asked.ending():
            await asyncio.Event().wait()


async def test_time_ends_it_too_and_says_that_nobody_asked() -> None:
    asked = CancelRequest()
    with pytest.raises(TimeoutError):
        async with asked.ending(0):
            await asyncio.Event().wait()
    assert not asked.is_set()


async def test_asking_again_while_it_ends_changes_nothing() -> None:
    asked = CancelRequest()
    asyncio.get_running_loop().call_soon(asked.set)
    with pytest.raises(TimeoutError):
        async with asked.ending():
            try:
                await asyncio.Event().wait()
            finally:
                asked.set()


async def test_what_has_ended_before_is_left_alone() -> None:
    asked = CancelRequest()
    async with asked.ending():
        pass
    asked.set()
    await asyncio.sleep(0)
