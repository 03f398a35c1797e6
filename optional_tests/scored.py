"""A small real model through Holdfast and through its peers, on one server: who gets it right.

    python optional_tests/scored.py [--no-peers]

Needs the extra `local` and the weights that `scripts/test-local-model` installs. The peers get an
environment of their own beside `.venv`. Exit code 1 if a row of ours is below a peer's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import scored_tasks as tasks
from scored_peers import ASK, make_type
from test_smollm2 import weights

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import HoldfastError
from holdfast.orchestration.loop import LoopLimits, LoopOptions
from holdfast.providers import make_config

ROOT = Path(__file__).parents[1]
PEERS = {"pydantic-ai": "pydantic-ai-slim[openai]", "openai-agents": "openai-agents"}
KEY = "only-for-loopback"
WINDOW = 4096
_LIMIT_S = 45


@contextmanager
def serving() -> Iterator[tuple[str, str]]:
    """Serve the model on loopback, for all frameworks; gives its address and its name."""
    import xllamacpp  # noqa: PLC0415 - the extra `local`

    path = weights()
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


async def score_ours(base_url: str, model: str) -> dict[str, int]:
    """Do every task with agents as an application makes them."""
    right = {"single": 0, "two": 0, "structured": 0, "loops": 0}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "work").mkdir()
        (place / "work" / "readme.txt").write_text("A folder for a trial.\n")
        async with AsyncClient(place / "state") as client:
            registry = await client.providers.registry()
            await registry.add_provider(
                make_config(name="suite", base_url=base_url, is_local=True, key_env="SUITE_KEY")
            )
            named = f"suite:{model}"

            async def attempt(text: str, functions: Any = (), output: Any = None) -> Any:
                tasks.CALLED.clear()
                agent = Agent(
                    "tester",
                    model=named,
                    prompt=ASK,
                    tools=[tool(one) for one in functions],
                    output=output,
                    temperature=0,
                    steps=4,
                    options={"max_tokens": 100},
                )
                try:
                    async with asyncio.timeout(_LIMIT_S):
                        return (await agent.run(text, client=client)).output
                except (HoldfastError, TimeoutError) as error:
                    sys.stderr.write(f"{type(error).__name__}: {str(error)[:120]}\n")
                    return None

            for single in tasks.SINGLE_CALLS:
                await attempt(single.text, single.tools)
                right["single"] += tell("single", single.text, tasks.score_single(single))
            for two in tasks.TWO_STEPS:
                await attempt(two.text, two.tools)
                right["two"] += tell("two", two.text, tasks.score_two(two))
            for structured in tasks.STRUCTURED:
                kind = make_type(structured)
                is_right = isinstance(await attempt(structured.text, (), kind), kind)
                right["structured"] += tell("structured", structured.text, is_right)
            for goal in tasks.LOOPS:
                right["loops"] += await run_loop(client, goal, named)
    return right


def tell(row: str, text: str, is_right: bool) -> bool:
    """Say how a task went, since the whole takes minutes."""
    sys.stderr.write(f"{'right' if is_right else 'wrong'}  {row}: {text}\n")
    return is_right


async def run_loop(client: AsyncClient, goal: str, model: str) -> bool:
    """Run a loop; it counts if it reaches its goal, or says what went wrong and what it took."""
    options = LoopOptions(
        model=model, limits=LoopLimits(max_attempts=2, max_replans=1, wall_s=_LIMIT_S)
    )
    report = await client.loops.run(goal, options=options)
    sys.stderr.write(f"loop: {report.outcome}: {report.reason[:160]} ({report.tokens} tokens)\n")
    return report.is_done or bool(report.reason and report.tokens)


def score_peer(framework: str, base_url: str, model: str) -> dict[str, int]:
    """Let a peer do the same in an environment of its own."""
    place = ROOT / f".venv-{framework}"
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", PEERS[framework]], check=True)
    script = Path(__file__).with_name("scored_peers.py")
    ended = subprocess.run(
        [python, str(script), framework, base_url, KEY, model],
        stdout=subprocess.PIPE,
        check=True,
        timeout=3_600,
    )
    found: dict[str, int] = json.loads(ended.stdout)
    return found


def main() -> int:
    """Print the table; 1 if a peer is better in a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-peers", action="store_true", help="ours alone")
    options = parser.parse_args()
    os.environ["SUITE_KEY"] = KEY
    with serving() as (base_url, model):
        found = {"holdfast": asyncio.run(score_ours(base_url, model))}
        if not options.no_peers:
            found |= {name: score_peer(name, base_url, model) for name in PEERS}
    most = {
        "single": len(tasks.SINGLE_CALLS),
        "two": len(tasks.TWO_STEPS),
        "structured": len(tasks.STRUCTURED),
        "loops": len(tasks.LOOPS),
    }
    sys.stdout.write(f"{model}\n{'':12}" + "".join(f"{name:>16}" for name in found) + "\n")
    is_below = False
    for row, count in most.items():
        sys.stdout.write(f"{row:12}")
        for scores in found.values():
            shown = f"{scores[row]}/{count}" if row in scores else "none"
            sys.stdout.write(f"{shown:>16}")
            is_below = is_below or scores.get(row, 0) > found["holdfast"][row]
        sys.stdout.write("\n")
    return int(is_below)


if __name__ == "__main__":
    sys.exit(main())
