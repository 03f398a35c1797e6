"""Servers as people have them: from the Python and the Node registry, added by one command.

They are installed here with the tools that people use, outside the sandbox, and started inside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import machine
import pytest
from mcp_kit import client_for

from holdfast.mcp import find_needs
from holdfast.settings import check_endpoint

PYTHON_SERVER = "mcp-server-time"
NODE_SERVER = "@modelcontextprotocol/server-everything"


def run(*argv: str, cwd: Path) -> None:
    ended = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def python_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with a server, as `pipx install` makes one."""
    folder = tmp_path_factory.mktemp("python")
    run(sys.executable, "-m", "venv", "venv", cwd=folder)
    run(str(folder / "venv/bin/pip"), "install", "-q", PYTHON_SERVER, cwd=folder)
    return folder / "venv" / "bin" / PYTHON_SERVER


@pytest.fixture(scope="module")
def node_server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node")
    npm = machine.program("npm", "npm")
    run(npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), NODE_SERVER, cwd=folder)
    return folder / "node_modules" / ".bin" / "mcp-server-everything"


def endpoint(program: Path, *args: str) -> dict[str, Any]:
    """What `mcp add NAME --yes -- PROGRAM` writes down."""
    needs = find_needs("one", [str(program), *args], cache_dir="/nowhere")
    said = {
        "transport": "stdio",
        "command": needs.command,
        "args": list(needs.args),
        "readable": list(needs.readable),
        "connect_timeout_s": 120,
    }
    check_endpoint("one", said)
    return said


async def test_server_from_the_python_registry_works_with_the_needs_that_were_found(
    tmp_path: Path, python_server: Path
):
    async with client_for(tmp_path, {"one": endpoint(python_server)}) as client:
        arguments = {
            "source_timezone": "Europe/Berlin",
            "time": "12:00",
            "target_timezone": "Asia/Tokyo",
        }
        told = (await client.mcp.invoke("one", "convert_time", arguments)).part
        assert told.state == "completed", told.error
        assert json.loads(told.output)["target"]["timezone"] == "Asia/Tokyo"
        (health,) = await client.mcp.health()
        assert health.status == "ok"
        assert health.sandbox.endswith("/read-only")


async def test_server_from_the_node_registry_works_with_the_needs_that_were_found(
    tmp_path: Path, node_server: Path
):
    async with client_for(tmp_path, {"one": endpoint(node_server, "stdio")}) as client:
        told = (await client.mcp.invoke("one", "echo", {"message": "hello"})).part
        assert told.state == "completed", told.error
        assert "hello" in told.output


async def test_program_that_the_sandbox_cannot_read_is_named_with_what_to_do(
    tmp_path: Path, python_server: Path
):
    said = {"transport": "stdio", "command": str(python_server)}
    async with client_for(tmp_path, {"one": said}) as client:
        (health,) = await client.mcp.health()
    assert health.status == "failed"
    assert "cannot read" in health.last_error
    assert f"--readable {os.path.dirname(python_server)}" in health.last_error
