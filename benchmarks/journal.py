"""What the journal costs: appends against bare SQLite inserts, long sessions, whole turns.

    python benchmarks/journal.py [--quick] [--json]

Figures that are compared come from one run in which the cases alternate.
"""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from _report import Result, arguments, interleave, report

from holdfast.journal import Journal, Payload, SqliteStore, payload
from holdfast.messages import Message, TextPart, ToolPart
from holdfast.redaction import Redactor
from holdfast.sessions import SESSION_PROJECTIONS, SessionManager
from holdfast.sessions import events as facts
from holdfast.turns import LeaseKeeper, Turn, TurnCompleted, TurnQueue

T = TypeVar("T")
SMALL = "x" * 100
LARGE = "".join(chr(97 + number % 26) for number in range(50_000))


@payload("benchmark.noted", is_open=True)
class Noted(Payload, frozen=True, kw_only=True):
    """A text and a number."""

    text: str
    number: int


class Bench:
    """One directory with a journal and a bare table, and a loop that stays."""

    def __init__(self, place: Path) -> None:
        """Open both."""
        self.place = place
        self.loop = asyncio.new_event_loop()
        self.journal = self.run(self._open())
        self.bare = sqlite3.connect(place / "bare.db", isolation_level=None)
        self.bare.execute("PRAGMA journal_mode = WAL")
        self.bare.execute("PRAGMA synchronous = NORMAL")
        self.bare.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, kind TEXT, payload BLOB)")
        self.count = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop."""
        return self.loop.run_until_complete(work)

    async def _open(self) -> Journal:
        journal = await Journal(SqliteStore(self.place / "journal.db")).open()
        await journal.append("bench", [Noted(text="first", number=0)], must_be_new=True)
        await journal.store.acquire("bench", "me", 1_000_000)
        return journal

    def insert(self, text: str, times: int) -> None:
        """Insert the same bytes that the journal stores as a payload."""
        for number in range(times):
            self.count += 1
            data = b'{"text":"%d%s","number":%d}' % (self.count, text.encode(), number)
            self.bare.execute("INSERT INTO log VALUES (NULL, ?, ?)", ("benchmark.noted", data))

    def append(self, text: str, times: int) -> None:
        """Append under a lease, one event after another."""

        async def work() -> None:
            for number in range(times):
                self.count += 1
                value = Noted(text=f"{self.count}{text}", number=number)
                await self.journal.append("bench", [value], epoch=1)

        self.run(work())

    def append_together(self, times: int, tasks: int) -> None:
        """Append from many tasks at once."""

        async def task(share: int) -> None:
            for number in range(share):
                await self.journal.append("bench", [Noted(text=SMALL, number=number)], epoch=1)

        async def work() -> None:
            await asyncio.gather(*[task(times // tasks) for _ in range(tasks)])

        self.run(work())

    def close(self) -> None:
        """Close both."""
        self.run(self.journal.close())
        self.bare.close()
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()


def timed(clock: Callable[[], float], work: Callable[[], None]) -> Callable[[], float]:
    """Measure a piece of work with a clock."""

    def measure() -> float:
        started = clock()
        work()
        return clock() - started

    return measure


def compare(bench: Bench, text: str, times: int, rounds: int) -> dict[str, float]:
    """Return the cost of an append as a multiple of a bare insert, in CPU and wall time."""
    cases: dict[str, Callable[[], float]] = {}
    for name, clock in (("CPU", time.process_time), ("wall", time.perf_counter)):
        cases[f"bare {name}"] = timed(clock, lambda: bench.insert(text, times))
        cases[f"journal {name}"] = timed(clock, lambda: bench.append(text, times))
    figures = interleave(cases, rounds)
    found = {name: statistics.median(values) / times * 1e6 for name, values in figures.items()}
    for name in ("CPU", "wall"):
        pairs = zip(figures[f"journal {name}"], figures[f"bare {name}"], strict=True)
        found[f"ratio {name}"] = statistics.median(ours / bare for ours, bare in pairs)
    return found


def append_results(bench: Bench, is_quick: bool) -> list[Result]:
    """Small and large appends against bare inserts."""
    results = []
    rounds = 7 if is_quick else 21
    for label, text, times, limit in (("small", SMALL, 1000, 3.0), ("50 KB", LARGE, 50, 4.0)):
        found = compare(bench, text, times, rounds)
        for name in ("CPU", "wall"):
            ratio = found[f"ratio {name}"]
            results.append(
                Result(
                    metric=f"append {label} / bare insert ({name})",
                    value=ratio,
                    goal=f"<= {limit:g}" if name == "CPU" else "",
                    ok=ratio <= limit if name == "CPU" else None,
                    note=f"{found[f'journal {name}']:.0f} us against "
                    f"{found[f'bare {name}']:.0f} us",
                )
            )
    return results


def group_results(bench: Bench, is_quick: bool) -> list[Result]:
    """Two hundred tasks that append at once, against one after another."""
    times = 2000 if is_quick else 10_000
    figures = interleave(
        {
            "alone": timed(time.process_time, lambda: bench.append(SMALL, times)),
            "together": timed(time.process_time, lambda: bench.append_together(times, 200)),
        },
        5,
    )
    alone, together = (statistics.median(figures[name]) for name in ("alone", "together"))
    return [
        Result(
            metric="200 tasks appending / one alone (CPU per event)",
            value=together / alone,
            goal="<= 1",
            ok=together <= alone,
            note=f"{together / times * 1e6:.0f} us against {alone / times * 1e6:.0f} us",
        )
    ]


async def _fill(path: Path, count: int) -> None:
    store = SqliteStore(path, projections=SESSION_PROJECTIONS)
    async with Journal(store) as journal:
        keeper = LeaseKeeper(journal)
        manager = SessionManager(journal, keeper)
        await manager.create_session("long", session_id="ses_long")
        head = await store.acquire("ses_long", "me", 1_000_000)
        assert head is not None
        for start in range(0, count, 1000):
            messages = [
                facts.MessageCreated(
                    message=Message(
                        id=f"msg_{number:08}",
                        session_id="",
                        role="user",
                        parts=(TextPart(text=SMALL),),
                    )
                )
                for number in range(start, start + 1000)
            ]
            await journal.append("ses_long", messages, epoch=head.epoch)
        await store.collect()


async def _read_end(path: Path) -> None:
    async with Journal(SqliteStore(path, projections=SESSION_PROJECTIONS)) as journal:
        manager = SessionManager(journal, LeaseKeeper(journal))
        session = await manager.get_session("ses_long")
        assert len(await manager.messages.last(session, 50)) == 50


def _read_end_of(path: Path) -> None:
    asyncio.run(_read_end(path))


def length_results(place: Path, is_quick: bool) -> list[Result]:
    """Open a session and read its last 50 messages; bytes on disk."""
    short, long = 1000, 20_000 if is_quick else 100_000
    middle = long // 10
    for count in (short, middle, long):
        asyncio.run(_fill(place / f"{count}.db", count))
    figures = interleave(
        {
            str(count): timed(time.perf_counter, partial(_read_end_of, place / f"{count}.db"))
            for count in (short, long)
        },
        7 if is_quick else 21,
    )
    medians = {name: statistics.median(values) for name, values in figures.items()}
    ratio = medians[str(long)] / medians[str(short)]
    bytes_each = {count: (place / f"{count}.db").stat().st_size / count for count in (middle, long)}
    growth = bytes_each[long] / bytes_each[middle]
    return [
        Result(
            metric=f"open and read the last 50 of {long:,} / of {short:,}",
            value=ratio,
            goal="<= 1.5",
            ok=ratio <= 1.5,
            note=f"{medians[str(long)] * 1e3:.1f} ms against {medians[str(short)] * 1e3:.1f} ms",
        ),
        Result(
            metric=f"bytes per event at {long:,} / at {middle:,}",
            value=growth,
            goal="<= 1.1",
            ok=growth <= 1.1,
            note=f"{bytes_each[long]:.0f} bytes per message of 100 characters",
        ),
    ]


# --- whole turns ---------------------------------------------------------------------

STEPS = 10


async def _turn_of_steps(turn: Turn) -> TurnCompleted:
    """Store what a turn of ten calls and an answer stores."""
    for number in range(STEPS + 1):
        call = ToolPart(id=f"prt_{number}", call_id="call_1", tool="multiply", input={"a": number})
        message = Message(
            id=f"{turn.run.id}_{number}",
            session_id="",
            role="assistant",
            parts=(TextPart(id="prt_text", text="Let me compute that."), call),
        )
        await turn.append(facts.MessageCreated(message=message))
        turn.defer(facts.MessagePartUpdated(message_id=message.id, part=call))
    return TurnCompleted()


def _written() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


async def _turns(path: Path, count: int) -> tuple[float, float]:
    """Return bytes written and CPU seconds of a turn in a session that `_fill` made."""
    store = SqliteStore(path, projections=SESSION_PROJECTIONS)
    async with Journal(store, redactor=Redactor()) as journal:
        keeper = LeaseKeeper(journal)
        queue = TurnQueue(SessionManager(journal, keeper), keeper)
        await store.release("ses_long", 1)
        figures = []
        for number in range(count):
            message = Message(id=f"msg_q{number}", session_id="", role="user")
            before, begun = _written(), time.process_time()
            await queue.execute(
                "ses_long", message, _turn_of_steps, run_id=f"run_{count}_{number}", is_new=True
            )
            figures.append((_written() - before, time.process_time() - begun))
        await queue.close()
        keeper.close()
    return statistics.median(f[0] for f in figures), statistics.median(f[1] for f in figures)


def turn_results(place: Path, is_quick: bool) -> list[Result]:
    """A turn of ten steps in a short and in a long session; both were filled before."""
    short, long = 1000, 20_000 if is_quick else 100_000
    times = 15 if is_quick else 50
    few, cpu = asyncio.run(_turns(place / f"{short}.db", times))
    many, _ = asyncio.run(_turns(place / f"{long}.db", times))
    return [
        Result(
            metric=f"bytes of a turn after {long:,} messages / after {short:,}",
            value=many / few,
            goal="<= 1.15",
            ok=many <= 1.15 * few,
            note=f"{many / 1024:.0f} KB against {few / 1024:.0f} KB, {STEPS} steps and an answer",
        ),
        Result(
            metric="storing a turn of ten steps, ms of CPU",
            value=cpu * 1e3,
            note="with lease, redaction, rows and the commit that reaches the disk",
        ),
    ]


def main() -> int:
    """Measure everything and print it."""
    options = arguments(__doc__ or "")
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        bench = Bench(place)
        results += append_results(bench, options.quick)
        results += group_results(bench, options.quick)
        bench.close()
        results += length_results(place, options.quick)
        results += turn_results(place, options.quick)
    return report(results, options.json)


if __name__ == "__main__":
    sys.exit(main())
