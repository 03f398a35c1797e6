"""The scenarios of `scripts/chaos`: each breaks something and returns what must hold."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
for _place in ("tests", "tests/crash", "tests/unit/server", "tests/behaviour/mcp"):
    sys.path.insert(0, str(ROOT / _place))

from machine import wall_clock_in  # noqa: E402 - beside the tests
from mcp_kit import program as mcp_program  # noqa: E402
from postgres_server import PostgresServer  # noqa: E402
from test_faults import play  # noqa: E402
from test_server_killed import APP, Served, see_through  # noqa: E402
from test_workers_killed import Fleet  # noqa: E402

from holdfast import Agent, AsyncClient, tool  # noqa: E402
from holdfast.journal import verify  # noqa: E402
from holdfast.orchestration.loop import LoopReport, LoopSetup  # noqa: E402
from holdfast.providers import create_model, make_registry  # noqa: E402
from holdfast.settings import load_settings  # noqa: E402
from holdfast.testing import (  # noqa: E402
    FakeServer,
    FunctionModel,
    Recorded,
    Reply,
    ScriptedCall,
    tool_call,
)
from holdfast.testing.fake_wires import Failure, HoldPoint  # noqa: E402
from holdfast.tools import AutoConfirm  # noqa: E402

PATIENCE_S: Final = 150
_RUNS: Final = 20
_STEPS: Final = 4


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that must hold, and what was seen."""

    must: str
    is_held: bool
    seen: str = ""


Scenario: TypeAlias = Callable[[Path], Awaitable[list[Held]]]


def hold(must: str, seen: object, wanted: object = True) -> Held:
    """Compare what was seen with what must be."""
    return Held(must=must, is_held=seen == wanted, seen=str(seen))


class Notes:
    """Effects, one line each, so that a repeated one shows."""

    def __init__(self) -> None:
        """Begin with none."""
        self.lines: list[str] = []

    def make_tool(self) -> Callable[[str], str]:
        """Return the function of the tool `note`."""

        def note(line: str) -> str:
            """Note a line."""
            self.lines.append(line)
            return line

        return note


def answer_notes(recorded: Recorded) -> Reply:
    """Ask for one call of `note` after the other, named after the first message, then end."""
    body = recorded.json
    items = body.get("input") or body.get("messages")
    name = next(
        text
        for item in items
        if item.get("role") == "user"
        for text in [_read_text(item["content"])]
        if text.startswith("run")
    )
    done = sum(item.get("type") == "function_call_output" or item.get("role") == "tool"
               for item in items)  # fmt: skip
    if done < _STEPS:
        line = json.dumps({"line": f"{name}-{done}"})
        return Reply(calls=(ScriptedCall(name="note", arguments=line),))
    return Reply(text=f"{name} is done, and every word of it arrives.")


def _read_text(content: object) -> str:
    return content if isinstance(content, str) else str(content[0]["text"])


@contextlib.asynccontextmanager
async def open_client(
    place: Path, server: FakeServer | None = None, **more: object
) -> AsyncIterator[AsyncClient]:
    """A client of its own state directory, whose models are on the server."""
    chosen: dict[str, object] = {"workspace": str(place), **more}
    if server is not None:
        chosen |= {"model.openai_base_url": server.base_url, "model.name": "openai:fake-model"}
    settings = load_settings(overrides=chosen).settings
    async with AsyncClient(place / "state", settings=settings) as client:
        client.approver = AutoConfirm()
        yield client


async def count_problems(client: AsyncClient) -> int:
    """Return what a verification of all records finds."""
    return len(await verify((await client.storage.journal()).store))


def list_wanted(runs: int) -> list[str]:
    """Return every effect that these runs must have had, once."""
    return sorted(f"run{run}-{step}" for run in range(runs) for step in range(_STEPS))


def make_two_steps(is_told: asyncio.Event) -> Callable[[Recorded], Reply]:
    """Return a model that plans two steps and does them; it tells when the second has begun."""
    steps = [
        {
            "id": name,
            "title": name,
            "instruction": f"Look at {name}.",
            "depends_on": after,
            "checks": [{"kind": "answer_contains", "text": "hello"}],
        }
        for name, after in (("one", []), ("two", ["one"]))
    ]

    def script(recorded: Recorded) -> Reply:
        asked = msgspec.json.encode(recorded.json).decode()
        if '"verdict"' in asked and "json_schema" in asked:
            return Reply(text='{"verdict": "accept", "reason": "seen"}')
        if '"steps"' in asked and "json_schema" in asked:
            return Reply(text=json.dumps({"steps": steps}))
        name = "two" if "Look at two." in asked else "one"
        if "function_call_output" in asked or '"role":"tool"' in asked:
            return Reply(text="hello")
        if name == "two":
            is_told.set()  # the next request finds nobody
        return Reply(calls=(ScriptedCall(name="look", arguments=f'{{"where": "{name}"}}'),))

    return script


async def break_model(place: Path) -> list[Held]:
    """The model server is gone in the midst of a loop, and comes back."""
    effects: list[str] = []
    is_told, has_waited = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    def look(where: str) -> str:
        """Look somewhere."""
        effects.append(where)
        return f"{where}: hello"

    server = FakeServer(script=make_two_steps(is_told))
    await server.start()
    port = int(server.origin.rpartition(":")[2])

    async def go_down() -> None:
        await is_told.wait()
        await server.stop()
        await has_waited.wait()
        await server.start(port)

    async with open_client(place, server) as client:
        (await client.tools.registry()).register(look)
        registry = make_registry(
            load_settings(overrides={"model.openai_base_url": server.base_url})
        )
        model = await create_model("openai:fake-model", registry=registry)
        down = asyncio.create_task(go_down())
        items = client.loops.stream("Look at both.", run_id="job", options=LoopSetup(model=model))
        report = None
        async with contextlib.aclosing(items):
            async for item in items:
                if isinstance(item, LoopReport):
                    report = item
                elif item.kind == "loop.waited":
                    has_waited.set()
        waited = has_waited.is_set()
        has_waited.set()
        await down
        problems = await count_problems(client)
        await registry.close()
    await server.stop()
    assert report is not None
    return [
        hold("the loop ends as done", report.outcome, "done"),
        hold("it has waited, and said so", waited),
        hold("no attempt was spent", [step.attempts for step in report.steps], [1, 1]),
        hold("no effect twice", effects, ["one", "two"]),
        hold("the records verify", problems, 0),
    ]


async def storm_429(place: Path) -> list[Held]:
    """Every second request is answered with 429, for twenty runs at once."""
    asked: collections.Counter[str] = collections.Counter()
    refused = 0

    def script(recorded: Recorded) -> Reply | Failure:
        nonlocal refused
        key = recorded.body.decode()
        asked[key] += 1
        if asked[key] == 1:
            refused += 1
            return Failure(status=429, message="slow down", headers={"retry-after": "0.2"})
        return answer_notes(recorded)

    notes = Notes()
    async with FakeServer(script=script) as server, open_client(place, server) as client:
        agent = Agent("noter", tools=[tool(effect="unsafe")(notes.make_tool())])
        began = time.perf_counter()
        ended = await asyncio.gather(
            *(client.execute_agent(agent, "", f"run{n}") for n in range(_RUNS))
        )
        took = time.perf_counter() - began
        told = [e.kind for r in ended for e in await client.events.list(r.session_id)]
        problems = await count_problems(client)
        requests = len(server.requests)
    return [
        hold("every run completes", {one.status for one in ended}, {"completed"}),
        hold("no effect twice, none lost", sorted(notes.lines) == list_wanted(_RUNS)),
        hold("as many requests as answers and refusals", requests,
             _RUNS * (_STEPS + 1) + refused),
        hold("the storm is in the records", any("retried" in kind for kind in told)),
        hold("the records verify", problems, 0),
        hold(f"{refused} refusals are waited out within a minute", took < 60),
    ]  # fmt: skip


async def slow_tokens(place: Path) -> list[Held]:
    """One answer stands still in its midst while twenty others are asked for."""
    gate = HoldPoint()

    def script(recorded: Recorded) -> Reply:
        made = answer_notes(recorded)
        is_slow = "run999" in recorded.body.decode() and made.text
        return msgspec.structs.replace(made, gate=gate) if is_slow else made

    notes = Notes()
    async with FakeServer(script=script) as server, open_client(place, server) as client:
        agent = Agent("noter", tools=[tool(effect="unsafe")(notes.make_tool())])
        slow = asyncio.create_task(client.execute_agent(agent, "", "run999"))
        await gate.reached.wait()
        others = await asyncio.gather(
            *(client.execute_agent(agent, "", f"run{n}") for n in range(_RUNS))
        )
        stood = not slow.done()
        gate.release.set()
        last = await slow
    return [
        hold("the others complete meanwhile", {one.status for one in others}, {"completed"}),
        hold("the slow one still stands", stood),
        hold("then it completes, with every word", last.response,
             "run999 is done, and every word of it arrives."),
    ]  # fmt: skip


async def throttle_mcp(place: Path) -> list[Held]:
    """An MCP server refuses what it is asked, then dies in the midst of a call."""
    asked: list[str] = []

    def answer(request: object) -> object:
        done = sum(message.role == "tool" for message in request.messages)
        names = ["refuse", "refuse", "die", "echo"]
        asked.append(str(done))
        if done < len(names):
            return tool_call(f"mcp__box__{names[done]}", text="hello")
        return "done"

    endpoint = mcp_program("mcp_rude.py")
    async with open_client(place, mcp_endpoints={"box": endpoint}) as client:
        agent = Agent("caller", model=FunctionModel(answer), allowed_tools=["mcp__box__*"])
        result = await client.execute_agent(agent, "", "Call them.", on_ask="park")
        decided = 0
        while result.status == "parked":
            # A call that had no answer may have had its effect: a person looks.
            for one in await client.approvals.questions():
                decided += 1
                await client.approvals.decide_outcome(
                    one.session_id, one.call_id, "not_happened", by="chaos"
                )
            result = await client.execute_agent(agent, "", "", run_id=result.run_id)
        calls = await client.tools.history(result.session_id)
        problems = await count_problems(client)
        told = {call.tool.rpartition("__")[2]: call for call in calls}
    return [
        hold("the run completes", result.status, "completed"),
        hold("a refusal is told to the model, in the server's words",
             "not today" in told["refuse"].error),
        hold("a call without an answer failed for the server's reason, or a person decided",
             "" if decided or "it hurts" in told["die"].error else told["die"].error, ""),
        hold("the server is started again", told["echo"].state, "completed"),
        hold("the records verify", problems, 0),
    ]  # fmt: skip


async def fill_disk(place: Path) -> list[Held]:
    """The disk is full in the midst of a run, and then is not."""
    small = place / "small"
    small.mkdir()
    mount = await asyncio.create_subprocess_exec(
        "mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(small)
    )
    if await mount.wait():
        raise PermissionError("a small disk can be made by root only: sudo ./scripts/chaos disk")
    try:
        state = small / "state"
        state.mkdir()
        (state / "ballast").write_bytes(bytes(400_000))
        notes = place / "notes"
        told = await asyncio.to_thread(
            play, "run_again_until_done", str(state), before=(), notes=notes
        )
    finally:
        await (await asyncio.create_subprocess_exec("umount", "-l", str(small))).wait()
    return [
        hold(
            "the run is interrupted, and the error says why",
            told["interruptions"][:1] and "no space left" in told["interruptions"][0],
        ),
        hold("with space it completes", told["status"], "completed"),
        hold("no call is misreported", told["errors"], []),
        hold("no effect twice, none lost", len(set(notes.read_text().splitlines())), 12),
        hold("the records verify", told["problems"], []),
    ]


async def step_clocks(place: Path) -> list[Held]:
    """The wall clock of a server steps a day back and two ahead while runs are under way."""
    clock = place / "clock"
    clock.write_text("+0")
    (place / "app.py").write_text(APP)
    served = Served(place, lease_s=30, environment=wall_clock_in(clock))
    await served.start()
    try:
        async with served.client() as client:
            tasks = [asyncio.create_task(see_through(served, client, n)) for n in range(_RUNS)]
            for count, step in enumerate(("-86400", "+86400")):
                await _await_effects(served.effects, (count + 1) * _RUNS)
                clock.write_text(step)
            seen = await asyncio.gather(*tasks)
            statuses = {run.status for run in await client.runs.list(limit=_RUNS)}
        taken = await _count_epochs(place)
    finally:
        await served.kill()
    return [
        hold("every run completes", statuses, {"completed"}),
        hold("no effect twice, none lost", sorted(served.effects()) == list_wanted(_RUNS)),
        hold("every event once, in order", all(one == sorted(set(one)) for one in seen)),
        hold("no lease is lost by a stepped clock", taken, {1}),
    ]


async def _count_epochs(place: Path) -> set[int]:
    """Return how often runs were begun by whoever held their session."""
    async with AsyncClient(place / "state") as client:
        journal = await client.storage.journal()
        starts: collections.Counter[str] = collections.Counter()
        for run in await client.runs.list(limit=_RUNS):
            for event in await journal.read_all(run.session_id):
                if event.kind in ("run.started", "run.resumed") and event.run_id == run.id:
                    starts[run.id] += 1
    return set(starts.values())


async def _await_effects(effects: Callable[[], list[str]], count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(effects()) < count:  # noqa: ASYNC110 - a file of another process
            await asyncio.sleep(0.02)


async def kill_server(place: Path) -> list[Held]:
    """The server is killed three times while twenty clients follow their runs."""
    (place / "app.py").write_text(APP)
    served = Served(place)
    await served.start()
    try:
        async with served.client() as client:
            client._channel._patience_s = 90.0
            tasks = [asyncio.create_task(see_through(served, client, n)) for n in range(_RUNS)]
            for count in range(3):
                await _await_effects(served.effects, (count + 1) * _RUNS)
                await served.kill()
                await served.start()
            seen = await asyncio.gather(*tasks)
            statuses = {run.status for run in await client.runs.list(limit=_RUNS)}
    finally:
        await served.kill()
    async with AsyncClient(place / "state") as client:
        problems = await count_problems(client)
    return [
        hold("every run completes", statuses, {"completed"}),
        hold("no effect twice, none lost", sorted(served.effects()) == list_wanted(_RUNS)),
        hold("clients get every event once, in order",
             all(one == sorted(set(one)) for one in seen)),
        hold("the records verify", problems, 0),
    ]  # fmt: skip


@contextlib.asynccontextmanager
async def open_fleet(place: Path) -> AsyncIterator[tuple[Fleet, PostgresServer, AsyncClient]]:
    """A Postgres, workers to be started, and a client that submits."""
    server = await asyncio.to_thread(PostgresServer, Path(tempfile.mkdtemp(prefix="hf-pg-")))
    fleet = Fleet(place, server.url(server.make_database()))
    settings = load_settings(overrides={"storage.url": fleet.url, "workspace": str(place)}).settings
    try:
        async with AsyncClient(place / "client", settings=settings) as client:
            await client.agents.register(Agent("noter"))
            yield fleet, server, client
    finally:
        await fleet.end()
        await asyncio.to_thread(server.server.cleanup)


async def kill_worker(place: Path) -> list[Held]:
    """A worker is killed in the midst of a call; another one takes over."""
    async with open_fleet(place) as (fleet, _, client):
        doomed = await fleet.start("doomed")
        runs = [await client.runs.submit("noter", "", f"r{n}") for n in range(5)]
        await _await_effects(lambda: [e for e in fleet.effects if e.endswith("-1")], 1)
        await fleet.start("heir")
        doomed.send_signal(signal.SIGKILL)
        await doomed.wait()
        async with asyncio.timeout(PATIENCE_S):
            ended = [await client.runs.wait(run.id) for run in runs]
        dead = await client.workers.list_dead()
        done = [line.split()[1] for line in fleet.effects]
    finished = [f"r{n}-{step}" for n in range(5) for step in (0, 2)]
    return [
        hold("every run completes elsewhere", {one.status for one in ended}, {"completed"}),
        hold("what was finished is not done again",
             {done.count(line) for line in finished}, {1}),
        hold("nothing is lost", set(done) == {f"r{n}-{s}" for n in range(5) for s in range(3)}),
        hold("no wake-up is dead", dead, []),
    ]  # fmt: skip


async def restart_postgres(place: Path) -> list[Held]:
    """The database is restarted twice while workers execute."""
    async with open_fleet(place) as (fleet, server, client):
        await fleet.start("one")
        await fleet.start("two")
        runs = [await client.runs.submit("noter", "", f"r{n}") for n in range(10)]
        for count in (3, 12):
            await _await_effects(lambda: fleet.effects, count)
            await asyncio.to_thread(server.restart)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    ended = [await client.runs.wait(run.id) for run in runs]
                    break
                except Exception as error:
                    if getattr(error, "code", "") != "storage.unavailable":
                        raise
                    await asyncio.sleep(0.2)
        alive = [process.returncode for process in fleet.processes]
        problems = await count_problems(client)
    return [
        hold("every run completes", {one.status for one in ended}, {"completed"}),
        hold("no worker has died of it", alive, [None, None]),
        hold("nothing is lost", {line.split()[1] for line in fleet.effects}
             == {f"r{n}-{step}" for n in range(10) for step in range(3)}),
        hold("the records verify", problems, 0),
    ]  # fmt: skip


SCENARIOS: Final[dict[str, Scenario]] = {
    "outage": break_model,
    "storm": storm_429,
    "slow": slow_tokens,
    "mcp": throttle_mcp,
    "disk": fill_disk,
    "clocks": step_clocks,
    "server": kill_server,
    "worker": kill_worker,
    "postgres": restart_postgres,
}
