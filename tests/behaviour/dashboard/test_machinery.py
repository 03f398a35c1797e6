"""What the server works with: MCP servers and their pins, workers, failing models."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from browser import visit
from mcp_kit import served
from mcp_server import make_server
from playwright.async_api import Browser, expect
from served import running

from holdfast.testing import FakeServer, Reply
from holdfast.testing.fake_server import Failure

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_changed_tool_is_held_back_until_it_is_accepted_here(
    tmp_path: Path, browser: Browser
) -> None:
    def at(port: int) -> dict[str, object]:
        far = {"transport": "http", "url": f"http://127.0.0.1:{port}/mcp", "timeout_s": 20}
        return {"mcp_endpoints": {"far": far}}

    with served(make_server().streamable_http_app()) as port:
        async with running(tmp_path, settings=at(port)) as server:
            assert (await server.ask("GET", "/v1/mcp/far/tools"))[0] == 200
    with served(make_server("changed").streamable_http_app()) as port:
        async with running(tmp_path, settings=at(port)) as server, visit(server, browser) as owner:
            page = owner.page
            page.on("dialog", lambda dialog: dialog.accept())
            await owner.log_in(server.token)
            await owner.open("/mcp")
            await page.get_by_role("button", name="Ask every server").press("Enter")
            await expect(page.locator("tr", has_text="far")).to_contain_text("held back")
            await owner.check_both_themes("MCP servers")
            await page.get_by_role("link", name="far", exact=True).click()
            row = page.locator("tr", has_text="Echo, and then some")
            await expect(row.locator(".badge")).to_have_text("changed")
            await owner.check_both_themes("one MCP server")
            await owner.check_width("one MCP server", 360)
            await row.get_by_role("button", name="Accept").press("Enter")
            await expect(page.get_by_role("status")).to_contain_text("Accepted")
            await expect(row.locator(".badge")).to_have_text("accepted")
            await owner.check_unharmed()


async def test_living_workers_are_listed(tmp_path: Path, browser: Browser) -> None:
    async with running(tmp_path) as server, visit(server, browser) as owner:
        await owner.log_in(server.token)
        await owner.open("/workers")
        assert "No worker of its own" in await owner.text()
        runtime, stop = server.app.runtimes.operator, asyncio.Event()
        task = asyncio.create_task(runtime.workers.work(stop, concurrency=3, name="harbour-1"))
        async with asyncio.timeout(10):
            while not await runtime.workers.list_workers():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        await owner.open("/workers")
        await expect(owner.page.locator("tbody tr")).to_contain_text("harbour-1")
        await expect(owner.page.locator("tbody tr")).to_contain_text("0 of 3")
        await owner.check_both_themes("workers")
        await owner.open()
        assert "1 live, 0 sessions held" in await owner.text()
        stop.set()
        await task


async def test_failed_call_of_a_model_is_a_bar_of_its_own(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    async with FakeServer([Failure(status=503, message="busy"), Reply(text="Here.")]) as models:
        chosen = {"model.openai_base_url": models.base_url, "model.name": "openai:pilot"}
        async with running(tmp_path, settings=chosen) as server, visit(server, browser) as owner:
            run_id = await server.run("Where are you?")
            await owner.log_in(server.token)
            await owner.open(f"/runs/{run_id}")
            await expect(owner.page.locator(".chart rect.failed")).to_have_count(1)
            await expect(owner.page.locator(".chart rect.model")).to_have_count(1)
            assert "model asked again" in await owner.text()
