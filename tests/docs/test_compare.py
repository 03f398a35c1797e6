"""The page that shows seven programs beside those of other frameworks is true. (8.1)"""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import sys
import textwrap
from pathlib import Path

import pytest

from holdfast.testing.fake_server import FakeServer, Reply, ScriptedCall

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")
KEY = "sk-test-3f9a8b7c6d5e4f3a2b1c"
BLOCK = re.compile(r'^=== "(?P<who>[^"]+)"\n\n    ```py\n(?P<code>.*?)^    ```$', re.M | re.S)
SECTIONS = {
    title: {one["who"]: textwrap.dedent(one["code"]) for one in BLOCK.finditer(text)}
    for title, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
}
SHOWN = {title: blocks for title, blocks in SECTIONS.items() if blocks}


def call(name: str, **arguments: object) -> Reply:
    return Reply(calls=(ScriptedCall(name=name, arguments=json.dumps(arguments)),))


SCRIPTS = {
    "One tool": (call("multiply", a=15, b=23), Reply(text="345")),
    "Stream": (Reply(text="A root of kelp."),),
    "Structured output": (Reply(text='{"name": "Paris", "country": "France"}'),),
    "Approve": (call("delete", path="draft.txt"), Reply(text="It stays.")),
    "Resume after a crash": (call("charge", amount=5), Reply(text="charged 5")),
    "Two agents": (call("poet", task="kelp"), Reply(text="Kelp."), Reply(text="Here: Kelp.")),
    "Test without a model": (),
}
PRINTED = {
    "One tool": "345",
    "Stream": "A root of kelp.",
    "Structured output": "name='Paris' country='France'",
    "Approve": "It stays.",
    "Resume after a crash": "charged 5",
    "Two agents": "Here: Kelp.",
    "Test without a model": "",
}


def measure(code: str) -> str:
    found = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    names = {one.name for node in found if node.module != "pydantic" for one in node.names}
    lines = sum(bool(line.strip()) for line in code.splitlines())
    return f"{lines} lines, {len(names)} name{'s' if len(names) > 1 else ''}"


def test_the_table_counts_what_stands_on_the_page() -> None:
    assert list(SHOWN) == list(SCRIPTS)
    for title, blocks in SHOWN.items():
        assert len(blocks) == 3
        assert f"| {title} | {' | '.join(map(measure, blocks.values()))} |" in PAGE


def test_ours_never_takes_more_lines() -> None:
    for title, blocks in SHOWN.items():
        ours, *theirs = (int(measure(code).split()[0]) for code in blocks.values())
        assert ours <= min(theirs), title


@pytest.mark.parametrize("title", list(SCRIPTS))
async def test_our_side_runs_as_it_stands(title: str, tmp_path: Path) -> None:
    code = SHOWN[title]["Holdfast"]
    if "def test_" in code:
        code += "\n\ntest_the_agent_looks_before_it_promises()\n"
    (tmp_path / "program.py").write_text(code, encoding="utf-8")
    async with FakeServer(key=KEY) as server:
        server.answers.extend(SCRIPTS[title])
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        ended = await asyncio.create_subprocess_exec(
            sys.executable,
            "program.py",
            cwd=tmp_path,
            env=kept
            | {"HOME": str(tmp_path), "OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": server.base_url}
            | {"AGENT_FORCE_CHAT_COMPLETIONS": "true"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            printed, told = await ended.communicate()
    assert ended.returncode == 0, told.decode()
    assert printed.decode().strip() == PRINTED[title]
