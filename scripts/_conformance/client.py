"""Holdfast as the client under test: one scenario of the official MCP conformance suite.

The suite names the scenario in MCP_CONFORMANCE_SCENARIO, gives what it needs to know as JSON in
MCP_CONFORMANCE_CONTEXT, and the address of its server as the last argument. Everything is done
through the public client: the gate, pins and bounds hold as for anybody.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx2

from holdfast import AsyncClient
from holdfast.errors import HoldfastError
from holdfast.mcp import OfferedTool
from holdfast.settings import load_settings
from holdfast.tools import AutoConfirm, Question

_METADATA: Final = "https://conformance-test.local/client-metadata.json"
_MACHINES: Final = {"auth/client-credentials-jwt", "auth/client-credentials-basic"}


class SayYes:
    """Sends every form, with the first choice where there are some, and defaults elsewhere."""

    async def ask(self, questions: Sequence[Question]) -> tuple[tuple[str, ...], ...] | None:
        """Answer."""
        send, *fields = questions
        return (
            (send.options[0].label,),
            *(
                (one.options[0].label,) if one.options and "(otherwise" not in one.question else ()
                for one in fields
            ),
        )


async def visit(url: str) -> None:
    """Be the browser: follow the page to where it leads."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        answer = await http.get(url)
        for _ in range(5):
            if not answer.is_redirect:
                break
            answer = await http.get(answer.headers["location"])


def find_issuer(url: str) -> str:
    """Return who issues tokens for a server, as an operator would have been told."""
    origin, _, path = url.partition("://")[2].partition("/")
    for place in (f"/{path}", ""):
        address = f"http://{origin}/.well-known/oauth-protected-resource{place}"
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                found = json.load(answer)["authorization_servers"][0]
                return str(found)
        except (OSError, ValueError, KeyError):
            continue
    return f"http://{origin}"


def make_endpoint(scenario: str, url: str, context: dict[str, Any]) -> dict[str, Any]:
    """Return how the server is configured."""
    said: dict[str, Any] = {"transport": "http", "url": url, "sampling": True}
    # As many run at once as the suite has scenarios.
    said |= {"timeout_s": 300, "connect_timeout_s": 300}
    oauth: dict[str, Any] = {}
    if context.get("client_id") and not context.get("idp_id_token"):
        oauth = {"client_id": context["client_id"], "issuer": find_issuer(url)}
        if context.get("client_secret"):
            oauth["client_secret_env"] = "CONFORMANCE_SECRET"
        if context.get("private_key_pem"):
            oauth["private_key_env"] = "CONFORMANCE_KEY"
            oauth["algorithm"] = context.get("signing_algorithm", "ES256")
        if scenario in _MACHINES:
            oauth["grant"] = "client_credentials"
    elif scenario.startswith("auth/"):
        oauth = {"client_metadata_url": _METADATA}
    return said | ({"oauth": oauth} if oauth else {})


def make_arguments(tool: OfferedTool) -> dict[str, Any]:
    """Return arguments that fit a schema: the simplest value for each required field."""
    values = {"number": 5, "integer": 5, "string": "x", "boolean": True, "array": [], "object": {}}
    fields = tool.parameters.get("properties", {})
    return {
        name: values.get(str(fields.get(name, {}).get("type")), "x")
        for name in tool.parameters.get("required", ())
    }


async def use(client: AsyncClient, scenario: str, context: dict[str, Any]) -> None:
    """Do what a user of the server would do."""
    if scenario.startswith("auth/") and scenario not in _MACHINES:
        await client.mcp.log_in("peer", visit)
    offered, _ = await client.mcp.tools("peer")
    wanted = [(one["name"], one["arguments"]) for one in context.get("toolCalls", ())]
    for name, arguments in wanted or [(one.tool, make_arguments(one)) for one in offered]:
        done = await client.mcp.invoke("peer", name, arguments)
        print(name, done.part.state, (done.part.output or done.part.error)[:300], file=sys.stderr)
        if scenario.startswith("auth/"):
            break
    for resource in await client.mcp.list_resources("peer"):
        if not resource.is_template:
            await client.mcp.invoke("peer", "read_resource", {"uri": resource.uri})
    for prompt in await client.mcp.list_prompts("peer"):
        given = dict.fromkeys(prompt.required, "x")
        await client.mcp.invoke("peer", "get_prompt", {"name": prompt.name, "arguments": given})


async def main() -> None:
    """Run the scenario."""
    scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    url = sys.argv[-1]
    secrets = {
        "CONFORMANCE_SECRET": context.get("client_secret", ""),
        "CONFORMANCE_KEY": context.get("private_key_pem", ""),
    }
    os.environ.update({name: value for name, value in secrets.items() if value})
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        workspace.mkdir()
        settings = load_settings(
            overrides={
                "workspace": workspace,
                "mcp_endpoints": {"peer": make_endpoint(scenario, url, context)},
            },
            cwd=Path(folder),
            environ={**os.environ, "HOME": folder},
        ).settings
        async with AsyncClient(Path(folder) / "state", settings=settings) as client:
            client.approver = AutoConfirm()
            client.attendant = SayYes()
            try:
                await use(client, scenario, context)
            except HoldfastError as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                raise SystemExit(1) from error


if __name__ == "__main__":
    asyncio.run(main())
