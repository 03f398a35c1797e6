"""A run is one trace, made from the journal: across processes, parking and sub-agents."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

from holdfast import AsyncClient
from holdfast.errors import TraceExportFailed, UsageError
from holdfast.settings import load_settings

QUESTION = "What is 15 times 23?"


class Receiver:
    """Takes OTLP over HTTP, and decodes it."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self.status == 200:
            self.requests.append(ExportTraceServiceRequest.FromString(body))
            self.headers.append(dict(request.headers))
        return web.Response(status=self.status)

    def traces(self) -> list[list[Any]]:
        return [list(one.resource_spans[0].scope_spans[0].spans) for one in self.requests]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    app = web.Application()
    app.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def open_client(place: Path, **more: object) -> AsyncClient:
    chosen = {"storage.state_dir": str(place / "state"), "workspace": str(place), **more}
    return AsyncClient(settings=load_settings(overrides=chosen).settings)


def check_tree(spans: list[Any]) -> dict[str, Any]:
    """Check that one root holds all, in one trace; returns the spans by name."""
    assert len({span.trace_id for span in spans}) == 1
    ids = {span.span_id for span in spans}
    assert len(ids) == len(spans)
    assert [span.parent_span_id for span in spans].count(b"") == 1
    assert all(span.parent_span_id in ids for span in spans if span.parent_span_id)
    assert all(0 < span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    return {span.name: span for span in spans}


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


async def test_run_is_sent_once_with_agent_models_and_tools(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with open_client(tmp_path, **{"telemetry.otlp_url": receiver.url}) as client:
        result = await client.runs.execute("build", "", QUESTION)
    async with open_client(tmp_path, **{"telemetry.otlp_url": receiver.url}):
        pass
    [spans] = receiver.traces()
    names = check_tree(spans)
    assert set(names) == {"invoke_agent build", "chat offline", "execute_tool calculator"}
    root = attributes(names["invoke_agent build"])
    assert root["gen_ai.operation.name"] == "invoke_agent"
    assert root["openinference.span.kind"] == "AGENT"
    assert (root["holdfast.run.id"], root["holdfast.run.status"]) == (result.run_id, "completed")
    called = attributes(names["execute_tool calculator"])
    assert (called["gen_ai.tool.name"], called["openinference.span.kind"]) == ("calculator", "TOOL")
    assert len(called["holdfast.tool.source_hash"]) == 64
    assert "gen_ai.tool.call.arguments" not in called
    told = attributes(names["chat offline"])
    assert (told["gen_ai.provider.name"], told["openinference.span.kind"]) == ("offline", "LLM")


async def test_old_run_is_sent_when_asked_always_the_same_and_with_content_only_then(
    tmp_path: Path, receiver: Receiver
) -> None:
    async with open_client(tmp_path) as client:
        result = await client.runs.execute("build", "", QUESTION)
        first = await client.runs.trace(result.run_id, receiver.url)
        again = await client.runs.trace(result.run_id, receiver.url, has_content=True)
        assert (first.trace_id, first.spans) == (again.trace_id, again.spans)
        with pytest.raises(UsageError):
            await client.runs.trace(result.run_id)
        receiver.status = 503
        with pytest.raises(TraceExportFailed):
            await client.runs.trace(result.run_id, receiver.url)
    bare, full = receiver.traces()
    assert [span.span_id for span in bare] == [span.span_id for span in full]
    assert b"345" not in receiver.requests[0].SerializeToString()
    called = attributes(check_tree(full)["execute_tool calculator"])
    assert called["gen_ai.tool.call.result"] == "345"


async def test_receiver_that_was_down_gets_the_trace_later(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=abc")
    receiver.status = 503
    async with open_client(tmp_path, **{"telemetry.otlp_url": receiver.url}) as client:
        await client.runs.execute("build", "", QUESTION)
        await client._runtime.traces.send_quietly()
        assert client._runtime.traces.error.startswith("telemetry.export_failed")
        receiver.status = 200
    assert len(receiver.requests) == 1
    assert receiver.headers[0]["x-key"] == "abc"


async def test_nothing_is_sent_of_what_is_not_sampled(tmp_path: Path, receiver: Receiver) -> None:
    chosen = {"telemetry.otlp_url": receiver.url, "telemetry.sample_ratio": 0.0}
    async with open_client(tmp_path, **chosen) as client:
        await client.runs.execute("build", "", QUESTION)
    assert receiver.requests == []


CHILD = """
import asyncio, os, signal, sys
from holdfast import AsyncClient, Agent, tool
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call
@tool(effect="read")
def die(value: int) -> int:
    "Die once."
    path = sys.argv[1] + "/died"
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return value
async def main():
    chosen = {"storage.state_dir": sys.argv[1] + "/state", "workspace": sys.argv[1],
              "telemetry.otlp_url": sys.argv[2]}
    agent = Agent("fragile", model=ScriptedModel([tool_call("die", value=1)], "fine"), tools=[die],
                  permission=[{"permission": "*", "action": "allow"}])
    async with AsyncClient(settings=load_settings(overrides=chosen).settings) as client:
        await client.runs.execute(agent, "", "go", run_id="run_fragile")
asyncio.run(main())
"""


async def test_trace_is_whole_after_kill_and_resume_in_another_process(
    tmp_path: Path, receiver: Receiver
) -> None:
    for expected in (-signal.SIGKILL, 0):
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", CHILD, str(tmp_path), receiver.url],
            check=False,
            capture_output=True,
            timeout=60,
        )
        assert done.returncode == expected, done.stderr.decode()
    [spans] = receiver.traces()
    names = check_tree(spans)
    assert {"invoke_agent fragile", "execute_tool die"} <= set(names)
    moments = [event.name for event in names["invoke_agent fragile"].events]
    assert moments == ["run.started", "run.resumed"]


class GrpcReceiver(TraceServiceServicer):  # type: ignore[misc]
    """OTLP's own service, as its makers generate it."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []
        self.metadata: list[dict[str, Any]] = []
        self.rejects = 0
        self.server = grpc.server(futures.ThreadPoolExecutor(1))
        add_TraceServiceServicer_to_server(self, self.server)
        self.url = f"grpc://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def Export(self, request: ExportTraceServiceRequest, context: Any) -> Any:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata()))
        answer = ExportTraceServiceResponse()
        answer.partial_success.rejected_spans = self.rejects
        return answer


@pytest.fixture
def over_grpc() -> Iterator[GrpcReceiver]:
    made = GrpcReceiver()
    made.server.start()
    yield made
    made.server.stop(None).wait(10)


async def test_trace_over_grpc_is_the_one_over_http(
    tmp_path: Path,
    receiver: Receiver,
    over_grpc: GrpcReceiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=abc")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with open_client(tmp_path, **{"telemetry.otlp_url": over_grpc.url}) as client:
        result = await client.runs.execute("build", "", QUESTION)
        await client.runs.trace(result.run_id, receiver.url)
    assert over_grpc.requests == receiver.requests
    assert over_grpc.metadata[0]["x-key"] == "abc"


async def test_receiver_over_grpc_that_takes_nothing_is_told(
    tmp_path: Path, over_grpc: GrpcReceiver
) -> None:
    async with open_client(tmp_path) as client:
        result = await client.runs.execute("build", "", QUESTION)
        over_grpc.rejects = 2
        with pytest.raises(TraceExportFailed):
            await client.runs.trace(result.run_id, over_grpc.url)
        over_grpc.server.stop(None).wait(10)
        with pytest.raises(TraceExportFailed):
            await client.runs.trace(result.run_id, over_grpc.url)
        for wrong in ("grpc://", "grpc://h:99999", "grpc://h/path", "grpc://u:p@h:1"):
            with pytest.raises(UsageError):
                await client.runs.trace(result.run_id, wrong)
