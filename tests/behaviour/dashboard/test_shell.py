"""The frame of the dashboard: login, cookies, forms of others, home and runs."""

from __future__ import annotations

import contextlib

import pytest
from browser import Visitor, make_key, visit
from demo import ask_agent
from playwright.async_api import Browser, expect
from playwright.async_api import Error as PlaywrightError

from holdfast.observability import make_trace_id

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_who_is_not_logged_in_is_asked_and_then_gets_the_page_they_wanted(
    world, browser: Browser
) -> None:
    async with visit(world.server, browser) as visitor:
        await visitor.open("/runs?status=failed")
        assert "/login?next=" in visitor.page.url
        await visitor.check_accessible("login")
        await visitor.page.get_by_label("API key").fill("hf_" + "0" * 56)
        await visitor.page.get_by_role("button", name="Log in").click()
        await expect(visitor.page.get_by_role("alert")).to_contain_text("opens nothing")
        await visitor.page.get_by_label("API key").fill(world.server.token)
        await visitor.page.get_by_role("button", name="Log in").click()
        await visitor.page.wait_for_url("**/runs?status=failed")
        [cookie] = [
            c for c in await visitor.context.cookies() if c["name"].startswith("holdfast_login")
        ]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert world.server.token not in cookie["value"]
        await visitor.check_unharmed()


async def test_one_time_link_logs_in_once(world, browser: Browser) -> None:
    _, made = await world.server.ask("POST", "/login/links?to=/dashboard")
    async with visit(world.server, browser) as visitor:
        await visitor.page.goto(world.server.url + made["path"])
        await visitor.page.wait_for_url("**/dashboard")
        await expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Home")
    async with visit(world.server, browser) as other:
        await other.page.goto(world.server.url + made["path"])
        await expect(other.page.get_by_role("alert")).to_contain_text("used already")


async def test_login_leads_nowhere_else(world, browser: Browser) -> None:
    for place in ("https://evil.example/", "//evil.example", "/dashboard\\@evil", "/v1/runs"):
        async with visit(world.server, browser) as visitor:
            await visitor.page.goto(f"{world.server.url}/dashboard/login?next={place}")
            await visitor.page.get_by_label("API key").fill(world.server.token)
            await visitor.page.get_by_role("button", name="Log in").click()
            await expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Home")
            assert visitor.page.url == f"{world.server.url}/dashboard"


async def test_form_without_the_token_of_the_login_does_nothing(owner: Visitor) -> None:
    page = owner.page
    await owner.open("/runs")
    await page.evaluate("document.querySelectorAll('[name=csrf]').forEach(f => f.value = 'x')")
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert "request.csrf" in await owner.text()
    assert await owner.open() == 200


async def test_logged_out_is_logged_out(world, browser: Browser) -> None:
    async with visit(world.server, browser) as visitor:
        await visitor.log_in(world.server.token)
        await visitor.page.get_by_role("button", name="Log out").click()
        await visitor.page.wait_for_url("**/login")
        await visitor.open("/runs")
        assert "/login" in visitor.page.url


async def test_revoked_key_is_logged_out_everywhere(world, browser: Browser) -> None:
    secret = await make_key(world.server, "ada", "viewer")
    async with visit(world.server, browser) as visitor:
        await visitor.log_in(secret)
        assert "ada" in await visitor.text()
        _, keys = await world.server.ask("GET", "/v1/keys")
        [key] = [one for one in keys["items"] if one["name"] == "ada"]
        await world.server.ask("DELETE", f"/v1/keys/{key['id']}")
        # The page may notice by itself, while it is being left.
        with contextlib.suppress(PlaywrightError):
            await visitor.open("/runs")
        await visitor.page.wait_for_url("**/login*")


async def test_home_shows_what_waits_runs_and_failed(owner: Visitor) -> None:
    await owner.open()
    text = await owner.text()
    assert "waiting for a person" in text
    assert "Write the release notes" in text or "ask me where to begin" in text
    assert (await owner.page.title()).startswith("(")


async def test_runs_are_filtered_in_the_address(owner: Visitor) -> None:
    await owner.open("/runs?status=failed")
    await expect(owner.page.locator("tbody tr")).to_have_count(1)
    await owner.page.get_by_label("Search").fill("release notes")
    await owner.page.get_by_label("Status").select_option("")
    await owner.page.wait_for_url("**q=release*")
    await expect(owner.page.locator("tbody tr")).to_have_count(1)
    await owner.open("/runs?q=nothing-like-this")
    assert "No run fits" in await owner.text()
    assert await owner.open("/runs?status=nonsense") == 400


async def test_run_is_found_by_its_trace_id(world, owner: Visitor) -> None:
    await owner.open(f"/runs?q={make_trace_id(world.kept['run']).hex()}")
    assert owner.page.url.endswith(f"/runs/{world.kept['run']}")
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    headers = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    body = {"user_message": "Is the health traced?", "agent_name": "releaser"}
    _, run = await world.server.ask("POST", "/v1/runs/wait", body, headers=headers)
    await owner.open(f"/runs?q={trace}")
    assert owner.page.url.endswith(f"/runs/{run['run_id']}")
    await owner.open(f"/runs?q={'0' * 32}")
    assert "No run fits" in await owner.text()


async def test_list_of_runs_follows_what_happens(world, owner: Visitor) -> None:
    await owner.open("/runs?q=fresh")
    await expect(owner.page.locator("#live-word")).to_have_text("live")
    assert "No run fits" in await owner.text()
    await ask_agent(world.server, "a fresh question about health")
    await expect(owner.page.locator("tbody tr")).to_have_count(1)


async def test_chosen_runs_are_cancelled_together(world, owner: Visitor) -> None:
    first = await ask_agent(world.server, "deploy bulk one")
    second = await ask_agent(world.server, "deploy bulk two")
    await owner.open("/runs?q=bulk")
    for run in (first, second):
        await owner.page.get_by_label(f"Choose {run['run_id']}").check()
    owner.page.on("dialog", lambda dialog: dialog.accept())
    await owner.page.get_by_role("button", name="Cancel the chosen runs").click()
    await expect(owner.page.get_by_role("status")).to_contain_text("asked to end")
    for run in (first, second):
        _, found = await world.server.ask("GET", f"/v1/runs/{run['run_id']}")
        assert found["status"] == "cancelled"


async def test_viewer_sees_and_cannot_act(world, browser: Browser) -> None:
    secret = await make_key(world.server, "vera", "viewer")
    run = await ask_agent(world.server, "deploy while vera looks")
    async with visit(world.server, browser) as visitor:
        await visitor.log_in(secret)
        await visitor.open("/runs?q=vera")
        assert "deploy while vera looks" in await visitor.text()
        assert await visitor.page.get_by_role("button", name="Cancel the chosen").count() == 0
        csrf = await visitor.page.get_attribute('meta[name="csrf"]', "content")
        status = await visitor.page.evaluate(
            "([address, csrf, run]) => fetch(address, {method: 'POST', body: new URLSearchParams("
            "{csrf, run})}).then(r => r.status)",
            [f"{world.server.url}/dashboard/runs/cancel", csrf, run["run_id"]],
        )
        assert status == 403
    _, found = await world.server.ask("GET", f"/v1/runs/{run['run_id']}")
    assert found["status"] == "parked"


async def test_first_page_is_small_and_asks_no_other_host(world, browser: Browser) -> None:
    async with visit(world.server, browser) as visitor:
        await visitor.log_in(world.server.token)
    async with visit(world.server, browser) as visitor:
        sizes: list[int] = []
        visitor.page.on("response", lambda r: sizes.append(int(r.headers.get("content-length", 0))))
        await visitor.log_in(world.server.token)
        await visitor.page.wait_for_load_state("load")
        assert sum(sizes) <= 100_000, sizes
        await visitor.check_unharmed()


async def test_reading_works_without_scripts(world, browser: Browser) -> None:
    async with visit(world.server, browser, java_script_enabled=False) as visitor:
        await visitor.log_in(world.server.token)
        await visitor.open("/runs")
        assert "Write the release notes" in await visitor.text()
