"""What holds on every page: it opens, is accessible, fits a phone, and shows no planted script."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import Visitor, make_key, visit
from playwright.async_api import Browser, expect
from served import running

pytestmark = pytest.mark.asyncio(loop_scope="module")
PAGES = ("", "/runs", "/approvals", "/chat", "/sessions", "/memory", "/artifacts", "/state",
         "/policies",
         "/tools", "/mcp", "/agents", "/skills", "/workflows", "/triggers", "/costs", "/workers",
         "/audit", "/settings", "/keys")  # fmt: skip


def list_pages(kept: dict[str, str]) -> list[str]:
    """Return the pages that only a server with records has, besides all others."""
    run, session = kept["run"], kept["session"]
    of_run = [f"/runs/{kept['parked']}", *(f"/runs/{run}?tab={tab}" for tab in TABS)]
    of_run += [f"/runs/{kept[name]}?tab=plan" for name in ("loop", "flow")]
    of_run += [f"/runs/{kept['picture']}", f"/runs/{run}/beside/{kept['parked']}"]
    more = [f"/sessions/{session}", f"/chat/{session}", "/agents/releaser", "/tools/bash",
            f"/artifacts/{kept['chart']}", "/workflows/roll-out", "/runs?q=nothing",
            "/memory?q=checkout", "/policies?tool=bash&kind=command&target=ls&replay=1&check=1",
            "/audit?verify=1"]  # fmt: skip
    return [*PAGES, *of_run, *more]


TABS = ("story", "events", "context", "fork")


async def test_every_page_with_records_is_accessible_and_fits_a_phone(
    world, browser: Browser
) -> None:
    async with visit(world.server, browser) as visitor:
        await visitor.log_in(world.server.token)
        for path in list_pages(world.kept):
            assert await visitor.open(path) == 200, path
            await visitor.check_both_themes(path)
            await visitor.check_width(path, 360)
            assert (
                await visitor.page.locator("main script, main style, main [onerror]").count() == 0
            )
        await visitor.check_unharmed()


async def test_every_page_without_records_is_accessible_and_fits_a_phone(
    tmp_path: Path, browser: Browser
) -> None:
    async with running(tmp_path) as server, visit(server, browser) as visitor:
        await visitor.log_in(server.token)
        for path in PAGES:
            assert await visitor.open(path) == 200, path
            await visitor.check_both_themes(f"{path}, empty")
            await visitor.check_width(path, 360)
        await visitor.check_unharmed()


async def test_every_page_in_the_navigation_is_there_for_a_viewer(world, browser) -> None:
    secret = await make_key(world.server, "vic", "viewer")
    async with visit(world.server, browser) as visitor:
        await visitor.log_in(secret)
        links = await visitor.page.locator("#navigation a").evaluate_all(
            "all => all.map(a => a.getAttribute('href'))"
        )
        assert len(links) > 15
        for link in links:
            response = await visitor.page.goto(world.server.url + link)
            assert response is not None and response.status == 200, link
        # It may look at settings of the process, but keys are not for it.
        assert await visitor.open("/keys") == 403
        await visitor.check_unharmed()


async def test_key_is_made_shown_once_and_revoked(owner: Visitor) -> None:
    page = owner.page
    await owner.open("/keys")
    await page.get_by_label("Name", exact=True).fill("made-here")
    await page.get_by_role("button", name="Create").click()
    secret = (await page.locator("pre").inner_text()).strip()
    assert secret.startswith("hf_")
    await owner.open("/keys")
    assert secret not in await page.content()
    page.on("dialog", lambda dialog: dialog.accept())
    await page.locator("tr", has_text="made-here").get_by_role("button", name="Revoke").click()
    await expect(page.get_by_role("status")).to_contain_text("opens nothing")


async def test_memory_is_searched_superseded_and_forgotten(owner: Visitor) -> None:
    page = owner.page
    await owner.open("/memory?q=who owns the checkout")
    row = page.locator("tr", has_text="team Harbour")
    await row.get_by_text("Supersede …").click()
    await row.get_by_label("What is true now").fill("The checkout is owned by team Pier.")
    await row.get_by_role("button", name="Supersede").click()
    await expect(page.get_by_role("status")).to_contain_text("newer truth")
    row = page.locator("tr", has_text="team Pier")
    page.on("dialog", lambda dialog: dialog.accept())
    await row.get_by_role("button", name="Forget").click()
    await expect(page.get_by_role("status")).to_contain_text("Forgotten")
    assert "team Pier" not in await owner.text()
