"""What a run over HTTP costs, against the same run in the process of its client.

A conversation of ten tool rounds with a scripted model: started and streamed to its end over
HTTP, the CPU that the server's process took; and in process, the CPU of `client.runs.stream`.
Both in turns. Then many runs at once, many open streams, how long an event takes from the
journal to a client, and how long a server takes to be ready.

With `--peers PYTHON`, an interpreter that has them (`./scripts/bench-server-peers` makes one), the
same conversation through agno's AgentOS and Google's ADK, each with a SQLite file of its own, in
turns with ours.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median, quantiles

import aiohttp
from _report import Result, add_arguments, interleave, report

from holdfast import Agent, AsyncClient, tool
from holdfast.messages import ToolPart
from holdfast.providers import ModelRequest
from holdfast.settings import process_environment
from holdfast.testing import FunctionModel, tool_call

ROUNDS = 10
_TICK = os.sysconf("SC_CLK_TCK")
_NOTHING: Mapping[str, str] = {}


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


def _think(request: ModelRequest) -> ToolPart | str:
    done = sum(len(one.tool_calls) for one in request.messages if one.role == "assistant")
    return tool_call("look", at=str(done)) if done < ROUNDS else "All of it was seen."


worker = Agent("worker", model=FunctionModel(_think), tools=[look], steps=ROUNDS + 2)


class ServerProcess:
    """What a server's process takes."""

    def __init__(self, process: subprocess.Popen[bytes], url: str) -> None:
        """Look at this one."""
        self.process = process
        self.url = url

    @property
    def cpu_s(self) -> float:
        """User and system time of the process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    @property
    def rss_kb(self) -> int:
        """Memory of the process."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(text.partition("VmRSS:")[2].split()[0])


class Served(ServerProcess):
    """A server of ours in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
        """Ask this one."""
        super().__init__(process, url)
        token = json.loads((folder / "state" / "server-token.json").read_text())["token"]
        self.headers = {"Authorization": f"Bearer {token}"}


@contextlib.contextmanager
def serve(
    folder: Path, *target: str, environment: Mapping[str, str] = _NOTHING
) -> Iterator[Served]:
    """Serve the target until the block ends."""
    words = ["--stream-json", "--state-dir", "state", "--workspace", "."]
    here = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words, "serve", *target, "--port", "0"],
        cwd=folder,
        stdout=subprocess.PIPE,
        env={**process_environment(), "PYTHONPATH": here, **environment},
    )
    assert process.stdout is not None
    try:
        yield Served(process, json.loads(process.stdout.readline())["url"], folder)
    finally:
        process.terminate()
        process.wait()


async def run_over_http(session: aiohttp.ClientSession, url: str) -> list[float]:
    """Start a run and read its stream to the end; returns how late each event came."""
    late: list[float] = []
    body = {"agent_name": "worker", "user_message": "Look around"}
    async with session.post(f"{url}/v1/runs/stream", json=body) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if line.startswith(b'data: {"seq"'):
                now = time.time()  # noqa: TID251 - compared with the time of the journal
                late.append(now - json.loads(line[6:])["time"])
    return late


@contextlib.contextmanager
def serve_peer(python: str, name: str) -> Iterator[ServerProcess]:
    """Serve the conversation with a peer until the block ends."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    script = Path(__file__).parent / "_peers" / f"{name}.py"
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "log", "wb") as log:
        process = subprocess.Popen(
            [python, str(script), str(port)], cwd=folder, stdout=log, stderr=log
        )
        try:
            deadline = time.monotonic() + 120
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((Path(folder) / "log").read_text())
                time.sleep(0.1)
            yield ServerProcess(process, f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait()


async def run_at_agentos(session: aiohttp.ClientSession, url: str) -> None:
    """Start a run and read its stream to the end."""
    form = aiohttp.FormData({"message": "Look around", "stream": "true"})
    async with session.post(f"{url}/agents/worker/runs", data=form) as response:
        text = await response.text()
        assert response.status == 200 and text.count("event: ToolCallCompleted") == ROUNDS, text


async def run_at_adk(session: aiohttp.ClientSession, url: str) -> None:
    """Start a run and read its stream to the end."""
    said = {"role": "user", "parts": [{"text": "Look around"}]}
    body = {"appName": "worker", "userId": "u", "sessionId": uuid.uuid4().hex, "newMessage": said}  # noqa: TID251 - a peer's id
    async with session.post(f"{url}/run_sse", json=body) as response:
        text = await response.text()
        assert response.status == 200 and text.count('"functionResponse"') == ROUNDS, text


PEERS = {"agentos": run_at_agentos, "adk": run_at_adk}


def compare_with_peers(
    loop: asyncio.AbstractEventLoop, served: Served, python: str, runs: int
) -> list[Result]:
    """Measure a streamed run of each server, in turns: CPU of its process, time, and memory."""
    session = loop.run_until_complete(_session(served))
    bare = loop.run_until_complete(_open_bare())
    times: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        servers: dict[str, ServerProcess] = {"holdfast": served}
        for name in PEERS:
            servers[name] = stack.enter_context(serve_peer(python, name))

        async def ask(name: str) -> None:
            for _ in range(runs):
                begun = time.perf_counter()
                if name == "holdfast":
                    await run_over_http(session, served.url)
                else:
                    await PEERS[name](bare, servers[name].url)
                times.setdefault(name, []).append((time.perf_counter() - begun) * 1000)

        def measure(name: str) -> float:
            start = servers[name].cpu_s
            loop.run_until_complete(ask(name))
            return (servers[name].cpu_s - start) / runs * 1000

        cases: dict[str, Callable[[], float]] = {
            name: functools.partial(measure, name) for name in servers
        }
        cpu = {name: median(found) for name, found in interleave(cases, 5).items()}
        rss = {name: one.rss_kb / 1024 for name, one in servers.items()}
    loop.run_until_complete(session.close())
    loop.run_until_complete(bare.close())
    results = []
    for figures, what in ((cpu, "CPU ms"), ({n: median(t) for n, t in times.items()}, "ms")):
        for name, value in figures.items():
            results.append(Result(metric=f"streamed run, {name}, {what}", value=value))
        for name in PEERS:
            ratio = figures["holdfast"] / figures[name]
            metric = f"streamed run, {what}, holdfast / {name}"
            results.append(Result(metric=metric, value=ratio, goal="<= 0.25", ok=ratio <= 0.25))
    for name, value in rss.items():
        results.append(Result(metric=f"memory after them, {name}, MB", value=value))
    return results


async def _open_bare() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


async def open_streams(session: aiohttp.ClientSession, served: Served, count: int) -> float:
    """Return the KB of the server's memory that each open stream takes."""
    before = served.rss_kb
    opened = [await session.get(f"{served.url}/v1/events") for _ in range(count)]
    for response in opened:
        await response.content.readline()
    taken = (served.rss_kb - before) / count
    for response in opened:
        response.close()
    return taken


def compare(
    loop: asyncio.AbstractEventLoop, served: Served, folder: Path, runs: int
) -> list[Result]:
    """Measure a run over HTTP and the same in process, in turns."""
    session = loop.run_until_complete(_session(served))
    client = AsyncClient(folder / "here")
    loop.run_until_complete(client.register_agent(worker))

    async def in_process() -> None:
        for _ in range(runs):
            async for _item in client.runs.stream("worker", "", "Look around"):
                pass

    async def over_http() -> None:
        for _ in range(runs):
            await run_over_http(session, served.url)

    def measure_here() -> float:
        start = time.process_time()
        loop.run_until_complete(in_process())
        return (time.process_time() - start) / runs * 1000

    def measure_there() -> float:
        start = served.cpu_s
        loop.run_until_complete(over_http())
        return (served.cpu_s - start) / runs * 1000

    found = interleave({"here": measure_here, "there": measure_there}, 5)
    here, there = median(found["here"]), median(found["there"])
    loop.run_until_complete(client.close())
    loop.run_until_complete(session.close())
    ratio = there / here
    return [
        Result(metric="run in process, CPU ms", value=here),
        Result(metric="run over HTTP, CPU ms of the server", value=there),
        Result(metric="over HTTP / in process", value=ratio, goal="<= 1.6", ok=ratio <= 1.6),
    ]


async def _session(served: Served) -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(headers=served.headers, connector=connector)


async def crowd(served: Served, at_once: int, streams: int) -> list[Result]:
    """Measure many runs at once, and many streams that are open."""
    async with await _session(served) as session:
        start = time.perf_counter()
        late = await asyncio.gather(*(run_over_http(session, served.url) for _ in range(at_once)))
        taken = time.perf_counter() - start
        few = await asyncio.gather(*(run_over_http(session, served.url) for _ in range(100)))
        kb = await open_streams(session, served, streams)
    p95 = quantiles([one for each in few for one in each], n=20)[-1] * 1000
    complete = sum(1 for each in late if len(each) >= ROUNDS)
    return [
        Result(metric=f"{at_once} runs at once, s", value=taken, note=f"{complete} complete"),
        Result(
            metric="stored to received at 100 runs, p95 ms",
            value=p95,
            goal="<= 50 on idle cores",
            note="client and server share the machine's cores",
        ),
        Result(metric=f"{streams} open streams, KB each", value=kb, goal="<= 60", ok=kb <= 60),
    ]


def measure_start(rounds: int) -> list[Result]:
    """Measure how long a cold server takes to be ready, beside a bare Python."""

    # Compiled beforehand, as an installed package is, also where nothing may write beside the
    # sources.
    kept = tempfile.TemporaryDirectory()
    compiled = {"PYTHONPYCACHEPREFIX": kept.name, "PYTHONDONTWRITEBYTECODE": ""}

    def bare() -> float:
        start = time.perf_counter()
        environment = {**process_environment(), **compiled}
        subprocess.run([sys.executable, "-c", "pass"], check=True, env=environment)
        return time.perf_counter() - start

    def cold() -> float:
        with tempfile.TemporaryDirectory() as name:
            start = time.perf_counter()
            with serve(Path(name), environment=compiled) as served:
                urllib.request.urlopen(f"{served.url}/ready").read()
                return time.perf_counter() - start

    with kept:
        bare(), cold()
        found = interleave({"bare": bare, "cold": cold}, rounds)
    ratio = median(found["cold"]) / median(found["bare"])
    return [
        Result(metric="python -c pass, ms", value=median(found["bare"]) * 1000),
        Result(metric="cold serve to /ready, ms", value=median(found["cold"]) * 1000),
        Result(metric="ready / bare python", value=ratio, goal="<= 12", ok=ratio <= 12),
    ]


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--peers", default="", metavar="PYTHON", help="has AgentOS and ADK")
    chosen = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    results = measure_start(3 if chosen.quick else 7)
    loop = asyncio.new_event_loop()
    with tempfile.TemporaryDirectory() as name, serve(Path(name), "server:worker") as served:
        folder = Path(name)
        results += compare(loop, served, folder, 10 if chosen.quick else 40)
        if chosen.peers:
            peers = compare_with_peers(loop, served, chosen.peers, 5 if chosen.quick else 20)
            results += peers
        streams = 200 if chosen.quick else 1000
        results += loop.run_until_complete(crowd(served, 50 if chosen.quick else 200, streams))
    loop.close()
    return report(results, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
