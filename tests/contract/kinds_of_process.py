"""Every kind of process that is started for a run or a client, each made to run the same probe."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from holdfast import AsyncClient
from holdfast.errors import McpFailed
from holdfast.settings import load_settings
from holdfast.tools.gate import AutoConfirm

SECRET_VARIABLE = "OPENAI_API_KEY"

PROBE = """#!/bin/bash
# Tries what no process may do, and says in one line what was possible.
try() {{ if "${{@:2}}" >/dev/null 2>&1; then echo -n "$1=yes "; else echo -n "$1=no "; fi }}
write() {{ echo made > "$1"; }}
connect() {{ exec 3<>/dev/tcp/127.0.0.1/{port}; }}
has_secret() {{ env | grep -q {variable}; }}
{{
    echo -n "probe: "
    try workspace cat {workspace}/a.txt
    try records cat {state}/*
    try home ls {home}/.
    try policies write {workspace}/policies/tools.yaml
    try create write {workspace}/made-by-{kind}
    try network connect
    try secret has_secret
    echo "processes=$(ulimit -u) files=$(ulimit -n) core=$(ulimit -c)"
}} 1>&2
exit 3
"""


class House:
    """A client whose processes are the probe: hook, MCP server, language server, command."""

    def __init__(self, folder: Path, kind: str) -> None:
        """Work below a folder."""
        self.kind = kind
        self.folder = folder
        self.workspace = folder / "work"
        self.state = self.workspace / "state"  # within reach, if it were not hidden
        self.home = folder / "home"
        self.listener = socket.create_server(("127.0.0.1", 0))
        for place in (self.workspace / "policies", self.home):
            place.mkdir(parents=True)
        (self.workspace / "a.txt").write_text("readable")
        (self.workspace / "a.probe").write_text("code")
        self.probe = self.workspace / "probe.sh"
        self.probe.write_text(
            PROBE.format(
                port=self.listener.getsockname()[1],
                variable=SECRET_VARIABLE,
                workspace=self.workspace,
                state=self.state,
                home=self.home,
                kind=kind,
            )
        )

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncClient]:
        """Yield a client that knows all of them."""
        argv = ["/bin/bash", str(self.probe)]
        server = {"command": argv[0], "args": argv[1:]}
        chosen = load_settings(
            overrides={
                "workspace": self.workspace,
                "policies.dir": self.workspace / "policies",
                "mcp_endpoints": {"probe": {"transport": "stdio", **server}},
                "tools.language_servers": {"probe": {**server, "endings": {".probe": "probe"}}},
            },
            cwd=self.folder,
            environ={"HOME": str(self.home)},
        ).settings
        async with AsyncClient(self.state, settings=chosen) as client:
            client.approver = AutoConfirm()
            yield client

    def close(self) -> None:
        """Listen no more."""
        self.listener.close()


async def run_command(client: AsyncClient, house: House) -> str:
    """A command of a call."""
    command = f"/bin/bash {house.probe}"
    return str((await client.tools.call("bash", {"command": command})).part)


async def run_hook_script(client: AsyncClient, house: House) -> str:
    """A script that is asked before a tool is called."""
    client.hooks.on_script("tool.before_execution", ["/bin/bash", str(house.probe)], is_guard=True)
    return str((await client.tools.call("read", {"file_path": "a.txt"})).part)


async def run_mcp_server(client: AsyncClient, house: House) -> str:
    """The program of an MCP server."""
    try:
        await client.mcp.tools("probe")
    except McpFailed as error:
        return str(error)
    return ""


async def run_language_server(client: AsyncClient, house: House) -> str:
    """The program of a language server."""
    ask = {"operation": "documentSymbol", "file_path": "a.probe"}
    return str((await client.tools.call("lsp", ask)).part)


KINDS: dict[str, Callable[[AsyncClient, House], Awaitable[str]]] = {
    "command": run_command,
    "hook script": run_hook_script,
    "mcp server": run_mcp_server,
    "language server": run_language_server,
}


def read_probe(told: str) -> dict[str, str]:
    """Return what the probe said was possible."""
    found = re.findall(r"(\w+)=(\w+)", told.partition("probe: ")[2])
    return dict(found)
