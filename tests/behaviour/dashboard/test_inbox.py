"""Approvals: answered by mouse, by keys, on a phone; while the server is cut off or restarts."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from browser import Visitor, make_key, visit
from demo import ask_agent, make_agents
from playwright.async_api import Browser, expect
from served import Running, running

from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.views import add_views

pytestmark = pytest.mark.asyncio(loop_scope="module")
PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}


async def status_of(server: Running, run_id: str) -> str:
    """Wait until a run has ended; returns how."""
    _, found = await server.ask("GET", f"/v1/runs/{run_id}/result?raise_on_failure=false")
    return str(found["status"])


async def deploy(server: Running, word: str) -> dict[str, str]:
    """Let an agent ask for consent."""
    found: dict[str, str] = await ask_agent(server, f"deploy {word}")
    assert found["status"] == "parked"
    return found


async def choose(visitor: Visitor, word: str) -> None:
    """Go with `j` to the card of a run."""
    for _ in range(40):
        await visitor.page.keyboard.press("j")
        if word in await visitor.page.locator(".ask.chosen").inner_text():
            return
    raise AssertionError(word)


async def test_inbox_shows_command_diff_and_the_rule_that_always_writes(owner: Visitor) -> None:
    await owner.open("/approvals")
    text = await owner.text()
    assert "deploy * allow" in text
    assert "-The checkout is slow." in text and "+The checkout is fast again." in text
    assert "eu-west" in text


async def test_new_request_appears_by_itself_and_is_approved_by_keys(world, owner) -> None:
    await owner.open("/approvals")
    await expect(owner.page.locator("#live-word")).to_have_text("live")
    run = await deploy(world.server, "by-keys")
    await expect(owner.page.locator(".ask", has_text="by-keys")).to_be_visible()
    assert (await owner.page.title()).startswith("(")
    await choose(owner, "by-keys")
    await owner.page.keyboard.press("a")
    await expect(owner.page.get_by_role("status")).to_contain_text("Approved")
    assert await status_of(world.server, run["run_id"]) == "completed"


async def test_denial_tells_the_reason(world, owner: Visitor) -> None:
    run = await deploy(world.server, "to-deny")
    await owner.open("/approvals")
    await choose(owner, "to-deny")
    await owner.page.keyboard.press("d")
    await owner.page.keyboard.type("not on a Friday")
    await owner.page.keyboard.press("Enter")
    await expect(owner.page.get_by_role("status")).to_contain_text("Denied")
    assert await status_of(world.server, run["run_id"]) == "completed"
    await owner.open(f"/runs/{run['run_id']}")
    await owner.page.locator("details.call summary").click()
    await expect(owner.page.locator("details.call")).to_contain_text("not on a Friday")


async def test_what_a_person_writes_outlives_every_refresh(world, owner: Visitor) -> None:
    page = owner.page
    await deploy(world.server, "being-refused")
    await owner.open("/approvals")
    await expect(page.locator("#live-word")).to_have_text("live")
    await choose(owner, "being-refused")
    await page.keyboard.press("d")
    await page.keyboard.type("a bad")
    await deploy(world.server, "came-meanwhile")
    await expect(page.locator("#live-word")).to_contain_text("held")
    await page.keyboard.type(" day")
    field = page.locator(".ask", has_text="being-refused").get_by_label("Why not?")
    await expect(field).to_have_value("a bad day")
    assert await page.locator(".ask", has_text="came-meanwhile").count() == 0
    await page.keyboard.press("Escape")
    await expect(page.locator(".ask", has_text="came-meanwhile")).to_be_visible()
    await expect(field).to_be_hidden()


async def test_keys_never_answer_another_request_than_the_chosen_one(world, owner) -> None:
    page = owner.page
    first = await deploy(world.server, "answered-by-another")
    second = await deploy(world.server, "left-alone")
    await owner.open("/approvals")
    await expect(page.locator("#live-word")).to_have_text("live")
    await choose(owner, "answered-by-another")
    _, found = await world.server.ask("GET", "/v1/approvals")
    [asked] = [one for one in found["items"] if one["run_id"] == first["run_id"]]
    told = await world.server.ask("POST", f"/v1/approvals/{asked['id']}/deny", {"by": "bo"})
    assert told[0] in (200, 204), told
    await expect(page.locator(".ask", has_text="answered-by-another")).to_have_count(0)
    await page.keyboard.press("a")
    await page.keyboard.press("j")
    await expect(page.locator(".ask.chosen")).to_have_count(1)
    _, run = await world.server.ask("GET", f"/v1/runs/{second['run_id']}")
    assert run["status"] == "parked"


async def test_edited_arguments_are_what_happens(world, owner: Visitor) -> None:
    run = await deploy(world.server, "to-edit")
    await owner.open("/approvals")
    await choose(owner, "to-edit")
    await owner.page.keyboard.press("e")
    card = owner.page.locator(".ask", has_text="to-edit")
    await card.locator("textarea").fill('{"service": "search", "version": "9"}')
    await card.get_by_role("button", name="Approve with these").click()
    await expect(owner.page.get_by_role("status")).to_contain_text("Approved")
    assert await status_of(world.server, run["run_id"]) == "completed"
    await owner.open(f"/runs/{run['run_id']}")
    await owner.page.locator("details.call summary").click()
    await expect(owner.page.locator("details.call")).to_contain_text("search 9 is live")


async def test_always_writes_the_rule_that_was_shown(world, owner: Visitor) -> None:
    run = await deploy(world.server, "for-always")
    await owner.open("/approvals")
    card = owner.page.locator(".ask", has_text="for-always")
    await card.get_by_role("button", name="Always").click()
    await expect(owner.page.get_by_role("status")).to_contain_text("rule was written")
    _, session = await world.server.ask("GET", f"/v1/sessions/{run['session_id']}")
    assert [rule["permission"] for rule in session["permission"]] == ["deploy"]


async def test_question_is_answered_by_an_option_on_a_phone(world, browser: Browser) -> None:
    run = await ask_agent(world.server, "ask me on the phone", "writer")
    async with visit(world.server, browser, **PHONE) as visitor:
        await visitor.log_in(world.server.token)
        await visitor.page.get_by_role("button", name="Menu").tap()
        await visitor.page.get_by_role("link", name="Approvals").tap()
        card = visitor.page.locator(".ask", has_text="on the phone")
        await card.get_by_label("us-east").check()
        wide = await visitor.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360
        await visitor.check_accessible("inbox on a phone")
        await card.get_by_role("button", name="Answer").tap()
        await expect(visitor.page.get_by_role("status")).to_contain_text("Answered")
        await visitor.check_unharmed()
    assert await status_of(world.server, run["run_id"]) == "completed"


async def test_viewer_looks_and_cannot_answer(world, browser: Browser) -> None:
    run = await deploy(world.server, "for-the-viewer")
    secret = await make_key(world.server, "victor", "viewer")
    async with visit(world.server, browser) as visitor:
        await visitor.log_in(secret)
        await visitor.open("/approvals")
        assert "for-the-viewer" in await visitor.text()
        assert await visitor.page.get_by_role("button", name="Approve").count() == 0
        _, found = await world.server.ask("GET", "/v1/approvals")
        [asked] = [one for one in found["items"] if one["run_id"] == run["run_id"]]
        csrf = await visitor.page.get_attribute('meta[name="csrf"]', "content")
        status = await visitor.page.evaluate(
            "([address, csrf]) => fetch(address, {method: 'POST', body: new URLSearchParams("
            "{csrf})}).then(r => r.status)",
            [f"{world.server.url}/dashboard/approvals/{asked['id']}/approve", csrf],
        )
        assert status == 403


async def test_other_tenants_do_not_exist(world, browser: Browser) -> None:
    status, _ = await world.server.ask("POST", "/v1/tenants", {"name": "acme"})
    assert status == 201
    secret = await make_key(world.server, "boss", "admin", tenant="acme")
    async with visit(world.server, browser) as visitor:
        await visitor.log_in(secret)
        for path in ("", "/runs", "/approvals", "/sessions", "/memory", "/artifacts", "/state"):
            await visitor.open(path)
            text = await visitor.text()
            assert "acme" in text
            assert "checkout" not in text and "release notes" not in text
        run, session = world.kept["run"], world.kept["session"]
        for path in (
            *(f"/runs/{run}{more}" for more in ("", "?tab=context", "/page", "/download")),
            f"/runs/{run}/beside/{run}",
            f"/runs/{world.kept['loop']}?tab=plan",
            *(f"/{kind}/{session}" for kind in ("sessions", "chat")),
            *(f"/artifacts/{world.kept['chart']}{more}" for more in ("", "/content")),
            f"/chat-pieces/{run}",
        ):
            answer = await visitor.page.request.get(f"{world.server.url}/dashboard{path}")
            assert answer.status == 404, path
        await visitor.check_unharmed()


async def test_login_and_open_page_survive_a_restart(tmp_path: Path, browser: Browser) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with running(tmp_path, agents=make_agents()) as server:
            port = int(server.url.rpartition(":")[2])
            visitor = await stack.enter_async_context(visit(server, browser))
            await visitor.log_in(server.token)
            await visitor.open("/approvals")
            word = visitor.page.locator("#live-word")
            await expect(word).to_have_text("live")
        await expect(word).to_have_text("connecting again")
        async with running(tmp_path, agents=make_agents(), port=port) as server:
            await expect(word).to_have_text("live", timeout=20_000)
            await deploy(server, "after-the-restart")
            await expect(visitor.page.locator(".ask")).to_have_count(1)
            assert await visitor.open("/runs") == 200


async def test_viewer_can_do_nothing_by_any_form(world, browser: Browser) -> None:
    secret = await make_key(world.server, "vesna", "viewer")
    waits = await deploy(world.server, "vesna-looks")
    _, asked = await world.server.ask("GET", "/v1/approvals")
    names = {
        "run_id": waits["run_id"],
        "session_id": waits["session_id"],
        "call_id": "call_1_0",
        "approval_id": next(o["id"] for o in asked["items"] if o["run_id"] == waits["run_id"]),
        "memory_id": "mem_0",
        "key_id": "key_0",
        "letter_id": "1",
        "name": "releaser",
    }
    form = {"message": "x", "content": "x", "own": "x", "verdict": "abort", "name": "x",
            "role": "viewer", "run": waits["run_id"], "tool": "x", "at": "3"}  # fmt: skip
    routes = Routes()
    add_views(routes)
    paths = [path for method, path in routes.list_paths() if method == "POST"]
    assert len(paths) > 20
    async with visit(world.server, browser) as visitor:
        await visitor.log_in(secret)
        csrf = await visitor.page.get_attribute('meta[name="csrf"]', "content")
        for path in paths:
            url = f"{world.server.url}/dashboard/{path.format(**names)}"
            answer = await visitor.page.request.post(url, form={"csrf": csrf, **form})
            assert answer.status == 403, (path, answer.status)
            answer = await visitor.page.request.post(url, form=form)
            assert answer.status == 403 and "request.csrf" in await answer.text(), path
    _, found = await world.server.ask("GET", f"/v1/runs/{waits['run_id']}")
    assert found["status"] == "parked"


async def test_page_whose_stream_is_cut_again_and_again_misses_nothing(world, owner) -> None:
    await owner.open("/runs?q=cut-")
    for number in range(3):
        await expect(owner.page.locator("#live-word")).to_have_text("live")
        for stream in tuple(world.server.app.streams):
            stream.drain()
        await asyncio.gather(ask_agent(world.server, f"health cut-{number}"))
        await expect(owner.page.locator("tbody tr")).to_have_count(number + 1)
