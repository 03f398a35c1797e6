"""Streams: each stored event exactly once, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from served import Running, running, until

from holdfast import Agent, tool
from holdfast.server import streams
from holdfast.testing import ScriptedModel, tool_call


class Gate:
    """A tool that waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()
        self.calls = 0

    def agent(self) -> Agent:
        """An agent that calls it once, then answers."""

        @tool
        async def wait_here() -> str:
            """Wait."""
            self.calls += 1
            self.reached.set()
            await self.open.wait()
            return "open"

        model = ScriptedModel(tool_call("wait_here"), "It is open.")
        return Agent("waiter", model=model, tools=[wait_here])


async def read_events(content: aiohttp.StreamReader) -> AsyncIterator[dict[str, str]]:
    rest = b""
    async for chunk in content.iter_any():
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            lines = [line.partition(b": ") for line in block.split(b"\n")]
            yield {name.decode(): value.decode() for name, _, value in lines if name}


async def collect(server: Running, path: str, **headers: str) -> list[dict[str, str]]:
    async with server.http.get(server.url + path, headers=headers) as response:
        assert response.status == 200, await response.text()
        return [event async for event in read_events(response.content) if "event" in event]


async def test_ids_are_the_sequence_and_the_last_event_is_the_result(server: Running) -> None:
    run_id = await server.run()
    events = await collect(server, f"/v1/runs/{run_id}/stream")
    names = [event["event"] for event in events]
    assert names[0] == "stream.opened"
    assert names[-2:] == ["result", "stream.ended"]
    stored = [event for event in events if "id" in event]
    numbers = [int(event["id"]) for event in stored]
    assert numbers == sorted(set(numbers))
    for event in stored:
        told = json.loads(event["data"])
        assert (told["session_seq"], told["kind"]) == (int(event["id"]), event["event"])


async def test_coming_back_with_the_last_id_gives_exactly_what_was_missed(server: Running) -> None:
    run_id = await server.run()
    everything = [e for e in await collect(server, f"/v1/runs/{run_id}/events") if "id" in e]
    for at, event in enumerate(everything):
        path = f"/v1/runs/{run_id}/events"
        rest = await collect(server, path, **{"Last-Event-ID": event["id"]})
        assert [e for e in rest if "id" in e] == everything[at + 1 :]
    status, problem = await server.ask(
        "GET", f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": "x"}
    )
    assert (status, problem["code"]) == (400, "request.invalid")


async def test_kinds_and_lines(server: Running) -> None:
    run_id = await server.run()
    only = await collect(server, f"/v1/runs/{run_id}/events?kinds=run.*")
    assert {e["event"].partition(".")[0] for e in only} == {"run", "stream"}
    accept = {"Accept": "application/x-ndjson"}
    async with server.http.get(
        f"{server.url}/v1/runs/{run_id}/events?kinds=run.completed", headers=accept
    ) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) for line in (await response.read()).splitlines()]
    assert [line["event"] for line in lines] == ["run.completed", "stream.ended"]
    assert lines[0]["data"]["run_id"] == run_id


async def test_a_run_that_is_not_there_is_a_problem_and_no_stream(server: Running) -> None:
    for path in ("/v1/runs/run_none/stream", "/v1/runs/run_none/events"):
        status, problem = await server.ask("GET", path)
        assert (status, problem["code"]) == (404, "usage.not_found")


async def test_many_followers_share_one_reader_and_see_the_same(tmp_path: Path) -> None:
    gate = Gate()
    async with running(tmp_path, agents=[gate.agent()]) as server:
        body = {"agent_name": "waiter", "user_message": "go"}
        _, run = await server.ask("POST", "/v1/runs", body)
        await gate.reached.wait()
        path = f"/v1/runs/{run['id']}/events"
        [runtime] = server.app.runtimes.list_open()
        others = runtime.feed.subscribers
        tasks = [asyncio.create_task(collect(server, path)) for _ in range(20)]
        await until(lambda: runtime.feed.subscribers == others + 20)
        before = runtime.feed.pages_read
        gate.open.set()
        seen = await asyncio.gather(*tasks)
        assert all(events == seen[0] for events in seen)
        assert seen[0][-2]["event"] == "run.completed"
        assert runtime.feed.pages_read - before < 40
        await until(lambda: runtime.feed.subscribers == others)


async def test_a_late_subscriber_gets_the_pieces_of_the_present_message(tmp_path: Path) -> None:
    gate = Gate()
    async with running(tmp_path, agents=[gate.agent()]) as server:
        body = {"agent_name": "waiter", "user_message": "go"}
        async with server.http.post(server.url + "/v1/runs/stream", json=body) as response:
            events = read_events(response.content)
            early = []
            async for event in events:
                early.append(event)
                if event.get("event") == "stream.opened":
                    gate.open.set()
            names = [event.get("event") for event in early]
        assert "text" in names and "finished" in names
        assert names[-2:] == ["result", "stream.ended"]


async def test_leaving_a_stream_leaves_the_run(tmp_path: Path) -> None:
    gate = Gate()
    async with running(tmp_path, agents=[gate.agent()]) as server:
        body = {"agent_name": "waiter", "user_message": "go"}
        async with server.http.post(server.url + "/v1/runs/stream", json=body) as response:
            async for event in read_events(response.content):
                if event.get("event") == "stream.opened":
                    run_id = json.loads(event["data"])["run_id"]
                    break
            await gate.reached.wait()
        await until(lambda: not server.app.streams)
        gate.open.set()
        _, result = await server.ask("GET", f"/v1/runs/{run_id}/result")
        assert result["response"] == "It is open."


async def test_silent_streams_send_heartbeats(tmp_path: Path) -> None:
    async with running(tmp_path, heartbeat_s=0.05) as server:
        async with server.http.get(server.url + "/v1/events") as response:
            seen = b""
            async with asyncio.timeout(5):
                while seen.count(b": still here") < 2:
                    seen += await response.content.readany()


async def test_draining_says_no_and_lets_streams_say_goodbye(tmp_path: Path) -> None:
    gate = Gate()
    async with running(tmp_path, agents=[gate.agent()], grace_s=5.0) as server:
        body = {"agent_name": "waiter", "user_message": "go"}
        _, run = await server.ask("POST", "/v1/runs", body)
        await gate.reached.wait()
        async with server.http.get(f"{server.url}/v1/runs/{run['id']}/stream") as response:
            events = read_events(response.content)
            async for event in events:
                if event.get("event") == "stream.opened":
                    break
            server.server.handle_exit(15, None)
            names = [event.get("event") async for event in events]
            assert names[-1] == "stream.goodbye"
        assert (await server.ask("GET", "/ready"))[0] == 503
        status, problem = await server.ask("POST", "/v1/runs", body)
        assert (status, problem["code"]) == (503, "server.draining")
        # The turn has its time, and ends in it.
        gate.open.set()
    async with running(tmp_path) as again:
        _, found = await again.ask("GET", f"/v1/runs/{run['id']}")
        assert found["status"] == "completed"


async def test_what_did_not_end_in_its_time_goes_on_after_the_restart(tmp_path: Path) -> None:
    first, second = Gate(), Gate()
    async with running(tmp_path, agents=[first.agent()], grace_s=0.2) as server:
        body = {"agent_name": "waiter", "user_message": "go", "on_ask": "park"}
        _, run = await server.ask("POST", "/v1/runs", body)
        await first.reached.wait()
    second.open.set()
    async with running(tmp_path, agents=[second.agent()]) as again:
        async with asyncio.timeout(20):
            _, result = await again.ask("GET", f"/v1/runs/{run['id']}/result")
        assert result["status"] in ("completed", "parked")
        _, found = await again.ask("GET", f"/v1/runs/{run['id']}")
        assert found["status"] != "cancelled"


@pytest.mark.parametrize("kept", [1, 3])
async def test_a_follower_who_falls_behind_reads_the_store_and_misses_nothing(
    server: Running, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.runtime.feed._KEPT", kept)
    [runtime] = server.app.runtimes.list_open()
    run_id = await server.run()
    run = await runtime.turns.get(run_id)
    everything = await runtime.journal.read_all(run.session_id)
    all_of_it: list[Any] = []
    feed, session = runtime.feed.follow_all(after=0), runtime.feed.follow_session(run.session_id)
    first = [await anext(feed), await anext(session)]
    _, more = await server.ask(
        "POST", f"/v1/sessions/{run.session_id}/messages", {"role": "user", "content": "x"}
    )
    last = await runtime.journal.read_last_seq()
    all_of_it.append(first[0])
    while all_of_it[-1].seq < last:
        all_of_it.append(await anext(feed))
    assert [one.seq for one in all_of_it] == list(range(1, last + 1))
    mine = [first[1]]
    while len(mine) < len(everything) + 1:
        mine.append(await anext(session))
    assert [one.session_seq for one in mine] == list(range(1, len(mine) + 1))
    await feed.aclose()
    await session.aclose()


async def test_a_stream_that_has_nothing_to_say_begins_all_the_same(tmp_path: Path) -> None:
    async with running(tmp_path, heartbeat_s=0.1) as server:
        url = f"{server.url}/v1/state/changes?prefix=user/"
        async with server.http.get(url) as response:
            assert response.status == 200
            async with asyncio.timeout(10):
                while not (await response.content.readline()).startswith(b": still here"):
                    pass
            body = {"address": "user/city", "value": "Ulm"}
            assert (await server.ask("PUT", "/v1/state/value", body))[0] == 200
            async with asyncio.timeout(10):
                while b"Ulm" not in await response.content.readline():
                    pass
        await until(lambda: not server.app.streams)
        # What is refused has a status of its own, not a line in a stream.
        status, found = await server.ask("GET", "/v1/runs/run_none/stream")
        assert (status, found["code"]) == (404, "usage.not_found")


async def test_a_first_event_that_comes_with_the_head_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "_HEAD_S", 0.0)
    go, sent = asyncio.Event(), []

    async def events() -> AsyncGenerator[streams.StreamEvent, None]:
        await go.wait()
        yield streams.StreamEvent("first", b"{}", "1")
        yield streams.StreamEvent("second", b"{}", "2")

    class Request:
        async def receive(self) -> dict[str, str]:
            await asyncio.Event().wait()
            return {}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            # The event comes while the head is on its way.
            go.set()
            for _ in range(10):
                await asyncio.sleep(0)
        sent.append(message.get("body", b""))

    stream = streams.EventStream(
        events(), media_type=streams.SSE, heartbeat_s=5.0, request_id="req_1"
    )
    async with asyncio.timeout(10):
        await stream.send_all(Request(), send, [])  # type: ignore[arg-type]
    told = b"".join(sent)
    assert b"event: first" in told and b"event: second" in told
