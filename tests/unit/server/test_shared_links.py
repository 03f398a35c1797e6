"""A signed link needs no key: it reads one artifact, ends, and cannot be forged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest
from served import Running, running

from holdfast.artifacts import LinkClaim, sign_link

KEY = "a key to sign links with, long enough"
DATA = b"<script>alert(1)</script>"


async def ask(server: Running, path: str, method: str = "GET") -> tuple[int, bytes, str]:
    """Ask as somebody who has nothing but the address."""
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, f"{server.url}{path}") as answer,
    ):
        return answer.status, await answer.read(), answer.headers.get("content-type", "")


async def test_a_link_is_all_that_is_needed_until_it_ends_or_is_withdrawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LINK_KEY", KEY)
    async with running(tmp_path / "state") as server:
        runtime = server.app.runtimes.list_open()[0]
        store = await runtime.artifacts.opened()
        saved = await store.save("page.html", DATA)
        other = await store.save("other", b"other")
        shared = f"/v1/artifacts/{saved.id}/links"
        status, link = await server.ask("POST", shared, {"expires_in_s": 600.0})
        assert status == 201, link
        path = f"/v1/artifact-links/{link['token']}"
        status, body, kind = await ask(server, f"{path}/content")
        # As bytes, never as a page of this server.
        assert (status, body, kind) == (200, DATA, "application/octet-stream")
        status, body, _ = await ask(server, path)
        assert status == 200 and saved.id.encode() in body

        # The link is a credential for itself only.
        for elsewhere in ("/v1/artifacts", f"/v1/artifacts/{saved.id}", f"{path}/more"):
            assert (await ask(server, elsewhere))[0] in (401, 404)
        assert (await ask(server, path, "DELETE"))[0] in (401, 405)

        forged = LinkClaim(
            link_id="lnk_forged",
            tenant=saved.tenant,
            artifact_id=other.id,
            digest=other.digest,
            expires_at=4e9,
        )
        body, _, signature = link["token"].rpartition(".")
        for token in (
            sign_link(forged, b"another key that is long enough to sign"),
            f"{body}.{signature[:-1]}{'A' if signature[-1] != 'A' else 'B'}",
            f"{body}x.{signature}",
            "hfl1.e30.x",
        ):
            assert (await ask(server, f"/v1/artifact-links/{token}/content"))[0] == 401
        # Signed with our key, but never given: no fact tells of it.
        stolen = sign_link(forged, KEY.encode())
        assert (await ask(server, f"/v1/artifact-links/{stolen}/content"))[0] == 403

        _, short = await server.ask("POST", shared, {"expires_in_s": 0.2})
        async with asyncio.timeout(20):
            status = 200
            while status == 200:
                status, body, _ = await ask(server, f"/v1/artifact-links/{short['token']}/content")
        assert status == 403 and b"expired" in body

        await server.ask("POST", f"/v1/artifacts/{saved.id}/revoke", {"link_id": link["link_id"]})
        status, body, _ = await ask(server, f"{path}/content")
        assert status == 403 and b"withdrawn" in body


async def test_without_a_key_no_link_is_answered(tmp_path: Path) -> None:
    token = sign_link(
        LinkClaim(link_id="l", tenant="default", artifact_id="a", digest="d", expires_at=4e9), b""
    )
    async with running(tmp_path / "state") as server:
        assert (await ask(server, f"/v1/artifact-links/{token}/content"))[0] == 401
