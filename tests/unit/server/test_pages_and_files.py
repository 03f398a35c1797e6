"""Listings page by page, and files that are larger than what a body may hold."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

from served import Running, running
from test_rights import add_key

from holdfast import AsyncClient


async def read_pages(server: Running, query: str, headers: dict[str, str]) -> list[list[str]]:
    """Return the ids of all runs, page by page."""
    found: list[list[str]] = []
    cursor = ""
    while not found or cursor:
        path = f"/v1/runs?{query}&cursor={quote(cursor)}" if cursor else f"/v1/runs?{query}"
        status, page = await server.ask("GET", path, headers=headers)
        assert status == 200, page
        found.append([run["id"] for run in page["items"]])
        cursor = page.get("next_cursor", "")
    return found


async def test_runs_are_found_page_by_page_by_filter_and_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        ada, bob = [await add_key(server, who, "runs:read", "runs:write") for who in ("ada", "bob")]
        made: dict[str, list[str]] = {"ada": [], "bob": []}
        for number in range(3):
            for who, headers in (("ada", ada), ("bob", bob)):
                body = {"user_message": f"What is {number} times 23?"}
                status, run = await server.ask("POST", "/v1/runs/wait", body, headers=headers)
                assert status == 200, run
                made[who].append(run["run_id"])
        everything = [run for pair in zip(made["ada"], made["bob"], strict=True) for run in pair]
        assert await read_pages(server, "limit=4", {}) == [everything[:1:-1], everything[1::-1]]
        oldest_first = await read_pages(server, "limit=5&descending=false", {})
        assert oldest_first == [everything[:5], everything[5:]]
        # Those of others are left out, and pages are full nevertheless.
        assert await read_pages(server, "limit=2", ada) == [made["ada"][:0:-1], made["ada"][:1]]
        status, run = await server.ask("GET", f"/v1/runs/{made['bob'][0]}")
        only = await read_pages(server, f"session_id={run['session_id']}", {})
        assert only == [[made["bob"][0]]]
        path = f"/v1/runs?session_id={run['session_id']}"
        assert (await server.ask("GET", path, headers=ada))[0] == 404
        assert await read_pages(server, "status=failed", {}) == [[]]
        assert await read_pages(server, "agent=nobody", {}) == [[]]
        for wrong in ("limit=0", "limit=100000", "cursor=x", "status=odd", "agnt=x"):
            status, found = await server.ask("GET", f"/v1/runs?{wrong}")
            assert 400 <= status < 500, (wrong, found)


async def test_files_are_sent_and_fetched_piece_by_piece(tmp_path: Path) -> None:
    size, piece = 24 * 1024 * 1024, bytes(range(256)) * 4096

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(size // len(piece)):
            yield piece

    async with running(tmp_path, max_body_bytes=1024 * 1024) as server:
        url = f"{server.url}/v1/artifacts/content?name=big.bin"
        async with server.http.post(url, data=pieces()) as response:
            assert response.status == 201, await response.text()
            made = await response.json()
        whole = hashlib.sha256(piece * (size // len(piece))).hexdigest()
        assert (made["size"], made["digest"]) == (size, whole)
        digest, count = hashlib.sha256(), 0
        async with server.http.get(f"{server.url}/v1/artifacts/{made['id']}/content") as response:
            async for chunk in response.content.iter_chunked(65536):
                digest.update(chunk)
                count += len(chunk)
        assert (count, digest.hexdigest()) == (size, whole)
        async with AsyncClient(server.url, api_key=server.token) as client:
            small = await client.artifacts.write(b"few bytes", "small.txt")
            assert await client.artifacts.load(small.id) == b"few bytes"


async def test_a_file_that_is_too_large_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, max_upload_bytes=1024) as server:
        url = f"{server.url}/v1/artifacts/content?name=big.bin"
        async with server.http.post(url, data=b"x" * 1025) as response:
            assert response.status == 413
        _, found = await server.ask("GET", "/v1/artifacts")
        assert not found.get("items")
