"""`holdfast mcp connect`: write us into the configuration of an MCP client."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import click

from holdfast.cli.frame import CliCommand, Invocation, pass_invocation
from holdfast.cli.output import emit
from holdfast.errors import UsageError

_CONNECT_S: Final = 60.0
_CLIENTS: Final = {
    "claude": (".mcp.json", "mcpServers"),
    "cursor": (".cursor/mcp.json", "mcpServers"),
    "vscode": (".vscode/mcp.json", "servers"),
    "zed": (".zed/settings.json", "context_servers"),
    "codex": (".codex/config.toml", "mcp_servers"),
}
"""The file of the project that each client reads, and the key below which servers stand."""
_TABLE: Final = re.compile(r"(?ms)^\[mcp_servers\.holdfast(?:\.[^\]]*)?\]\n.*?(?=^\[|\Z)")


@click.command("connect", cls=CliCommand)
@click.argument("client", type=click.Choice(sorted(_CLIENTS)))
@click.option("--tool", "patterns", multiple=True, metavar="GLOB", help="Offer such tools too.")
@click.option("--url", metavar="URL", help="A server of yours that runs already, such as /mcp.")
@click.option("--key-env", metavar="NAME", help="Variable with the key for --url.")
@click.option("--print", "only_prints", is_flag=True, help="Show the entry; write nothing.")
@pass_invocation
def command(
    invocation: Invocation,
    client: str,
    patterns: tuple[str, ...],
    url: str | None,
    key_env: str | None,
    only_prints: bool,
) -> None:
    """Let CLIENT use this project's agents: writes its configuration in the project.

    The client then starts `holdfast mcp serve` itself, as you; or it asks the server at --url
    with the key in the variable --key-env. The handshake is tried before anything is written.
    Other servers in the file are kept.
    """
    settings = invocation.settings
    if (url is None) != (key_env is None):
        raise UsageError(detail="--url and --key-env go together: a server wants a key.")
    if url is not None and key_env is not None:
        entry = _make_remote_entry(client, url, key_env)
        secret = invocation.loaded.secret(key_env)
        key = secret.get_secret_value() if secret is not None else ""
        tools = asyncio.run(_try_address(url, key))
    else:
        words = ["-m", "holdfast", "--state-dir", str(settings.storage_path), "mcp", "serve"]
        words += [word for pattern in patterns for word in ("--tool", pattern)]
        entry = {"command": sys.executable, "args": words}
        tools = asyncio.run(_try_program(sys.executable, words, settings.workspace))
    file, place = _CLIENTS[client]
    path = settings.workspace / file
    text = _add_toml(path, entry) if client == "codex" else _add_json(path, place, entry)
    if not only_prints:
        _write(path, text)
    emit({"client": client, "file": str(path), "tools": tools, "entry": entry})


def _make_remote_entry(client: str, url: str, key_env: str) -> dict[str, Any]:
    """Return an entry that names the variable with the key, never the key itself."""
    if client == "codex":
        return {"url": url, "bearer_token_env_var": key_env}
    reference = f"${{env:{key_env}}}" if client in ("cursor", "vscode") else f"${{{key_env}}}"
    entry: dict[str, Any] = {"url": url, "headers": {"Authorization": f"Bearer {reference}"}}
    return {"type": "http", **entry} if client in ("claude", "vscode") else entry


async def _try_program(program: str, words: list[str], workspace: Path) -> list[str]:
    from mcp import Client, StdioServerParameters  # noqa: PLC0415 - an optional extra

    started = StdioServerParameters(command=program, args=words, cwd=str(workspace))
    async with asyncio.timeout(_CONNECT_S), Client(started) as client:
        return [tool.name for tool in (await client.list_tools()).tools]


async def _try_address(url: str, key: str) -> list[str]:
    import httpx2  # noqa: PLC0415 - an optional extra
    from mcp import Client  # noqa: PLC0415 - an optional extra
    from mcp.client.streamable_http import (  # noqa: PLC0415 - an optional extra
        streamable_http_client,
    )

    if not key:
        raise UsageError(detail="The variable that --key-env names is not set here.")
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http:
        transport = streamable_http_client(url, http_client=http)
        async with asyncio.timeout(_CONNECT_S), Client(transport) as client:
            return [tool.name for tool in (await client.list_tools()).tools]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _add_json(path: Path, key: str, entry: dict[str, Any]) -> str:
    """Return the file with our entry in it; raises UsageError where it is no JSON object."""
    text = _read(path)
    try:
        found = json.loads(text) if text.strip() else {}
    except ValueError as error:
        detail = f"{path} is no plain JSON ({error}); add the entry of --print by hand."
        raise UsageError(detail=detail) from error
    servers = found.setdefault(key, {}) if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise UsageError(detail=f"{path} has no object {key!r}; add the entry of --print by hand.")
    servers["holdfast"] = entry
    return json.dumps(found, indent=2) + "\n"


def _add_toml(path: Path, entry: dict[str, Any]) -> str:
    kept = _TABLE.sub("", _read(path)).rstrip()
    # A JSON text or list of texts is TOML too.
    lines = [f"{name} = {json.dumps(value)}" for name, value in entry.items()]
    return "\n".join([*([kept, ""] if kept else []), "[mcp_servers.holdfast]", *lines]) + "\n"


def _write(path: Path, text: str) -> None:
    """Replace a file whole, or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).replace(path)


__all__ = ["command"]
