"""What the first turn of a process costs in a long session, against a new one.

    python benchmarks/first_turn.py [--quick] [--json]

The long session holds questions, calls, results and answers, and a summary that stands for all
but the last of them, as a session of that length has. Both turns are the second of their process,
so that what a process loads once does not count; each round is a process of its own.

The other row is the same session without a summary: the turn reads all of it and writes the first
summary. Each round has a copy of the records, because the next turn has that summary.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _report import Result, arguments, report

from holdfast import AsyncClient
from holdfast.ids import make_id
from holdfast.journal import Payload
from holdfast.messages import CompactionPart, Message, TextPart, ToolPart
from holdfast.sessions import events as facts

_QUESTION = "What is 15 times 23?"


def _said(role: str, *parts: TextPart | ToolPart | CompactionPart) -> Message:
    return Message(id=make_id("msg"), session_id="", role=role, parts=parts)  # type: ignore[arg-type]


def _turn(number: int) -> tuple[list[Payload], str]:
    call = ToolPart(id=make_id("prt"), call_id=make_id("call"), tool="calculator")
    asking = _said("assistant", call)
    done = ToolPart(
        id=call.id, call_id=call.call_id, tool=call.tool, state="completed", output=str(number)
    )
    answer = _said("assistant", TextPart(id=make_id("prt"), text=f"It is {number}."))
    question = _said("user", TextPart(id=make_id("prt"), text=f"What is {number} times 1?"))
    return [
        facts.MessageCreated(message=question),
        facts.MessageCreated(message=asking),
        facts.MessagePartUpdated(message_id=asking.id, part=done),
        facts.MessageCreated(message=answer),
    ], answer.id


async def fill(place: Path, count: int, *, is_summarized: bool = True) -> str:
    """Make a session of so many events and return its id."""
    async with AsyncClient(base_dir=place) as client:
        session = await client.sessions.create("long")
        journal = await client.storage.journal()
        head = await journal.store.acquire(session.id, "benchmark", 1_000)
        assert head is not None
        number, last = 1, ""
        while number < count:
            batch: list[Payload] = []
            while len(batch) < 1_000:
                more, last = _turn(number)
                batch += more
            await journal.append(session.id, batch, epoch=head.epoch)
            number += len(batch)
        part = CompactionPart(id=make_id("prt"), summary="Sums.", up_to_message_id=last)
        summary = facts.MessageCreated(message=_said("user", part))
        first = [summary] if is_summarized else []
        await journal.append(session.id, [*first, *_turn(number)[0]], epoch=head.epoch)
        await journal.store.release(session.id, head.epoch)
        return session.id


async def first_turn(place: Path, session_id: str) -> float:
    """Return how many seconds a turn takes in a process that has not seen the session."""
    async with AsyncClient(base_dir=place) as client:
        await client.runs.execute("build", "", _QUESTION)
        began = time.perf_counter()
        result = await client.runs.execute("build", session_id, _QUESTION)
        took = time.perf_counter() - began
        assert result.status == "completed"
        return took


def measure(place: Path, session_id: str, rounds: int) -> list[float]:
    """Measure in processes of their own."""
    command = [sys.executable, __file__, "--one", str(place), session_id]
    return [float(subprocess.check_output(command)) for _ in range(rounds)]


def measure_without_summary(folder: Path, count: int, rounds: int) -> Result:
    """Measure the turn that has to read everything, on a copy of the records each time."""
    session_id = asyncio.run(fill(folder / "all", count, is_summarized=False))
    figures = []
    for number in range(rounds):
        copy = Path(shutil.copytree(folder / "all", folder / f"copy{number}"))
        figures += measure(copy, session_id, 1)
        shutil.rmtree(copy)
    figures.sort()
    median = statistics.median(figures) * 1e3
    return Result(
        metric=f"first turn in a session of {count:,} events without a summary, ms",
        value=median,
        goal="<= 100",
        ok=median <= 100,
        note=f"{figures[0] * 1e3:.1f} to {figures[-1] * 1e3:.1f} ms in {rounds} processes",
    )


def main() -> int:
    """Measure and report, or take the one turn of a round."""
    if "--one" in sys.argv:
        folder_given, session_given = sys.argv[-2:]
        sys.stdout.write(f"{asyncio.run(first_turn(Path(folder_given), session_given))}\n")
        return 0
    chosen = arguments(__doc__ or "")
    count = 20_000 if chosen.quick else 100_000
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        session_id = asyncio.run(fill(place, count))
        rounds = 5 if chosen.quick else 15
        figures = sorted(measure(place, session_id, rounds))
        new = sorted(measure(place, "", rounds))
        without = measure_without_summary(place / "without", count, 3 if chosen.quick else 5)
    median = statistics.median(figures) * 1e3
    result = Result(
        metric=f"first turn in a session of {count:,} events, ms",
        value=median,
        goal="<= 100",
        ok=median <= 100,
        note=f"a new session {statistics.median(new) * 1e3:.1f} ms; "
        f"{figures[0] * 1e3:.1f} to {figures[-1] * 1e3:.1f} ms in {rounds} processes",
    )
    return report([result, without], chosen.json)


if __name__ == "__main__":
    sys.exit(main())
