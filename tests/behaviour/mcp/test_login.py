"""Logging in at MCP servers: by a browser, kept and refreshed, for this server and no other."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp_kit import client_for, served
from oauth_server import OAuthServer

from holdfast.errors import McpAuthFailed, McpFailed, PermissionDenied, UsageError

FILE = "mcp_logins.json"


@pytest.fixture
def guarded() -> Iterator[OAuthServer]:
    server = OAuthServer()
    with served(server) as server.port:
        yield server


def at(server: OAuthServer, **options: Any) -> dict[str, Any]:
    return {"far": {"transport": "http", "url": f"{server.url}/mcp", "timeout_s": 20, **options}}


class Browser:
    """Follows a page to where it leads, and counts how often it was opened."""

    def __init__(self) -> None:
        self.visits = 0

    async def __call__(self, url: str) -> None:
        self.visits += 1
        async with httpx2.AsyncClient(trust_env=False) as http:
            answer = await http.get(url)
            await http.get(answer.headers["location"])


async def test_login_is_kept_for_the_owner_alone_and_outlives_the_process(
    tmp_path: Path, guarded: OAuthServer
):
    browser = Browser()
    async with client_for(tmp_path, at(guarded)) as client:
        with pytest.raises(McpAuthFailed) as refused:
            await client.mcp.invoke("far", "add", {"a": 2, "b": 3})
        assert "mcp login far" in refused.value.hint
        assert "/register" not in guarded.asked
        await client.mcp.log_in("far", browser)
        done = await client.mcp.invoke("far", "add", {"a": 2, "b": 3})
        assert done.part.output == "5"
    kept = tmp_path / "state" / FILE
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    async with client_for(tmp_path, at(guarded)) as client:
        again = await client.mcp.invoke("far", "add", {"a": 2, "b": 2})
        assert again.part.output == "4"
        assert await client.mcp.log_out("far")
        assert not await client.mcp.log_out("far")
        with pytest.raises(McpAuthFailed):
            await client.mcp.invoke("far", "add", {"a": 2, "b": 3})
    assert browser.visits == 1
    assert json.loads(kept.read_text()) == {}


async def test_tokens_that_have_ended_are_refreshed_without_a_person(
    tmp_path: Path, guarded: OAuthServer
):
    async with client_for(tmp_path, at(guarded)) as client:
        await client.mcp.log_in("far", Browser())
    kept = tmp_path / "state" / FILE
    logins = json.loads(kept.read_text())
    logins["far"]["expires_at"] = 1.0
    kept.write_text(json.dumps(logins))
    guarded.tokens.clear()
    async with client_for(tmp_path, at(guarded)) as client:
        done = await client.mcp.invoke("far", "add", {"a": 2, "b": 3})
        assert done.part.output == "5"
    assert guarded.forms[-1]["grant_type"] == "refresh_token"


async def test_more_scopes_are_asked_for_where_a_call_needs_them(
    tmp_path: Path, guarded: OAuthServer
):
    browser = Browser()
    async with client_for(tmp_path, at(guarded)) as client:
        await client.mcp.log_in("far", browser)
        guarded.scope = "write"
        done = await client.mcp.invoke("far", "add", {"a": 2, "b": 3})
        assert done.part.output == "5"
    assert browser.visits == 2
    assert any({"read", "write"} <= set(one.split()) for one in guarded.tokens.values())


async def test_tokens_are_not_sent_to_a_server_that_has_moved(tmp_path: Path, guarded: OAuthServer):
    async with client_for(tmp_path, at(guarded)) as client:
        await client.mcp.log_in("far", Browser())
    other = OAuthServer()
    with served(other) as other.port:
        other.tokens = dict(guarded.tokens)
        async with client_for(tmp_path, at(other)) as client:
            with pytest.raises(McpAuthFailed):
                await client.mcp.invoke("far", "add", {"a": 2, "b": 3})


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "http://127.0.0.1:1"},
        {"authorization_response_iss_parameter_supported": True},
    ],
    ids=["another issuer", "no iss in the answer"],
)
async def test_login_at_somebody_else_is_refused(tmp_path: Path, wrong: dict[str, Any]):
    server = OAuthServer(**wrong)
    with served(server) as server.port:
        async with client_for(tmp_path, at(server)) as client:
            with pytest.raises(McpFailed):
                await client.mcp.log_in("far", Browser())
    assert not server.tokens


async def test_authorization_server_in_a_place_that_is_not_allowed_is_never_asked(tmp_path: Path):
    """A server of this machine names one elsewhere, in the clear: nothing is sent there."""
    server = OAuthServer(token_endpoint="http://169.254.169.254/latest/token")
    with served(server) as server.port:
        async with client_for(tmp_path, at(server)) as client:
            with pytest.raises((PermissionDenied, McpFailed)) as refused:
                await client.mcp.log_in("far", Browser())
    assert "169.254.169.254" in str(refused.value)


async def test_a_program_takes_no_login(tmp_path: Path):
    endpoint = {"near": {"transport": "stdio", "command": "true"}}
    async with client_for(tmp_path, endpoint) as client:
        with pytest.raises(UsageError):
            await client.mcp.log_in("near", Browser())
