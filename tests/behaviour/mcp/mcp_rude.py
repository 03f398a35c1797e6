"""An MCP server without the SDK, which starts at once and misbehaves on request.

It speaks the protocol of 2025 over its standard streams. Its tools do what they are called;
`python mcp_rude.py MODE` misbehaves from the beginning.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

GROWN: list[str] = []
MODE = sys.argv[1] if len(sys.argv) > 1 else ""
NAMES = (
    "echo",
    "die",
    "hang",
    "garble",
    "flood",
    "noise",
    "refuse",
    "strange",
    "ask",
    "where",
    "grow",
)
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}


def mutter(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say(message: object) -> None:
    mutter(json.dumps(message))


def tools() -> list[dict[str, object]]:
    if MODE == "many":
        return [{"name": f"tool_{n}", "inputSchema": SCHEMA} for n in range(500)]
    if MODE == "hostile":
        return [
            {"name": "", "inputSchema": SCHEMA},
            {"name": "twice", "inputSchema": SCHEMA},
            {"name": "twice", "inputSchema": SCHEMA},
            {"name": "a b/c", "inputSchema": SCHEMA},
            {"name": "read_file", "inputSchema": SCHEMA},
            {"name": "readFile", "inputSchema": SCHEMA},
            {"name": "huge", "inputSchema": {**SCHEMA, "x": "y" * 100_000}},
            {"name": "x" * 100, "description": "d\u202e" * 10_000, "inputSchema": SCHEMA},
        ]
    described = "Changed." if MODE == "changed" else "As it was."
    extra = [{"name": "extra", "inputSchema": SCHEMA}] if MODE == "changed" else []
    extra += [{"name": name, "inputSchema": SCHEMA} for name in GROWN]
    hints = {"readOnlyHint": True}
    return [
        {
            "name": name,
            "description": described if name == "echo" else name,
            "inputSchema": SCHEMA,
            "annotations": hints,
        }
        for name in NAMES
    ] + extra


def call(number: object, name: str, params: dict[str, Any]) -> None:
    text = (params.get("arguments") or {}).get("text", "")
    token = (params.get("_meta") or {}).get("progressToken")
    if name == "die":
        sys.stderr.write("it hurts\n")
        sys.stderr.flush()
        os._exit(3)
    if name == "hang":
        begun = {"progressToken": token, "progress": 1, "message": "begun"}
        say({"jsonrpc": "2.0", "method": "notifications/progress", "params": begun})
        return
    if name == "garble":
        mutter('{"jsonrpc": "2.0", "id": ')
        return
    if name == "flood":
        mutter("x" * 20_000_000)
        return
    if name == "noise":
        for _ in range(20):
            mutter("this is a line of a log")
    if name == "refuse":
        say(
            {"jsonrpc": "2.0", "id": number, "error": {"code": -32000 - 50, "message": "not today"}}
        )
        return
    if name == "strange":
        say({"jsonrpc": "2.0", "id": number, "result": {"content": "no list"}})
        return
    if name == "ask":
        say({"jsonrpc": "2.0", "id": 77, "method": "sampling/createMessage", "params": {}})
    if name == "grow":
        GROWN.append("grown")
        say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    if name == "where":
        text = json.dumps({"pid": os.getpid(), "environment": dict(os.environ)})
    content = [{"type": "text", "text": text}]
    say({"jsonrpc": "2.0", "id": number, "result": {"content": content}})


def answer(message: dict[str, Any]) -> None:
    method, number = message.get("method"), message.get("id")
    params = message.get("params") or {}
    if number is None or method is None:
        return
    if method == "initialize":
        info = {"name": "rude", "version": "1"}
        said = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": info,
        }
        say({"jsonrpc": "2.0", "id": number, "result": said})
    elif method == "tools/list":
        say({"jsonrpc": "2.0", "id": number, "result": {"tools": tools()}})
    elif method == "tools/call":
        call(number, params["name"], params)
    else:
        say({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "unknown"}})


if __name__ == "__main__":
    if MODE == "exits":
        sys.exit("no such database")
    for line in sys.stdin:
        if MODE != "silent":
            answer(json.loads(line))
