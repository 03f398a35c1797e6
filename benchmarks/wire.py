"""What the wire layer costs: CPU of a tool conversation against a hand-written aiohttp loop.

The fake server runs in a process of its own, so the figures are the client's CPU (user
plus system time of this process). Both sides send the same conversation: a request per
round with all messages so far, one tool call back, after ten rounds a text.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import aiohttp
import msgspec
from _report import Result, arguments, interleave, report

SOURCE = Path(__file__).parents[1] / "src"
sys.path.insert(0, str(SOURCE))

from holdfast.messages import Message, TextPart, ToolPart, ToolSpec  # noqa: E402
from holdfast.providers import (  # noqa: E402  # noqa: E402
    Api,
    Endpoint,
    Finished,
    HttpTransport,
    ModelRequest,
    QuietMode,
    WireModel,
)

ROUNDS = 10
AT_ONCE = 200
ALONE, TOGETHER, KB_EACH = 1.3, 1.5, 60.0
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["a", "b"],
}
TOOLS = (ToolSpec(name="multiply", description="Multiply two numbers.", parameters=SCHEMA),)
RAW_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "multiply",
            "description": "Multiply two numbers.",
            "parameters": SCHEMA,
        },
    }
]
SYSTEM = "You are a careful calculator. Use the tool for every multiplication."

Conversation = Callable[[], Awaitable[int]]


@contextmanager
def served(*options: str) -> Iterator[str]:
    """Run the fake server in its own process; give its base URL."""
    command = [sys.executable, "-m", "holdfast.testing.fake_server", "--no-check"]
    command += ["--rounds", str(ROUNDS), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=SOURCE)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["base_url"]
    finally:
        process.terminate()
        process.wait()


# --- ours ----------------------------------------------------------------------------


def user(text: str) -> Message:
    """A message of the user."""
    return Message(id="m", session_id="s", role="user", parts=(TextPart(text=text),))


def results_of(said: Message) -> Message:
    """The results of the calls in an answer."""
    parts = tuple(
        ToolPart(
            call_id=call.call_id,
            tool=call.tool,
            state="completed",
            output=str(call.input["a"] * call.input["b"]),
        )
        for call in said.tool_calls
    )
    return Message(id="r", session_id="s", role="tool", parts=parts)


async def our_conversation(model: WireModel, *, deltas: bool) -> int:
    """Talk through the wire layer until no tool is called; return the number of deltas."""
    messages: tuple[Message, ...] = (user("Multiply a lot of numbers by 23."),)
    pieces = 0
    while True:
        request = ModelRequest(messages=messages, system=SYSTEM, tools=TOOLS)
        async for delta in model.stream(request, deltas=deltas):
            if isinstance(delta, Finished):
                said = delta.message
            else:
                pieces += 1
        if not said.tool_calls:
            return pieces
        messages = (*messages, said, results_of(said))


# --- by hand -------------------------------------------------------------------------


async def hand_conversation(session: aiohttp.ClientSession, url: str, *, streamed: bool) -> int:
    """Talk as one would by hand: no limits, no checks, no types."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": "Multiply a lot of numbers by 23."},
    ]
    pieces = 0
    while True:
        body = {"model": "m", "messages": messages, "tools": RAW_TOOLS, "stream": streamed}
        if streamed:
            said, seen = await hand_stream(session, url, body)
            pieces += seen
        else:
            async with session.post(url, json=body) as response:
                said = (await response.json())["choices"][0]["message"]
        messages.append(said)
        calls = said.get("tool_calls")
        if not calls:
            return pieces
        for call in calls:
            given = json.loads(call["function"]["arguments"])
            output = str(given["a"] * given["b"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})


async def hand_stream(
    session: aiohttp.ClientSession, url: str, body: dict[str, Any]
) -> tuple[dict[str, Any], int]:
    """Put one streamed answer together."""
    text: list[str] = []
    calls: dict[int, dict[str, Any]] = {}
    pieces = 0
    async with session.post(url, json=body) as response:
        async for line in response.content:
            if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                continue
            chunk = json.loads(line[6:])
            for choice in chunk["choices"]:
                delta = choice["delta"]
                pieces += 1
                if delta.get("content"):
                    text.append(delta["content"])
                for piece in delta.get("tool_calls") or ():
                    call = calls.setdefault(
                        piece["index"], {"type": "function", "function": {"arguments": ""}}
                    )
                    if piece.get("id"):
                        call["id"] = piece["id"]
                        call["function"]["name"] = piece["function"]["name"]
                    call["function"]["arguments"] += piece["function"]["arguments"]
    said: dict[str, Any] = {"role": "assistant", "content": "".join(text) or None}
    if calls:
        said["tool_calls"] = [calls[index] for index in sorted(calls)]
    return said, pieces


# --- measuring -----------------------------------------------------------------------


class Bench:
    """One loop, one session of each kind, kept warm over all rounds."""

    def __init__(self, base_url: str) -> None:
        """Open both sessions."""
        self.base_url = base_url
        self.loop = asyncio.new_event_loop()
        self.transport = HttpTransport()
        self.session = self.loop.run_until_complete(self._open())

    async def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))

    def model(self, api: Api = "chat", quiet: QuietMode = "body") -> WireModel:
        """Return a model behind the fake server."""
        endpoint = Endpoint(provider="fake", base_url=self.base_url, api=api, quiet=quiet)
        return WireModel(endpoint, "m", self.transport)

    def cpu_of(self, talk: Conversation, *, times: int, at_once: int = 1) -> Callable[[], float]:
        """Return a measurement: CPU seconds of one conversation."""

        async def run() -> None:
            for _ in range(times):
                await asyncio.gather(*(talk() for _ in range(at_once)))

        def measure() -> float:
            gc.collect()
            begin = time.process_time()
            self.loop.run_until_complete(run())
            return (time.process_time() - begin) / (times * at_once)

        return measure

    def kb_each(self, talk: Conversation, at_once: int) -> float:
        """Return the peak of memory that one of many conversations adds, once warm."""

        async def run() -> None:
            await asyncio.gather(*(talk() for _ in range(at_once)))

        gc.collect()
        tracemalloc.start()
        self.loop.run_until_complete(run())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak / at_once / 1024

    def close(self) -> None:
        """Close both sessions."""
        self.loop.run_until_complete(self.session.close())
        self.loop.run_until_complete(self.transport.close())
        self.loop.run_until_complete(asyncio.sleep(0.05))
        self.loop.close()


def compare(bench: Bench, rounds: int) -> list[Result]:
    """Compare one conversation at a time."""
    url = f"{bench.base_url}/chat/completions"
    quiet_stream = bench.model(quiet="stream")
    chat = bench.model()
    cases: dict[str, Conversation] = {
        "hand streamed": lambda: hand_conversation(bench.session, url, streamed=True),
        "hand body": lambda: hand_conversation(bench.session, url, streamed=False),
        "chat streamed": lambda: our_conversation(chat, deltas=True),
        "chat streamed, unheard": lambda: our_conversation(quiet_stream, deltas=False),
        "chat body": lambda: our_conversation(chat, deltas=False),
    }
    others: tuple[Api, ...] = ("responses", "anthropic")
    for api in others:
        model = bench.model(api)
        cases[f"{api} streamed"] = partial(our_conversation, model, deltas=True)
        cases[f"{api} body"] = partial(our_conversation, model, deltas=False)
        unheard = bench.model(api, quiet="stream")
        cases[f"{api} streamed, unheard"] = partial(our_conversation, unheard, deltas=False)
    found = interleave({n: bench.cpu_of(t, times=3) for n, t in cases.items()}, rounds)
    results = []
    for name in cases:
        if name.startswith("hand"):
            note = f"CPU of {ROUNDS} tool rounds and an answer"
            results.append(Result(metric=f"{name}, ms", value=median(found[name]) * 1e3, note=note))
            continue
        base = found["hand body" if name.endswith("body") else "hand streamed"]
        ratio = median(a / b for a, b in zip(found[name], base, strict=True))
        goal = f"<= {ALONE} x hand" if name.startswith("chat") else ""
        ok = ratio <= ALONE if goal else None
        results.append(Result(metric=f"{name}, x hand", value=ratio, goal=goal, ok=ok))
    return results


def compare_at_once(bench: Bench, rounds: int) -> list[Result]:
    """Compare many conversations that run together."""
    url = f"{bench.base_url}/chat/completions"
    results = []
    for streamed in (True, False):
        model = bench.model()

        ours = partial(our_conversation, model, deltas=streamed)
        hand = partial(hand_conversation, bench.session, url, streamed=streamed)
        kind = "streamed" if streamed else "body"
        cases = {
            "ours": bench.cpu_of(ours, times=1, at_once=AT_ONCE),
            "hand": bench.cpu_of(hand, times=1, at_once=AT_ONCE),
        }
        found = interleave(cases, rounds)
        ratio = median(a / b for a, b in zip(found["ours"], found["hand"], strict=True))
        name = f"{AT_ONCE} at once, {kind}"
        goal = f"<= {TOGETHER} x hand"
        results.append(
            Result(metric=f"{name}, x hand", value=ratio, goal=goal, ok=ratio <= TOGETHER)
        )
        each = bench.kb_each(ours, AT_ONCE)
        results.append(
            Result(
                metric=f"{name}, KB each",
                value=each,
                goal=f"<= {KB_EACH:.0f}",
                ok=each <= KB_EACH,
                note="peak of Python memory, connections warm",
            )
        )
    return results


def grow(bench: Bench, rounds: int) -> list[Result]:
    """Compare requests after many messages with sending the same bytes by hand."""
    extra: dict[int, float] = {}
    notes = []
    for number in (300, 3000):
        ours, hand, size = sending(bench, number)
        cases = {"ours": bench.cpu_of(ours, times=20), "hand": bench.cpu_of(hand, times=20)}
        found = interleave(cases, rounds)
        extra[number] = median(found["ours"]) - median(found["hand"])
        notes.append(f"{size // 1024} KB by hand {median(found['hand']) * 1e3:.2f} ms")
    each = (extra[3000] - extra[300]) / 2700 * 1e6
    return [
        Result(
            metric="extra us per earlier message, beyond its bytes",
            value=each,
            goal="<= 0.5",
            ok=each <= 0.5,
            note="; ".join(notes),
        )
    ]


def sending(bench: Bench, number: int) -> tuple[Conversation, Conversation, int]:
    """One request with many messages: through the model, and its bytes by hand."""
    model = bench.model()
    text = "the tide comes in and the tide goes out."
    past = tuple(user(f"Message {n}: {text}") for n in range(number))
    request = ModelRequest(messages=past, system=SYSTEM, tools=TOOLS)
    body = model.encode(request, stream=False)
    url = f"{bench.base_url}/chat/completions"
    headers = {"Content-Type": "application/json"}

    async def ours() -> int:
        async for _ in model.stream(request, deltas=False):
            pass
        return 0

    async def hand() -> int:
        async with bench.session.post(url, data=body, headers=headers) as response:
            msgspec.json.decode(await response.read())
        return 0

    return ours, hand, len(body)


def main() -> int:
    """Measure, and report."""
    options = arguments(__doc__ or "")
    rounds = 5 if options.quick else 15
    with served() as base_url:
        bench = Bench(base_url)
        results = compare(bench, rounds)
        results += compare_at_once(bench, 2 if options.quick else 7)
        results += grow(bench, rounds)
        bench.close()
    return report(results, options.json)


if __name__ == "__main__":
    sys.exit(main())
