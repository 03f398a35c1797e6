"""An MCP server without the SDK that fetches pages as programs do: by the proxy's variables."""

from __future__ import annotations

import json
import os
import socket
import sys
import urllib.error
import urllib.request
from typing import Any

TEXT = {"type": "object", "properties": {"url": {"type": "string"}}}
TOOLS: list[Any] = [
    {"name": "fetch", "description": "Fetch.", "inputSchema": TEXT},
    {"name": "variables", "description": "Show.", "inputSchema": {"type": "object"}},
]


def fetch(url: str) -> str:
    if url.startswith("direct:"):
        _, host, port = url.split(":")
        try:
            socket.create_connection((host, int(port)), 5).close()
        except OSError as error:
            return f"unreachable: {error}"
        return "REACHED"
    # Whatever is excepted from the proxy is asked through it here: only that is tested.
    handler = urllib.request.ProxyHandler({"http": os.environ.get("HTTP_PROXY", "")})
    handler.proxy_bypass = None  # type: ignore[attr-defined]
    os.environ["no_proxy"] = ""
    try:
        with urllib.request.build_opener(handler).open(url, timeout=20) as answer:
            return f"{answer.status} {answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode()}"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "fetcher", "version": "1"}
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        bad = [{"name": "broken", "inputSchema": "no schema"}, {"name": "worse", "inputSchema": 7}]
        return {"tools": [bad[0], *TOOLS, bad[1]] if "malformed" in sys.argv else TOOLS}
    if method == "tools/call":
        arguments = params.get("arguments") or {}
        said = (
            fetch(arguments["url"]) if params["name"] == "fetch" else json.dumps(dict(os.environ))
        )
        return {"content": [{"type": "text", "text": said}]}
    return {}


def main() -> None:
    if "needs" in sys.argv:
        request = sys.argv[sys.argv.index("needs") + 1]
        sys.exit(f"cannot install: {urllib.request.urlopen(request, timeout=20).status}")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            if message["method"] in ("initialize", "tools/list", "tools/call", "ping"):
                result = answer(message["method"], message.get("params") or {})
                reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
            else:
                error = {"code": -32601, "message": "no such method"}
                reply = {"jsonrpc": "2.0", "id": message["id"], "error": error}
            sys.stdout.write(json.dumps(reply) + "\n")
            sys.stdout.flush()


main()
