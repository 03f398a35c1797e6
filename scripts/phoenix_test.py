"""Send the trace of a run to a real Phoenix, and ask it what it has understood."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from holdfast import Agent, AsyncClient, tool
from holdfast.messages import TokenUsage
from holdfast.settings import load_settings
from holdfast.testing import FakeServer, Recorded, Reply, ScriptedCall

MODEL = "gpt-4o-mini"
USAGE = TokenUsage(input=1000, output=100)


@tool(effect="read")
def look(where: str) -> str:
    """Look somewhere."""
    return f"{where}: all is green"


def answer(recorded: Recorded) -> Reply:
    """The lead asks its helper, the helper looks, both say what they saw."""
    asked = recorded.body.decode()
    has_result = "function_call_output" in asked or '"role":"tool"' in asked
    if has_result:
        return Reply(text="All is green.", usage=USAGE)
    if '"name":"helper"' in asked:
        arguments = '{"task": "Look at the gate."}'
        return Reply(calls=(ScriptedCall(name="helper", arguments=arguments),), usage=USAGE)
    arguments = '{"where": "gate"}'
    return Reply(calls=(ScriptedCall(name="look", arguments=arguments),), usage=USAGE)


def find_free_port() -> int:
    """Return a port that nothing listens on just now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.asynccontextmanager
async def serve_phoenix(program: str, place: Path) -> AsyncIterator[str]:
    """Run Phoenix on loopback, without telemetry of its own; yields its address."""
    port = find_free_port()
    process = await asyncio.create_subprocess_exec(
        program,
        "serve",
        env={
            **os.environ,  # noqa: TID251 - a foreign program's
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(port),
            "PHOENIX_GRPC_PORT": str(find_free_port()),
            "PHOENIX_WORKING_DIR": str(place),
            "PHOENIX_TELEMETRY_ENABLED": "false",
            "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
        },
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(180), aiohttp.ClientSession() as http:
            while True:
                if process.returncode is not None:
                    raise RuntimeError(f"phoenix ended with {process.returncode}")
                with contextlib.suppress(aiohttp.ClientError):
                    async with http.get(url + "/healthz") as response:
                        if response.status == 200:
                            break
                await asyncio.sleep(0.5)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def read_spans(url: str, count: int) -> list[dict[str, Any]]:
    """Return what Phoenix has, once it has so many spans."""
    async with asyncio.timeout(60), aiohttp.ClientSession() as http:
        while True:
            address = f"{url}/v1/projects/default/spans?limit=100"
            async with http.get(address) as response:
                found = (await response.json()).get("data", []) if response.status == 200 else []
            if len(found) >= count:
                return list(found)
            await asyncio.sleep(0.5)


def check(spans: list[dict[str, Any]], run_id: str) -> None:
    """Hold kinds, tree, tokens and cost against what was done."""
    kinds = sorted(span["span_kind"] for span in spans)
    assert kinds == ["AGENT"] * 2 + ["LLM"] * 4 + ["TOOL"] * 2, kinds
    assert len({span["context"]["trace_id"] for span in spans}) == 1, "more than one trace"
    known = {span["context"]["span_id"]: span for span in spans}
    roots = [span for span in spans if not span["parent_id"]]
    assert len(roots) == 1 and roots[0]["name"] == "invoke_agent lead", roots
    for span in spans:
        assert not span["parent_id"] or span["parent_id"] in known, f"orphan: {span['name']}"
    [helper] = [span for span in spans if span["name"] == "invoke_agent helper"]
    assert known[helper["parent_id"]]["name"] == "execute_tool helper"
    for span in spans:
        attributes = span["attributes"]
        if span["span_kind"] == "LLM":
            assert attributes["llm.token_count.prompt"] == USAGE.input, attributes
            assert attributes["llm.token_count.completion"] == USAGE.output, attributes
            assert attributes["llm.cost.total"] > 0, attributes
            assert attributes["llm.model_name"] == MODEL, attributes
        if span["span_kind"] == "TOOL":
            assert attributes["tool.name"] in ("look", "helper"), attributes
    assert roots[0]["attributes"]["holdfast.run.id"] == run_id


async def main() -> None:
    """Run, send, ask."""
    with tempfile.TemporaryDirectory(prefix="holdfast-phoenix-") as name:
        place = Path(name)
        async with (
            serve_phoenix(sys.argv[1], place / "phoenix") as url,
            FakeServer(script=answer, models=(MODEL,)) as server,
        ):
            chosen = {
                "storage.state_dir": str(place / "state"),
                "workspace": str(place),
                "model.openai_base_url": server.base_url,
            }
            async with AsyncClient(settings=load_settings(overrides=chosen).settings) as client:
                helper = Agent("helper", model=f"openai:{MODEL}", tools=[look])
                lead = Agent(
                    "lead", model=f"openai:{MODEL}", tools=[helper.as_tool(description="Looks.")]
                )
                result = await client.execute_agent(lead, "", "Is the gate green?")
                assert result.status == "completed", result
                sent = await client.runs.trace(result.run_id, url)
            spans = await read_spans(url, sent.spans)
            check(spans, result.run_id)
            sys.stdout.write(
                f"Phoenix has {len(spans)} spans in one trace: agents, models and tools, "
                "their tree, tokens and cost are right.\n"
            )


if __name__ == "__main__":
    asyncio.run(main())
