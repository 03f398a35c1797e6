"""A server's program reaches the hosts that were granted to it, and every request is kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp_kit import client_for, program

from holdfast import AsyncClient
from holdfast.errors import McpAuthFailed, PermissionDenied, UsageError
from holdfast.journal import SYSTEM_SESSION
from holdfast.mcp import McpGranted
from holdfast.tools import EgressClosed, EgressOpened, EgressRefused


@pytest.fixture
async def page():
    """A server on this machine, which programs in a sandbox cannot reach by themselves."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()


def policies(folder: Path, *, allow: bool = True) -> dict[str, Any]:
    """The operator's rules: one host of this machine, and the switch of the environment."""
    place = folder / "policies"
    place.mkdir(exist_ok=True)
    (place / "network.yaml").write_text(
        f"allow_net: {str(allow).lower()}\nallowed_hosts: ['127.0.0.1', 'a.test']\n"
        "private_networks: ['127.0.0.0/8']\n"
    )
    return {"policies.dir": place, "network.allow_net": True}


def fetcher(port: int, *hosts: str, **options: Any) -> dict[str, Any]:
    chosen = {"sandbox": "read-only-filtered", "hosts": list(hosts), "timeout_s": 30, **options}
    return {"web": program("mcp_fetcher.py", str(port), **chosen)}


async def fetch(client: AsyncClient, url: str) -> tuple[str, str]:
    part = (await client.mcp.invoke("web", "fetch", {"url": url})).part
    return part.state, part.output or part.error


async def kept(client: AsyncClient, *kinds: type) -> list[Any]:
    names = frozenset(kind.kind for kind in kinds)
    journal = await client.storage.journal()
    events = await journal.read(SYSTEM_SESSION, kinds=names)
    by_kind = {kind.kind: kind for kind in kinds}
    return [event.expect(by_kind[event.kind]) for event in events]


async def test_granted_host_is_reached_and_everything_is_kept(tmp_path: Path, page: int):
    endpoint = fetcher(page, f"127.0.0.1:{page}")
    async with client_for(tmp_path, endpoint, **policies(tmp_path)) as client:
        state, output = await fetch(client, f"http://127.0.0.1:{page}/x")
        assert (state, output) == ("completed", "200 page")
        state, output = await fetch(client, "http://169.254.169.254/latest/meta-data")
        assert output.startswith("403")
        state, output = await fetch(client, f"direct:127.0.0.1:{page}")
        assert output.startswith("unreachable")
        opened, refused = await kept(client, EgressOpened, EgressRefused)
        assert (opened.principal, opened.host, opened.port) == ("mcp:web", "127.0.0.1", page)
        assert refused.host == "169.254.169.254"
        (closed,) = await kept(client, EgressClosed)
        assert closed.egress_id == opened.egress_id
        assert closed.bytes_down > 4


async def test_grant_is_remembered_and_revoked_at_once(tmp_path: Path, page: int):
    address = f"http://127.0.0.1:{page}/"
    rules = policies(tmp_path)
    async with client_for(tmp_path, fetcher(page), **rules) as client:
        assert (await fetch(client, address))[1].startswith("403")
        info = await client.mcp.grant("web", [f"127.0.0.1:{page}"])
        assert info.hosts == (f"127.0.0.1:{page}",)
        assert (await fetch(client, address))[1] == "200 page"
    async with client_for(tmp_path, fetcher(page), **rules) as client:
        assert (await fetch(client, address))[1] == "200 page"
        assert (await client.mcp.grant("web", revoke=True)).hosts == ()
        assert (await fetch(client, address))[1].startswith("403")
        with pytest.raises(UsageError):
            await client.mcp.grant("web", ["http://no/host"])
        facts = await kept(client, McpGranted)
        assert [fact.is_revoked for fact in facts] == [False, True]


async def test_host_of_the_endpoint_can_be_revoked_too(tmp_path: Path, page: int):
    endpoint = fetcher(page, f"127.0.0.1:{page}")
    async with client_for(tmp_path, endpoint, **policies(tmp_path)) as client:
        await client.mcp.grant("web", [f"127.0.0.1:{page}"], revoke=True)
        assert (await fetch(client, f"http://127.0.0.1:{page}/"))[1].startswith("403")


async def test_grant_lifts_nothing_that_the_operator_closed(tmp_path: Path, page: int):
    endpoint = fetcher(page, f"127.0.0.1:{page}", "other.test")
    async with client_for(tmp_path, endpoint, **policies(tmp_path, allow=False)) as client:
        assert "network is closed" in (await fetch(client, f"http://127.0.0.1:{page}/"))[1]
    async with client_for(tmp_path, endpoint, **policies(tmp_path)) as client:
        assert "not among" in (await fetch(client, "http://other.test/"))[1]


async def test_failure_of_a_program_names_what_the_proxy_refused(tmp_path: Path, page: int):
    endpoint = fetcher(page)
    endpoint["web"]["args"] = [endpoint["web"]["args"][0], "needs", "http://a.test/packages"]
    async with client_for(tmp_path, endpoint, **policies(tmp_path)) as client:
        (health,) = await client.mcp.health()
    assert health.status == "failed"
    assert "a.test:80" in health.last_error
    assert "mcp grant" in health.last_error


async def test_program_without_a_network_is_told_apart(tmp_path: Path):
    said = program("mcp_fetcher.py", "needs", "http://a.test/packages")
    async with client_for(tmp_path, {"web": said}) as client:
        (health,) = await client.mcp.health()
    assert "has no network" in health.last_error
    assert "read-only-filtered" in health.last_error


async def test_variables_are_filled_in_and_a_missing_one_is_named(
    tmp_path: Path, page: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FETCH_TOKEN", "tok-5b21ab0f73a94ce8")
    env = {"ONE": "plain", "TWO": "Bearer ${FETCH_TOKEN}"}
    async with client_for(tmp_path, fetcher(page, env=env), **policies(tmp_path)) as client:
        shown = (await client.mcp.invoke("web", "variables", {})).part.output
        seen = json.loads(shown)
        assert seen["ONE"] == "plain"
        assert seen["TWO"].startswith("Bearer ")
        assert "tok-5b21ab0f73a94ce8" not in shown
    missing = fetcher(page, env={"ONE": "${NO_SUCH_TOKEN}"})
    async with client_for(tmp_path, missing, **policies(tmp_path)) as client:
        with pytest.raises(McpAuthFailed, match="NO_SUCH_TOKEN"):
            await client.mcp.tools("web")


async def test_one_malformed_tool_does_not_hide_the_others(tmp_path: Path):
    said = program("mcp_fetcher.py", "malformed")
    async with client_for(tmp_path, {"web": said}) as client:
        tools, left_out = await client.mcp.tools("web")
    assert [tool.tool for tool in tools] == ["fetch", "variables"]
    assert {one.tool for one in left_out} == {"broken", "worse"}


async def test_raw_network_still_needs_the_operators_grant(tmp_path: Path, page: int):
    raw = {"web": program("mcp_fetcher.py", str(page), sandbox="read-only-network")}
    async with client_for(tmp_path, raw, **policies(tmp_path)) as client:
        with pytest.raises(PermissionDenied):
            await client.mcp.tools("web")
