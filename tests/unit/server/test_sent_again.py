"""Requests with a key that are sent again: after a refusal, meanwhile, and after a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from served import Running, running

from holdfast import Agent, tool
from holdfast.operations import OWNER, REPEATABLE, ROUTES, list_operations
from holdfast.testing import FunctionModel, tool_call


@tool(permission="ask")
async def erase(what: str) -> str:
    """Erase something.

    Args:
        what: What to erase.
    """
    return what


def answer(request: Any) -> Any:
    done = [m for m in request.messages if m.role == "assistant"]
    return "done" if done else tool_call("erase", what="all")


def agent() -> Agent:
    return Agent("eraser", model=FunctionModel(answer), tools=[erase])


async def ask_and_crash(
    server: Running, path: str, body: dict[str, Any], key: str
) -> tuple[int, Any]:
    """Ask a server that dies when it has done what was asked, before it has kept the answer."""
    runtime = await server.app.runtimes.runtime_for(OWNER)

    async def forget(*args: Any, **more: Any) -> None:
        """Keep nothing."""

    kept = runtime.idempotency.keep_answer
    runtime.idempotency.keep_answer = forget
    try:
        return await server.ask("POST", path, body, headers={"Idempotency-Key": key})
    finally:
        runtime.idempotency.keep_answer = kept


async def park(server: Running) -> dict[str, Any]:
    body = {"agent_name": "eraser", "user_message": "go", "on_ask": "park"}
    _, run = await server.ask("POST", "/v1/runs/wait", body)
    assert run["status"] == "parked", run
    _, found = await server.ask("GET", "/v1/approvals")
    return found["items"][0]


async def test_a_refusal_is_the_same_when_it_is_asked_again(server: Running) -> None:
    key = {"Idempotency-Key": "one"}
    path = "/v1/approvals/apr_missing/deny"
    first = await server.ask("POST", path, {"reason": "no"}, headers=key)
    assert first[0] == 404
    assert await server.ask("POST", path, {"reason": "no"}, headers=key) == first
    assert (await server.ask("POST", path, {"reason": "other"}, headers=key))[0] == 422


async def test_what_does_no_harm_twice_is_done_again_after_a_crash(server: Running) -> None:
    key = {"Idempotency-Key": "one"}
    await ask_and_crash(server, "/v1/storage/clean-up", {}, "one")
    assert (await server.ask("POST", "/v1/storage/clean-up", {}, headers=key))[0] == 200


async def test_what_creates_something_is_left_in_doubt_after_a_crash(server: Running) -> None:
    key = {"Idempotency-Key": "one"}
    await ask_and_crash(server, "/v1/sessions", {"title": "a"}, "one")
    status, problem = await server.ask("POST", "/v1/sessions", {"title": "a"}, headers=key)
    assert (status, problem["code"]) == (409, "request.in_doubt")
    _, found = await server.ask("GET", "/v1/sessions")
    assert len(found["items"]) == 1


@pytest.mark.parametrize("verdict", ["approve", "deny"])
async def test_an_answer_that_a_crash_left_open_counts_once(tmp_path: Path, verdict: str) -> None:
    async with running(tmp_path, agents=[agent()]) as server:
        asked = await park(server)
        path, body = f"/v1/approvals/{asked['id']}/{verdict}", {"by": "ann", "reason": "so"}
        # It was done, and the answer was lost: sent again it is found, not refused.
        status, done = await ask_and_crash(server, path, body, "one")
        assert status == 200, done
        key = {"Idempotency-Key": "one"}
        status, again = await server.ask("POST", path, body, headers=key)
        assert (status, again["votes"]) == (200, done["votes"])
        # Another answer than the one that was given is none.
        other = {**body, "reason": "else"}
        status, problem = await ask_and_crash(server, path, other, "two")
        assert (status, problem["code"]) == (409, "approval.expired")
        key = {"Idempotency-Key": "two"}
        assert (await server.ask("POST", path, other, headers=key))[0] == 409


async def test_who_asks_while_the_first_is_answered_is_told_to_wait(server: Running) -> None:
    runtime = await server.app.runtimes.runtime_for(OWNER)
    begun, go = asyncio.Event(), asyncio.Event()
    found = runtime.idempotency.keep_answer

    async def keep_later(*args: Any, **more: Any) -> None:
        begun.set()
        await go.wait()
        await found(*args, **more)

    runtime.idempotency.keep_answer = keep_later
    ask = {"headers": {"Idempotency-Key": "one"}}
    first = asyncio.create_task(server.ask("POST", "/v1/sessions", {"title": "a"}, **ask))
    async with asyncio.timeout(10):
        await begun.wait()
    status, problem = await server.ask("POST", "/v1/sessions", {"title": "a"}, **ask)
    assert (status, problem["code"], problem["is_retryable"]) == (409, "request.under_way", True)
    go.set()
    assert await server.ask("POST", "/v1/sessions", {"title": "a"}, **ask) == await first


def test_repeatable_operations_are_there_and_create_nothing() -> None:
    assert set(list_operations()) >= REPEATABLE
    assert not [name for name in REPEATABLE if ROUTES[name].status == 201 and "grant" not in name]
    assert not [name for name in REPEATABLE if ROUTES[name].is_secret]
