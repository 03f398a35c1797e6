"""What the dashboard costs: its bytes, a very long run, how late a page shows what was stored.

A server in a process of its own and Debian's chromium. Figures of the browser are wall time of a
machine on which browser and server share the cores; beside each stands a bare page of the same
server, opened in turns with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import aiohttp
from _report import Result, arguments, report
from server import Served, serve

from holdfast import Agent, tool
from holdfast.messages import ToolPart
from holdfast.providers import ModelRequest
from holdfast.testing import FunctionModel, ModelReply, tool_call

if TYPE_CHECKING:
    from playwright.async_api import Page, Request

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update"]  # fmt: skip
LONG = 10_000
"""Events of the long run."""
AT_ONCE = 50
IDLE = 20
_BATCH = 100
_ROUNDS = 8


@tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


@tool(effect="read")
async def rest(number: int, for_s: float) -> str:
    """Take as long as a tool may take."""
    await asyncio.sleep(for_s)
    return "rested"


def _look_long(request: ModelRequest) -> ModelReply | str:
    # By the newest call: older ones are left out of the context as it fills.
    seen = [call for one in request.messages for call in one.tool_calls]
    done = int(str(seen[-1].input["at"])) + 1 if seen else 0
    if done >= LONG:
        return "All of it was seen."
    calls = tuple(tool_call("look", at=f"{done + number}") for number in range(_BATCH))
    return ModelReply(text="", calls=calls)


def _rest_often(request: ModelRequest) -> ToolPart | str:
    done = sum(len(one.tool_calls) for one in request.messages if one.role == "assistant")
    # Spread by what was asked, so that runs do not move in step.
    pause = 0.5 + 0.5 * (len(request.messages[0].text) % 7) / 7
    return tool_call("rest", number=done, for_s=pause) if done < _ROUNDS else "Rested."


agents = [
    Agent("long", model=FunctionModel(_look_long), tools=[look], steps=LONG),
    Agent("tired", model=FunctionModel(_rest_often), tools=[rest], steps=_ROUNDS + 2),
]


class Window:
    """A browser that is logged in."""

    def __init__(self, served: Served, page: Page, session: aiohttp.ClientSession) -> None:
        """Look at this server."""
        self.served, self.page, self.session = served, page, session

    async def open(self, path: str = "") -> float:
        """Go to a page of the dashboard; returns the seconds until it was loaded."""
        start = time.perf_counter()
        await self.page.goto(f"{self.served.url}/dashboard{path}", wait_until="load")
        return time.perf_counter() - start

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Ask the API."""
        async with self.session.request(method, self.served.url + path, json=body) as answer:
            assert answer.status < 300, await answer.text()
            found: dict[str, Any] = await answer.json()
            return found


async def measure_first_page(window: Window) -> Result:
    """Count what comes over the line for the first page, from a browser that knows nothing."""
    sizes: list[int] = []
    waits: list[asyncio.Future[None]] = []

    def note(request: Request) -> None:
        waits.append(asyncio.ensure_future(_note_size(request, sizes)))

    window.page.on("requestfinished", note)
    await window.open()
    window.page.remove_listener("requestfinished", note)
    await asyncio.gather(*waits)
    kb = sum(sizes) / 1000
    return Result(metric="first page, KB", value=kb, goal="<= 100", ok=kb <= 100)


async def _note_size(request: Request, sizes: list[int]) -> None:
    found = await request.sizes()
    sizes.append(found["responseBodySize"] + found["responseHeadersSize"])


async def measure_long_run(window: Window, rounds: int) -> list[Result]:
    """Open a run with 10,000 events, beside a page without records, and scroll it."""
    body = {"agent_name": "long", "user_message": "Look at everything", "on_ask": "park"}
    begun = await window.ask("POST", "/v1/runs/wait", body)
    found = await window.ask("GET", f"/v1/runs/{begun['run_id']}")
    path = f"/runs/{begun['run_id']}"
    await window.open(path)
    long, bare, cpu = [], [], []
    for _ in range(rounds):
        bare.append(await window.open("/skills"))
        before = window.served.cpu_s
        long.append(await window.open(path))
        cpu.append(window.served.cpu_s - before)
    frames = await window.page.evaluate(_SCROLL)
    worst, taken = quantiles(frames, n=20)[-1], median(long)
    return [
        Result(metric="events of the long run", value=float(found["ended_at"])),
        Result(metric="page without records, s", value=median(bare)),
        Result(metric="the long run opens, s", value=taken, goal="<= 1", ok=taken <= 1),
        Result(metric="CPU of the server for it, s", value=median(cpu)),
        Result(metric="scrolled through, p95 ms of a frame", value=worst, note=f"{len(frames)}"),
    ]


_SCROLL = """async () => {
  const took = []; let before = performance.now();
  const high = document.documentElement.scrollHeight;
  for (let at = 0; at < high; at += 800) {
    window.scrollTo(0, at);
    await new Promise((done) => requestAnimationFrame(done));
    const now = performance.now(); took.push(now - before); before = now;
  }
  return took;
}"""
_WATCH = """() => {
  window.seen = {};
  const look = () => document.querySelectorAll('tr[id^="row-"]').forEach((row) => {
    const word = row.querySelector('.badge')?.textContent, key = row.id.slice(4);
    if (word === 'completed' && !window.seen[key]) window.seen[key] = Date.now() / 1000;
  });
  new MutationObserver(look).observe(document.querySelector('main'),
    {subtree: true, childList: true, characterData: true, attributes: true});
}"""


async def measure_visible(window: Window) -> Result:
    """Watch the list while 50 runs work: from the time of the stored end to the changed row."""
    await window.open("/runs")
    # Not by `wait_for_function`: it compiles a text, which the policy of the page forbids.
    await window.page.locator("#live-word", has_text="live").wait_for()
    await window.page.evaluate(_WATCH)
    bodies = [
        {"agent_name": "tired", "user_message": "Rest" + "." * number, "on_ask": "park"}
        for number in range(AT_ONCE)
    ]
    done = await asyncio.gather(*(window.ask("POST", "/v1/runs/wait", body) for body in bodies))
    ids = [one["run_id"] for one in done]
    await window.page.locator("tr .badge.completed").nth(AT_ONCE - 1).wait_for()
    seen = await window.page.evaluate("window.seen")
    late = []
    for run_id in ids:
        found = await window.ask("GET", f"/v1/runs/{run_id}")
        late.append((seen[run_id] - found["time_ended"]) * 1000)
    p95 = quantiles(late, n=20)[-1]
    return Result(
        metric=f"stored to visible, {AT_ONCE} runs, p95 ms",
        value=p95,
        goal="<= 500",
        ok=p95 <= 500,
        note=f"median {median(late):.0f} ms",
    )


async def measure_idle(window: Window, seconds: float) -> Result:
    """Hold 20 streams as open pages do, while nothing happens."""
    cookies = {one["name"]: one["value"] for one in await window.page.context.cookies()}
    await window.page.goto("about:blank")
    async with aiohttp.ClientSession(cookies=cookies) as session:
        address = f"{window.served.url}/dashboard/live?topic=runs"
        opened = [await session.get(address) for _ in range(IDLE)]
        for one in opened:
            assert one.status == 200
            await one.content.readline()
        await asyncio.sleep(1)
        before = window.served.cpu_s
        await asyncio.sleep(seconds)
        share = (window.served.cpu_s - before) / seconds * 100
        for one in opened:
            one.close()
    return Result(
        metric=f"{IDLE} open dashboards, % of a core", value=share, goal="<= 5", ok=share <= 5
    )


async def measure(served: Served, *, is_quick: bool) -> list[Result]:
    """Measure everything against one server."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 - the server loads this file

    session = aiohttp.ClientSession(headers=served.headers, timeout=aiohttp.ClientTimeout(600))
    async with session, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            context = await browser.new_context(viewport={"width": 1280, "height": 900})
            window = Window(served, await context.new_page(), session)
            made = await window.ask("POST", "/login/links?to=/dashboard/login")
            await window.page.goto(served.url + made["path"])
            results = [await measure_first_page(window)]
            results += await measure_long_run(window, 3 if is_quick else 9)
            results.append(await measure_visible(window))
            results.append(await measure_idle(window, 10 if is_quick else 30))
        finally:
            await browser.close()
    return results


def _serve(folder: Path) -> contextlib.AbstractContextManager[Served]:
    return serve(folder, "dashboard:agents", environment={"HOLDFAST_LOG_LEVEL": "error"})


def main() -> int:
    """Measure, and print the table."""
    chosen = arguments(__doc__ or "")
    with tempfile.TemporaryDirectory() as name, _serve(Path(name)) as served:
        results = asyncio.run(measure(served, is_quick=chosen.quick))
    return report(results, chosen.json)


if __name__ == "__main__":
    sys.exit(main())
