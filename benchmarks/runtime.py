"""What a whole run costs, with the journal and the gate on, against loops that keep nothing.

The fake server runs in a process of its own, so the figures are the client's CPU. The run is
ten tool rounds and an answer. The baselines do the same conversation: a hand-written httpx
loop, a raw asyncio loop, and our wire with a bare log (`_baselines.py`); and the sketch from
which the goals were set (`_sketch.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from statistics import median

import httpx
from _baselines import QUESTION, Raw, StoredWire, httpx_run, httpx_stream
from _instructions import per_time
from _report import Result, add_arguments, interleave, report
from _sketch import Sketch
from wire import ROUNDS, SYSTEM, Bench, served

from holdfast import Agent, AsyncClient, tool
from holdfast.messages import Message, TextPart
from holdfast.providers import WireModel
from holdfast.runs import StreamItem
from holdfast.sessions import MessageCreated

AT_ONCE = 200
EARLIER = 3_000
TURNS = 8
MOST_GROWTH = 1.3
"""The facts of a turn are as large in both, but SQLite writes whole pages: in the index of a long
session each commit touches about one more, however long it is."""
LONG = ("--said-chars", "400", "--text-chars", "1600", "--piece-chars", "4", "--in-one-piece")
"""What is streamed: answers of a hundred tokens and more, an event each, that arrive together. A
stream of short ones is little but requests, and far from what `DESIGN.md` found for the sketch."""
_NO_MORE = "HTTP and JSON alone, by hand: no limits, checks or types"
_FLOOR = "HTTP, limits and types, and the answers stored: nothing else"
_SKETCH = "a journal and a gate in a hundred lines; in DESIGN.md"
_numbers = itertools.count()

Work = Callable[[], Awaitable[object]]


@tool(effect="read")
async def multiply(a: int, b: int, note: str = "") -> int:
    """Multiply two numbers."""
    return a * b


# --- ours ----------------------------------------------------------------------------


def make_agent(model: WireModel) -> Agent:
    """The agent whose runs are measured."""
    only = {"permission": "multiply", "action": "allow"}
    return Agent(
        "calculator",
        model=model,
        prompt=SYSTEM,
        tools=[multiply],
        permission=[{"permission": "*", "action": "deny"}, only],
    )


async def our_run(client: AsyncClient, agent: Agent) -> None:
    """One run in a session of its own."""
    result = await agent.run(QUESTION, client=client)
    assert result.status == "completed", result.metadata


async def our_stream(client: AsyncClient, agent: Agent) -> None:
    """One run whose pieces somebody hears."""
    last: StreamItem | None = None
    async for item in agent.stream(QUESTION, client=client):
        last = item
    assert last is not None


async def our_turn(client: AsyncClient, agent: Agent, session: str) -> None:
    """One more turn in a session."""
    result = await agent.run(f"Turn {next(_numbers)}", session=session, client=client)
    assert result.status == "completed", result.metadata


# --- measuring -----------------------------------------------------------------------


class Runs:
    """One loop with everything open, kept warm over all rounds."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        """Open the client and the baselines."""
        self.bench = bench
        self.loop = bench.loop
        self.url = f"{bench.base_url}/chat/completions"
        self.agent = make_agent(bench.model())
        self.streaming = make_agent(bench.model(quiet="stream"))
        self.client: AsyncClient = self.loop.run_until_complete(self._open(folder))
        self.httpx = httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None))
        self.raw = Raw(self.url)
        self.stored = StoredWire(str(folder / "bare.db"))
        self.sketch = Sketch(bench.session, self.url, str(folder / "sketch.db"))
        self.wire, self.wire_streaming = bench.model(), bench.model(quiet="stream")

    async def _open(self, folder: Path) -> AsyncClient:
        client = AsyncClient(folder)
        await client.list_sessions()
        return client

    def close(self) -> None:
        """Close all."""
        self.stored.close()
        self.sketch.close()
        self.loop.run_until_complete(self.raw.close())
        self.loop.run_until_complete(self.httpx.aclose())
        self.loop.run_until_complete(self.client.close())

    def cpu(self, work: Work, *, times: int = 1, at_once: int = 1) -> Callable[[], float]:
        """Return a measurement: CPU seconds of one piece of work."""

        async def run() -> None:
            for _ in range(times):
                await asyncio.gather(*(work() for _ in range(at_once)))

        def measure() -> float:
            gc.collect()
            begin = time.process_time()
            self.loop.run_until_complete(run())
            return (time.process_time() - begin) / (times * at_once)

        return measure


def written() -> int:
    """Bytes that this process handed to the kernel for files and sockets so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["wchar"])


def works(runs: Runs) -> dict[str, Work]:
    """What is compared when one run is measured at a time."""
    return {
        "httpx": lambda: httpx_run(runs.httpx, runs.url),
        "httpx streamed": lambda: httpx_stream(runs.httpx, runs.url),
        "raw": runs.raw.run,
        "raw streamed": lambda: runs.raw.run(streamed=True),
        "floor": lambda: runs.stored.run(runs.wire),
        "floor streamed": lambda: runs.stored.run(runs.wire_streaming, deltas=True),
        "sketch": runs.sketch.run,
        "sketch streamed": lambda: runs.sketch.run(streamed=True),
        "ours": lambda: our_run(runs.client, runs.agent),
        "ours streamed": lambda: our_stream(runs.client, runs.streaming),
    }


class Measured:
    """CPU of the works of one kind, one run at a time."""

    def __init__(self, runs: Runs, rounds: int, *, streamed: bool) -> None:
        """Measure."""
        cases = {
            name.removesuffix(" streamed"): runs.cpu(work, times=3)
            for name, work in works(runs).items()
            if name.endswith(" streamed") is streamed
        }
        self._found = interleave(cases, rounds)

    def ms(self, name: str) -> float:
        """Milliseconds of one run."""
        return median(self._found[name]) * 1e3

    def ratio(self, name: str) -> float:
        """One run as a multiple of the httpx loop."""
        pairs = zip(self._found[name], self._found["httpx"], strict=True)
        return median(a / b for a, b in pairs)


def alone(runs: Runs, rounds: int) -> list[Result]:
    """One run at a time, whole answers."""
    found = Measured(runs, rounds, streamed=False)
    run = found.ratio("ours")
    cases = works(runs)
    before = written()
    runs.cpu(cases["ours"], times=5)()
    ours = (written() - before) / 5
    before = written()
    runs.cpu(cases["raw"], times=5)()
    kb = (ours - (written() - before) / 5) / 1024
    return [
        Result(metric="httpx loop, ms", value=found.ms("httpx"), note="stores nothing"),
        Result(metric="our run, ms", value=found.ms("ours"), note="journal and gate on"),
        Result(metric="run, x httpx", value=run, goal="<= 0.5", ok=run <= 0.5),
        Result(metric="raw asyncio loop, x httpx", value=found.ratio("raw"), note=_NO_MORE),
        Result(metric="wire and bare log, x httpx", value=found.ratio("floor"), note=_FLOOR),
        Result(metric="sketch, x httpx", value=found.ratio("sketch"), note=f"{_SKETCH} 0.4-0.6"),
        Result(
            metric="run, KB written to disk",
            value=kb,
            goal="<= 200",
            ok=kb <= 200,
            note="handed to the kernel, beyond what the raw loop sends",
        ),
    ]


def heard(runs: Runs, rounds: int) -> list[Result]:
    """One run at a time, long answers streamed."""
    found = Measured(runs, rounds, streamed=True)
    run = found.ratio("ours")
    return [
        Result(metric="streamed run, x httpx", value=run, goal="<= 0.3", ok=run <= 0.3),
        Result(
            metric="raw asyncio loop streamed, x httpx", value=found.ratio("raw"), note=_NO_MORE
        ),
        Result(
            metric="wire and bare log streamed, x httpx", value=found.ratio("floor"), note=_FLOOR
        ),
        Result(
            metric="sketch streamed, x httpx",
            value=found.ratio("sketch"),
            note=f"{_SKETCH} 0.2",
        ),
    ]


def heard_short(runs: Runs, rounds: int) -> list[Result]:
    """One run at a time, short answers streamed."""
    found = Measured(runs, rounds, streamed=True)
    return [
        Result(
            metric="streamed run, short answers, x httpx",
            value=found.ratio("ours"),
            note="20 characters and a call, in events that are sent one by one",
        ),
        Result(metric="sketch streamed, short answers, x httpx", value=found.ratio("sketch")),
    ]


def collecting(measure: Callable[[], float]) -> float:
    """Return the share of a measurement's CPU that the garbage collector takes."""
    began, spent, asked = 0.0, 0.0, 0.0

    def listen(phase: str, _info: object) -> None:
        nonlocal began, spent, asked
        if phase == "start":
            began = time.thread_time()
        else:
            spent += time.thread_time() - began
            # The first is the one that every measurement asks for before it begins.
            asked = asked or spent

    gc.callbacks.append(listen)
    try:
        cpu = measure()
    finally:
        gc.callbacks.remove(listen)
    return (spent - asked) / (cpu * AT_ONCE)


def together(runs: Runs, rounds: int) -> list[Result]:
    """Many runs at once, each in a session of its own."""
    cases = {
        "ours": runs.cpu(lambda: our_run(runs.client, runs.agent), at_once=AT_ONCE),
        "raw": runs.cpu(runs.raw.run, at_once=AT_ONCE),
    }
    found = interleave(cases, rounds)
    ratio = median(a / b for a, b in zip(found["ours"], found["raw"], strict=True))
    share = median(collecting(cases["ours"]) for _ in range(rounds))
    gc.collect()
    tracemalloc.start()
    cases["ours"]()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    each = peak / AT_ONCE / 1024
    name = f"{AT_ONCE} at once"
    return [
        Result(metric=f"{name}, x raw asyncio loop", value=ratio, goal="<= 4", ok=ratio <= 4),
        Result(
            metric=f"{name}, KB of memory each",
            value=each,
            goal="<= 100",
            ok=each <= 100,
            note="peak of Python memory",
        ),
        Result(metric=f"{name}, share of the garbage collector", value=share),
    ]


def after_many(runs: Runs, rounds: int) -> list[Result]:
    """One more turn after a long conversation."""
    session = runs.loop.run_until_complete(_long_session(runs.client))
    past = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"Message {n}."}
        for n in range(EARLIER)
    ]
    model = runs.bench.model()
    agent = Agent(
        "talker", model=model, prompt=SYSTEM, permission=[{"permission": "*", "action": "deny"}]
    )

    async def ours() -> None:
        await our_turn(runs.client, agent, session)

    async def by_hand() -> None:
        body = {"model": "m", "messages": [*past, {"role": "user", "content": "Turn"}]}
        (await runs.httpx.post(runs.url, json=body)).json()

    cases = {"ours": runs.cpu(ours, times=3), "httpx": runs.cpu(by_hand, times=3)}
    found = interleave(cases, rounds)
    ratio = median(a / b for a, b in zip(found["ours"], found["httpx"], strict=True))
    return [
        Result(
            metric=f"a turn after {EARLIER} messages, x httpx",
            value=ratio,
            goal="<= 0.5",
            ok=ratio <= 0.5,
            note=f"httpx {median(found['httpx']) * 1e3:.1f} ms",
        ),
        growth(runs, agent, session, by_hand),
    ]


def growth(runs: Runs, agent: Agent, session: str, by_hand: Work) -> Result:
    """What a turn writes after a long conversation, against one in a new session.

    The first turn of a session, ten rounds long since the server counts results, does not count.
    """

    async def short_by_hand() -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "Turn"}]}
        (await runs.httpx.post(runs.url, json=body)).json()

    def kb(work: Work) -> float:
        before = written()
        runs.cpu(work, times=TURNS)()
        return (written() - before) / TURNS / 1024

    def on_disk(place: str, by_hand: Work) -> Callable[[], float]:
        return lambda: kb(lambda: our_turn(runs.client, agent, place)) - kb(by_hand)

    new = runs.loop.run_until_complete(runs.client.create_session("new")).id
    cases = {"new": on_disk(new, short_by_hand), "long": on_disk(session, by_hand)}
    # Medians: now and then SQLite copies its log into the file, for all turns since the last time.
    found = {name: median(values) for name, values in interleave(cases, 5).items()}
    ratio = found["long"] / found["new"]
    return Result(
        metric="bytes written by it, x a new session's turn",
        value=ratio,
        goal=f"<= {MOST_GROWTH}",
        ok=ratio <= MOST_GROWTH,
        note=f"{found['long']:.1f} and {found['new']:.1f} KB, requests not counted",
    )


async def _long_session(client: AsyncClient) -> str:
    session = await client.create_session("long")
    manager = await client.sessions.manager()
    async with manager.writing(session.id) as hold:
        for start in range(0, EARLIER, 500):
            await hold.append(
                *[
                    MessageCreated(
                        message=Message(
                            id=f"msg_{n:06}",
                            session_id="",
                            role="user" if n % 2 == 0 else "assistant",
                            parts=(TextPart(id=f"prt_{n:06}", text=f"Message {n}."),),
                        )
                    )
                    for n in range(start, start + 500)
                ]
            )
    return session.id


@contextlib.contextmanager
def opened(*answers: str) -> Iterator[Runs]:
    """Start the server and open everything."""
    with served(*answers) as base_url, tempfile.TemporaryDirectory() as folder:
        bench = Bench(base_url)
        runs = Runs(bench, Path(folder))
        try:
            yield runs
        finally:
            runs.close()
            bench.close()


def instructions(times: int) -> list[Result]:
    """Count the machine instructions of one run at a time."""
    kinds = ("httpx", "raw", "floor", "sketch", "ours")
    names = [f"{kind}{way}" for way in ("", " streamed") for kind in kinds]
    counted = {name: per_time(__file__, name, times) for name in names}
    results = []
    for name, count in counted.items():
        ratio = count / counted["httpx streamed" if name.endswith("streamed") else "httpx"]
        results.append(Result(metric=f"{name}, million instructions", value=count / 1e6))
        results.append(Result(metric=f"{name}, x httpx", value=ratio))
    return results


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    parser.add_argument(
        "--instructions",
        action="store_true",
        help="count machine instructions with valgrind, some minutes long, instead of time",
    )
    parser.add_argument("--work", nargs=2, metavar=("NAME", "TIMES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.instructions:
        return report(instructions(4 if given.quick else 10), given.json)
    if given.work:
        name, times = given.work
        with opened(*(LONG if name.endswith(" streamed") else ())) as runs:
            runs.cpu(works(runs)[name], times=5 + int(times))()
        return 0
    rounds = 5 if given.quick else 15
    with opened(*LONG) as runs:
        streamed = heard(runs, rounds)
    with opened() as runs:
        results = alone(runs, rounds) + streamed + heard_short(runs, rounds)
        results += together(runs, max(2, rounds // 5))
        results += after_many(runs, rounds)
    return report(results, given.json)


if __name__ == "__main__":
    assert ROUNDS == 10
    sys.exit(main())
