"""One run: what it shows, and what can be done with it."""

from __future__ import annotations

import re

import pytest
from browser import Visitor
from demo import ask_agent
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_run_shows_its_timeline_its_words_and_its_calls(world, owner: Visitor) -> None:
    await owner.open(f"/runs/{world.kept['run']}")
    page = owner.page
    await expect(page.locator(".chart a")).to_have_count(3)
    await expect(page.locator(".prose strong")).to_have_text("2.4.1")
    await expect(page.locator(".prose table td").first).to_have_text("checkout")
    await page.locator("details.call summary", has_text="check_health").click()
    await expect(page.locator("details.call[open] .inside")).to_contain_text("p95 41 ms")


async def test_what_models_and_tools_write_is_never_executed(world, owner: Visitor) -> None:
    for path in (
        f"/runs/{world.kept['evil']}",
        f"/runs/{world.kept['evil']}?tab=events",
        f"/runs/{world.kept['evil']}?tab=context",
        f"/runs/{world.kept['evil']}?tab=fork",
        "/runs",
        "",
        "/approvals",
    ):
        await owner.open(path)
        await owner.page.evaluate("document.querySelectorAll('details').forEach(d => d.open=true)")
        assert "<script>" in await owner.text(), path
        assert await owner.page.locator("main script, main img").count() == 0
        links = await owner.page.locator("main a").evaluate_all(
            "all => all.map(a => a.getAttribute('href') || '')"
        )
        assert not [link for link in links if link.lower().startswith(("javascript:", "data:"))]
        await owner.check_unharmed()


async def test_events_are_shown_raw_and_history_is_scrubbed(world, owner: Visitor) -> None:
    path = f"/runs/{world.kept['run']}"
    await owner.open(f"{path}?tab=events")
    whole = await owner.page.locator("tbody tr").count()
    assert await owner.page.locator("code", has_text="run.completed").count() == 1
    await owner.open(f"{path}?tab=events&at=5")
    assert 0 < await owner.page.locator("tbody tr").count() < whole
    assert await owner.page.locator("code", has_text="run.completed").count() == 0
    await owner.page.get_by_role("link", name="Now").click()
    await expect(owner.page.locator("tbody tr")).to_have_count(whole)


async def test_fork_with_another_prompt_is_shown_beside_the_original(world, owner) -> None:
    page = owner.page
    await owner.open(f"/runs/{world.kept['run']}?tab=fork")
    await page.get_by_label("Message").fill("Is the health of the copy good?")
    await page.get_by_label("Agent").select_option("writer")
    await page.get_by_role("button", name="Fork and run").click()
    await page.wait_for_url(re.compile(r"/beside/"))
    copy = page.get_by_role("region", name="Copy")
    await expect(copy).to_contain_text("Done: Is the health of the copy good?")
    await expect(copy.locator(".by", has_text="writer").first).to_be_visible()
    await expect(page.get_by_role("region", name="Original")).to_contain_text("is out.")
    await owner.check_accessible("side by side")


async def test_context_says_what_takes_how_much(world, owner: Visitor) -> None:
    await owner.open(f"/runs/{world.kept['run']}?tab=context")
    await expect(owner.page.locator("tbody tr").first).to_be_visible()
    assert "model calls" in await owner.text()


async def test_run_is_cancelled_and_downloaded(world, owner: Visitor) -> None:
    run = await ask_agent(world.server, "deploy to be cancelled")
    await owner.open(f"/runs/{run['run_id']}")
    owner.page.on("dialog", lambda dialog: dialog.accept())
    await owner.page.get_by_role("button", name="Cancel").click()
    await expect(owner.page.get_by_role("status")).to_contain_text("asked to end")
    await expect(owner.page.locator(".head .badge")).to_have_text("cancelled")
    async with owner.page.expect_download() as waits:
        await owner.page.get_by_role("link", name="Download").click()
    got = await waits.value
    assert got.suggested_filename == f"{run['session_id']}.jsonl"


async def test_missing_run_is_told_in_words(owner: Visitor) -> None:
    assert await owner.open("/runs/run_nothing") == 404
    assert "run_nothing" in await owner.text()
    await owner.check_accessible("error")
