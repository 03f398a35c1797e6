"""What the execution manager adds to a tool call, with the journal on.

python benchmarks/tools.py [--quick] [--json]

Every figure is CPU time of this process per call of an asynchronous tool that does nothing:
validated, gated, counted by the doom loop, executed in bounds, and its result made a fact of
the conversation (it is stored together with the next answer). Cases alternate within one run;
of each, the baselines included, the lower quartile of its batches is printed.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import msgspec
from _report import Result, arguments, report

from holdfast.client import AsyncClient
from holdfast.messages import Message, ToolPart
from holdfast.testing import make_tool_context
from holdfast.tools import (
    Call,
    CallLimits,
    Gate,
    Tool,
    ToolExecutionManager,
    ToolRegistry,
    Workspace,
    tool,
)
from holdfast.turns import Outcome, Turn, TurnCompleted

_GOAL_US = 60.0
_BATCH = 100
_WARM_UP = 10
Case: TypeAlias = Callable[[], Awaitable[float]]


@tool(effect="read")
async def nothing(text: str) -> str:
    """Do nothing."""
    return text


@tool(effect="idempotent")
async def nothing_twice(text: str) -> str:
    """Do nothing, any number of times."""
    return text


def _named(number: int) -> Tool:
    async def other(text: str) -> str:
        """Do nothing, under another name."""
        return text

    return Tool.from_function(other, name=f"other_{number}", effect="read")


class Bench:
    """One turn of one session in which calls are executed."""

    def __init__(self, turn: Turn, tools: ToolRegistry, directory: Path) -> None:
        """Execute calls of these tools."""
        self._turn = turn
        context = make_tool_context(
            workspace=Workspace(directory), session_id=turn.session_id, run_id=turn.run.id
        )
        self._manager = ToolExecutionManager(
            tools, recorder=turn, context=context, gate=Gate(), limits=CallLimits()
        )
        self._number = 0

    def messages(self, name: str, width: int) -> list[Message]:
        """Make answers of a model that ask for `width` calls each."""
        made = []
        for _ in range(_BATCH // width):
            self._number += 1
            parts = tuple(
                ToolPart(
                    id=f"prt_{self._number}_{index}",
                    call_id=f"call_{self._number}_{index}",
                    tool=name,
                    input={"text": f"{self._number}.{index}"},
                )
                for index in range(width)
            )
            made.append(
                Message(
                    id=f"msg_{id(self)}_{self._number}",
                    session_id=self._turn.session_id,
                    role="assistant",
                    parts=parts,
                )
            )
        return made

    def case(self, name: str, width: int = 1, *, is_called: bool = True) -> Case:
        """Measure a turn: answers that ask for calls are stored, and the calls executed."""

        async def measure() -> float:
            messages = self.messages(name, width)
            gc.collect()
            begun = time.process_time()
            for message in messages:
                await self._turn.add_message(message)
                if is_called:
                    calls = [Call(message_id=message.id, part=part) for part in message.tool_calls]
                    await self._manager.execute_all(calls)
                await asyncio.sleep(0)
            await self._turn.flush()
            return (time.process_time() - begun) / (len(messages) * width) * 1e6

        return measure

    def in_a_row(self, name: str) -> Case:
        """Measure calls alone, one after the other, and storing their results."""

        async def measure() -> float:
            # Walking all objects empties the caches, so it comes first; a few calls fill them.
            gc.collect()
            await execute(self.messages(name, 1)[:_WARM_UP])
            return await execute(self.messages(name, 1))

        async def execute(messages: list[Message]) -> float:
            for message in messages:
                await self._turn.add_message(message)
            calls = [
                Call(message_id=one.id, part=part) for one in messages for part in one.tool_calls
            ]
            begun = time.process_time()
            for call in calls:
                await self._manager.execute(call)
            await self._turn.flush()
            return (time.process_time() - begun) / len(calls) * 1e6

        return measure


def bare(directory: Path) -> tuple[Case, Case]:
    """Measure the plain function, and the plain function with one insert into SQLite."""
    connection = sqlite3.connect(directory / "bare.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("CREATE TABLE calls (id INTEGER PRIMARY KEY, payload BLOB)")
    payload = msgspec.json.encode(ToolPart(call_id="call", tool="nothing", output="x" * 400))

    async def call() -> float:
        begun = time.process_time()
        for _ in range(_BATCH):
            await nothing(text="x")
        return (time.process_time() - begun) / _BATCH * 1e6

    async def insert() -> float:
        begun = time.process_time()
        for _ in range(_BATCH):
            await nothing(text="x")
            connection.execute("INSERT INTO calls (payload) VALUES (?)", (payload,))
        return (time.process_time() - begun) / _BATCH * 1e6

    return call, insert


async def measure(rounds: int, history: int) -> dict[str, float]:
    """Return the lower quartile of every case.

    Neighbours on a machine can only add to the CPU time of a batch (they take its caches), by
    half or more within minutes, so the quieter batches say what the work itself takes.
    """
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        async with AsyncClient(directory / "state") as client:
            turns = await client.runs.turns()

            async def handler(turn: Turn) -> Outcome:
                few = ToolRegistry([nothing, nothing_twice])
                many = ToolRegistry([nothing, *(_named(number) for number in range(500))])
                bench = Bench(turn, few, directory)
                plain, insert = bare(directory)
                cases: dict[str, Case] = {
                    "function": plain,
                    "function + insert": insert,
                    "in a row": bench.in_a_row("nothing"),
                    "501 tools": Bench(turn, many, directory).in_a_row("nothing"),
                    "no call": bench.case("nothing", is_called=False),
                    "read": bench.case("nothing"),
                    "idempotent": bench.case("nothing_twice"),
                    "no eight calls": bench.case("nothing", width=8, is_called=False),
                    "eight at once": bench.case("nothing", width=8),
                }
                found.update(await _interleave(cases, rounds))
                for _ in range(history // _BATCH):
                    await cases["in a row"]()
                found["long history"] = (await _interleave({"x": cases["in a row"]}, rounds))["x"]
                return TurnCompleted()

            session = await client.create_session("bench", directory=folder)
            run = await turns.submit(session.id)
            done = await turns.run(run.id, handler)
            assert done.status == "completed", done
    return {name: statistics.quantiles(figures, n=4)[0] for name, figures in found.items()}


async def _interleave(cases: dict[str, Case], rounds: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(rounds + 1):
        for name, case in cases.items():
            value = await case()
            if turn:
                figures[name].append(value)
    return figures


def main() -> int:
    """Measure and print."""
    options = arguments(__doc__ or "")
    history = 1_000 if options.quick else 10_000
    found = asyncio.run(measure(25 if options.quick else 81, history))
    added = found["in a row"] - found["function"]
    results = [
        Result(metric="plain function, us", value=found["function"]),
        Result(metric="plain function + one SQLite insert, us", value=found["function + insert"]),
        Result(
            metric="manager adds to a read call, us",
            value=added,
            goal=f"<= {_GOAL_US:g}",
            ok=added <= _GOAL_US,
        ),
        Result(
            metric="read call / (function + insert)",
            value=found["in a row"] / found["function + insert"],
            note="ratio",
        ),
        Result(
            metric="read call within a turn, us",
            value=found["read"] - found["no call"],
            note="storing an answer and executing its call, less storing the answer",
        ),
        _steady(f"after {history:,} calls / fresh", found["long history"] / found["in a row"]),
        _steady("with 501 tools / with 2", found["501 tools"] / found["in a row"]),
        Result(
            metric="each of eight read calls at once, us",
            value=found["eight at once"] - found["no eight calls"],
        ),
        Result(
            metric="idempotent call, us",
            value=found["idempotent"] - found["no call"],
            note="its intent is stored before, its result at once after",
        ),
    ]
    return report(results, options.json)


def _steady(metric: str, ratio: float) -> Result:
    return Result(metric=metric, value=ratio, goal="<= 1.25", ok=ratio <= 1.25)


if __name__ == "__main__":
    sys.exit(main())
