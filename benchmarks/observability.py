"""What seeing costs: a run of ten rounds with nothing on, with logs and metrics, with traces.

The run is that of `runtime.py`, against the same fake server. The kinds take turns, so that a
machine that is busy meanwhile is busy for all. Lines go to a file, metrics are read from
the journal when they are asked for, which costs a run nothing, traces go to a receiver that takes
and forgets them.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import http.server
import logging
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from statistics import median

from _report import Result, add_arguments, report
from runtime import make_agent, our_run
from wire import Bench, served

from holdfast import Agent, AsyncClient
from holdfast.observability import configure_logs
from holdfast.settings import load_settings

RUNS = 40
QUICK_RUNS = 8
AT_A_TIME = 5
KINDS = ("nothing", "logs and metrics", "traces")
MOST_LOGS = 1.05
MOST_TRACES = 1.15


class _Taker(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


@contextlib.contextmanager
def receive_traces() -> Iterator[str]:
    """Take traces in a thread."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Taker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@contextlib.asynccontextmanager
async def open_kind(kind: str, place: Path, otlp_url: str) -> AsyncIterator[AsyncClient]:
    """Open a client that is seen in this way."""
    chosen: dict[str, object] = {
        "storage.state_dir": str(place / kind.replace(" ", "-")),
        "workspace": str(place),
        "log.format": "json",
        "log.level": "info" if kind.startswith("logs") else "warning",
    }
    if kind == "traces":
        chosen["telemetry.otlp_url"] = otlp_url
    async with AsyncClient(settings=load_settings(overrides=chosen).settings) as client:
        yield client


async def measure(count: int, bench: Bench) -> dict[str, float]:
    """Return the median CPU seconds of a run, by kind."""
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name, receive_traces() as otlp_url:
        place = Path(name)
        async with contextlib.AsyncExitStack() as stack:
            clients = {
                kind: await stack.enter_async_context(open_kind(kind, place, otlp_url))
                for kind in KINDS
            }
            agent = make_agent(bench.model())
            for client in clients.values():
                await our_run(client, agent)
            for _ in range(count):
                for kind, client in clients.items():
                    taken[kind].append(await _measure_one(client, agent, kind, place))
    return {kind: median(values) for kind, values in taken.items()}


async def _measure_one(client: AsyncClient, agent: Agent, kind: str, place: Path) -> float:
    restore = None
    if kind.startswith("logs"):
        stream = (place / "log.jsonl").open("a", encoding="utf-8")
        restore = configure_logs(client.settings, stream=stream)
    try:
        await our_run(client, agent)  # with a log that was just set up, everything is cold
        gc.collect()
        began = time.process_time()
        for _ in range(AT_A_TIME):
            await our_run(client, agent)
        return (time.process_time() - began) / AT_A_TIME
    finally:
        if restore is not None:
            restore()
            stream.close()


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    arguments = parser.parse_args()
    logging.getLogger().setLevel(logging.WARNING)
    count = QUICK_RUNS if arguments.quick else RUNS
    with served() as base_url:
        bench = Bench(base_url)
        found = bench.loop.run_until_complete(measure(count, bench))
    base = found["nothing"]
    results = [Result(metric="a run, nothing on, ms", value=base * 1e3)]
    for kind, most in ((KINDS[1], MOST_LOGS), (KINDS[2], MOST_TRACES)):
        ratio = found[kind] / base
        results.append(
            Result(metric=f"{kind}, x", value=ratio, goal=f"<= {most}", ok=ratio <= most)
        )
    return report(results, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
