"""What a server and its leases log: each request with its id, leases taken and lost."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Running, running

from holdfast.journal import Journal, MemoryStore
from holdfast.observability import configure_logs
from holdfast.server.http import AsgiApp, Receive, Scope, Send
from holdfast.sessions import SESSION_PROJECTIONS, SessionManager
from holdfast.settings import load_settings
from holdfast.testing import FakeClock
from holdfast.turns import LeaseKeeper


class Log:
    """Lines of this process."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    def find(self, action: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in lines if line["message"] == action]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    chosen = {"log.level": "debug", "log.format": "json", "workspace": str(tmp_path)}
    made = Log()
    restore = configure_logs(load_settings(overrides=chosen).settings, stream=made.stream)
    yield made
    restore()


async def test_each_request_is_one_line_and_what_it_caused_has_its_id(
    server: Running, log: Log
) -> None:
    _, found = await server.ask(
        "POST",
        "/v1/runs/wait",
        {"user_message": "What is 15 times 23?"},
        headers={"X-Request-ID": "req-of-mine-1"},
    )
    run_id = found["run_id"]
    await server.ask("GET", "/v1/runs/run_nothing", headers={"X-Request-ID": "req-of-mine-2"})
    await server.ask("GET", "/health")
    first, second, probe = log.find("request.ended")
    assert first["http.request.id"] == "req-of-mine-1"
    assert (first["http.response.status_code"], first["log.level"]) == (200, "info")
    assert first["holdfast.operation"] == "runs.execute"
    assert first["event.duration"] > 0
    assert second["http.response.status_code"] == 404
    assert probe["log.level"] == "debug"
    [started] = log.find("run.started")
    assert (started["holdfast.run.id"], started["http.request.id"]) == (run_id, "req-of-mine-1")


async def test_request_that_fails_is_told_with_its_traceback(tmp_path: Path, log: Log) -> None:
    class Broken:
        """Breaks what the application asks for."""

        def __init__(self, app: AsgiApp) -> None:
            self.app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await self.app(scope, receive, send)

    async with running(tmp_path, middleware=[Broken]) as server:

        async def fail(*_: object) -> None:
            raise RuntimeError("out of order")

        server.app.pages[("GET", "/broken")] = fail
        status, problem = await server.ask("GET", "/broken")
    assert status == 500
    [line] = log.find("request failed")
    assert "RuntimeError: out of order" in line["error.stack_trace"]
    assert line["http.request.id"] == problem["request_id"]


async def test_lease_that_is_taken_and_lost_is_logged_with_its_epoch(log: Log) -> None:
    clock = FakeClock()
    journal = Journal(MemoryStore(projections=SESSION_PROJECTIONS, clock=clock), clock=clock)
    await journal.open()
    keeper, thief = LeaseKeeper(journal), LeaseKeeper(journal)
    session = await SessionManager(journal, keeper).create_session("leased")
    mine = await keeper.acquire(session.id)
    assert mine is not None
    theirs = None
    while theirs is None:
        clock.advance(31)
        theirs = await thief.acquire(session.id)
    await asyncio.to_thread(keeper._renew)
    taken = log.find("lease.taken")
    assert [line["holdfast.epoch"] for line in taken] == [mine.epoch, theirs.epoch]
    [lost] = log.find("lease.lost")
    assert (lost["holdfast.session.id"], lost["holdfast.epoch"]) == (session.id, mine.epoch)
    assert (lost["log.level"], bool(lost["event.reason"])) == ("warning", True)
    await thief.release(theirs)
    keeper.close()
    thief.close()
    await journal.close()
