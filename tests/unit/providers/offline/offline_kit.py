"""A small loop that drives the offline model with real tools on a real folder."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.canonical import JsonObject
from holdfast.messages import Message, TextPart, ToolPart, ToolSpec
from holdfast.providers.model import Finished, ModelRequest
from holdfast.providers.offline import MAX_ROUNDS, OfflineModel

TEXT: JsonObject = {"type": "string"}
COUNT: JsonObject = {"type": "integer", "minimum": 1}


def spec(name: str, description: str = "", *, required: str = "", **fields: JsonObject) -> ToolSpec:
    return ToolSpec(
        name=name,
        description=description or name,
        parameters={
            "type": "object",
            "properties": fields,
            "required": required.split(),
            "additionalProperties": False,
        },
    )


FILE_TOOLS = (
    spec("list", path=TEXT),
    spec("read", required="file_path", file_path=TEXT, offset=COUNT, limit=COUNT),
    spec("grep", required="pattern", pattern=TEXT, include=TEXT, path=TEXT),
    spec("glob", required="pattern", pattern=TEXT, path=TEXT),
    spec("bash", required="command", command=TEXT),
)
CALCULATOR = spec(
    "calculator",
    "Do a sum with two numbers",
    required="operation a b",
    operation={"type": "string", "enum": ["add", "subtract", "multiply", "divide"]},
    a={"type": "number"},
    b={"type": "number"},
)


def user(text: str, **fields: Any) -> Message:
    return Message(
        id="msg_1", session_id="ses_1", role="user", parts=(TextPart(text=text),), **fields
    )


async def ask(request: ModelRequest) -> Message:
    found = [delta async for delta in OfflineModel().stream(request, deltas=False)]
    assert len(found) == 1
    assert isinstance(found[0], Finished)
    return found[0].message


class Drive:
    """Runs a goal to its end and keeps the calls that were made."""

    def __init__(self, run: Callable[[str, JsonObject], str], tools: tuple[ToolSpec, ...]) -> None:
        self.run = run
        self.tools = tools
        self.calls: list[tuple[str, JsonObject]] = []

    async def answer(self, goal: str, **fields: Any) -> Message:
        messages = [user(goal)]
        for _ in range(MAX_ROUNDS + 1):
            request = ModelRequest(messages=tuple(messages), tools=self.tools, **fields)
            message = await ask(request)
            messages.append(message)
            if not message.tool_calls:
                return message
            messages.append(self._results(message))
        raise AssertionError("it never came to an end")

    def _results(self, message: Message) -> Message:
        parts = []
        for call in message.tool_calls:
            self.calls.append((call.tool, call.input))
            try:
                done = {"state": "completed", "output": self.run(call.tool, call.input)}
            except Exception as error:
                done = {"state": "error", "error": str(error)}
            parts.append(ToolPart(call_id=call.call_id, tool=call.tool, **done))
        return Message(id="msg_t", session_id="ses_1", role="tool", parts=tuple(parts))


def tree(root: Path) -> str:
    lines = [f"{root}/"]
    for folder, names, files in os.walk(root):
        names.sort()
        depth = len(Path(folder).relative_to(root).parts)
        if depth:
            lines.append("  " * depth + os.path.basename(folder) + "/")
        lines += ["  " * (depth + 1) + name for name in sorted(files)]
    return "\n".join(lines)


def folder_tools(root: Path) -> Callable[[str, JsonObject], str]:
    def run(tool: str, given: JsonObject) -> str:
        if tool == "list":
            return tree(root / given.get("path", "."))
        if tool == "read":
            lines = (root / given["file_path"]).read_text().splitlines()[: given.get("limit", 2000)]
            return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(lines, 1))
        if tool == "glob":
            found = sorted(root.glob(given["pattern"]))
            return "\n".join(str(path.relative_to(root)) for path in found if path.is_file())
        if tool == "grep":
            hits = []
            for path in sorted(root.rglob("*")):
                for number, line in enumerate(
                    path.read_text().splitlines() if path.is_file() else [], 1
                ):
                    if re.search(given["pattern"], line):
                        hits.append(f"{path.relative_to(root)}:{number}: {line}")
            return "\n".join(hits) or f"No line matches {given['pattern']!r}."
        raise ValueError(f"{tool} is not for this test")

    return run


def calculate(tool: str, given: JsonObject) -> str:
    a, b = given["a"], given["b"]
    done = {"add": a + b, "subtract": a - b, "multiply": a * b, "divide": a / b if b else 0}
    return str(done[given["operation"]])
