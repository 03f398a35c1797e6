"""What can be done besides answering: to runs, sessions, files, rules and keys, by keys too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import Visitor, make_key, visit
from demo import EVIL, GATE, ask_agent
from playwright.async_api import Browser, expect
from served import running

from holdfast.settings import load_settings

pytestmark = pytest.mark.asyncio(loop_scope="module")


def accept_dialogs(visitor: Visitor) -> None:
    """Say yes to whatever asks whether it is meant."""
    visitor.page.on("dialog", lambda dialog: dialog.accept())


async def test_run_at_work_is_told_something_and_followed_to_its_end(world, owner) -> None:
    body = {"user_message": "stand by for me", "agent_name": "releaser"}
    status, run = await world.server.ask("POST", "/v1/runs", body)
    assert status in (200, 201, 202), run
    await GATE.begun.wait()
    path = f"/runs/{run['id']}"
    await owner.open(path)
    await owner.page.get_by_role("button", name="Say something").press("Enter")
    await owner.page.keyboard.type("only on Monday")
    await owner.page.get_by_role("button", name="Say", exact=True).press("Enter")
    await expect(owner.page.get_by_role("status")).to_contain_text("Said")
    await expect(owner.page.locator("#live-word")).to_have_text("live")
    GATE.opened.set()
    await expect(owner.page.locator(".head .badge")).to_have_text("completed")
    await expect(owner.page.get_by_text("only on Monday").first).to_be_visible()
    # What waits for a person is answered in the inbox: there is nobody at work to be told.
    parked = await ask_agent(world.server, "deploy, waiting")
    await owner.open(f"/runs/{parked['run_id']}")
    await expect(owner.page.locator(".head .badge")).to_have_text("parked")
    assert await owner.page.get_by_role("button", name="Say something").count() == 0


async def test_conversation_is_interrupted(world, owner: Visitor) -> None:
    run = await ask_agent(world.server, "deploy to be interrupted")
    await owner.open(f"/chat/{run['session_id']}")
    await owner.page.get_by_role("button", name="Interrupt").press("Enter")
    await expect(owner.page.get_by_role("status")).to_contain_text("asked to end")
    _, found = await world.server.ask("GET", f"/v1/runs/{run['run_id']}")
    assert found["status"] == "cancelled"


async def test_dropped_file_goes_with_the_message_and_a_picture_is_shown(world, owner) -> None:
    page = owner.page
    await owner.open("/chat")
    await page.locator("select[name=agent]").select_option("releaser")
    await page.evaluate(
        """() => {
        const data = new DataTransfer();
        data.items.add(new File(['the tide is low'], 'tide.txt', {type: 'text/plain'}));
        document.querySelector('.compose').dispatchEvent(
            new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}));
        }"""
    )
    await expect(page.locator("#files")).to_contain_text("tide.txt")
    await page.get_by_label("Message").fill("read my file")
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile(r"/chat/ses_"))
    talk = page.get_by_role("region", name="Conversation")
    await expect(talk.get_by_role("link", name="tide.txt")).to_be_visible()
    await owner.open(f"/runs/{world.kept['picture']}")
    width = await page.locator("img.preview").first.evaluate(
        "image => image.decode().then(() => image.naturalWidth)"
    )
    assert width == 160


async def test_plan_shows_its_steps_and_what_proves_them(world, owner: Visitor) -> None:
    page = owner.page
    await owner.open(f"/runs/{world.kept['loop']}?tab=plan")
    await expect(page.locator("svg .box.done")).to_have_count(4)
    await expect(page.locator("svg .edge")).to_have_count(4)
    step = page.get_by_role("region", name="Step mend")
    text = await step.inner_text()
    assert "Attempt 1" in text and "Attempt 2" in text
    assert "the answer contains 'index'" in text and "reviewer: accept" in text
    assert await step.locator(".badge.failed").count() == 1
    await step.get_by_role("link", name="its run").last.click()
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await owner.open(f"/runs/{world.kept['flow']}?tab=plan")
    await expect(page.locator("svg .box.completed")).to_have_count(4)
    assert "3 instances" in await owner.text()


async def test_run_is_saved_as_a_page_that_needs_nothing(
    world, owner: Visitor, browser: Browser, tmp_path: Path
) -> None:
    await owner.open(f"/runs/{world.kept['evil']}")
    async with owner.page.expect_download() as waits:
        await owner.page.get_by_role("link", name="Save as page").click()
    got = await waits.value
    file = tmp_path / got.suggested_filename
    await got.save_as(file)
    assert file.name == f"{world.kept['evil']}.html"
    async with visit(world.server, browser, offline=True) as reader:
        asked: list[str] = []
        reader.page.on("request", lambda request: asked.append(request.url))
        await reader.page.goto(file.as_uri())
        await reader.page.evaluate("document.querySelectorAll('details').forEach(d => d.open=true)")
        text = await reader.text()
        assert EVIL in text and "Ticket 7" in text and "ago" not in text
        assert await reader.page.evaluate("window.hacked") is None
        assert asked == [file.as_uri()]
        assert await reader.page.locator("script, form, main a[href^='/']").count() == 0
        await reader.check_both_themes("saved page")


async def test_session_is_put_away_and_brought_back(world, owner: Visitor) -> None:
    run = await ask_agent(world.server, "health of what is put away")
    await owner.open(f"/sessions/{run['session_id']}")
    await owner.page.get_by_role("button", name="Archive").press("Enter")
    await expect(owner.page.get_by_role("status")).to_contain_text("put away")
    await owner.page.get_by_role("button", name="Restore").press("Enter")
    await expect(owner.page.get_by_role("status")).to_contain_text("active again")


async def test_rotated_key_opens_and_the_old_one_does_not(world, owner: Visitor) -> None:
    old = await make_key(world.server, "rota", "viewer")
    accept_dialogs(owner)
    await owner.open("/keys")
    await owner.page.locator("tr", has_text="rota").get_by_role("button", name="Rotate").click()
    new = (await owner.page.locator("pre").inner_text()).strip()
    for secret, status in ((old, 401), (new, 200)):
        headers = {"Authorization": f"Bearer {secret}"}
        assert (await world.server.ask("GET", "/v1/runs", headers=headers))[0] == status


async def test_skill_is_trusted_trigger_removed_and_policies_reloaded(world, owner) -> None:
    accept_dialogs(owner)
    await owner.open("/skills")
    row = owner.page.locator("tr", has_text="on-call")
    if await row.get_by_role("button", name="Trust").count():
        await row.get_by_role("button", name="Trust").click()
        await expect(owner.page.get_by_role("status")).to_contain_text("Vouched for")
    await owner.open("/triggers")
    await owner.page.locator("tr", has_text="morning").get_by_role("button").click()
    await expect(owner.page.get_by_role("status")).to_contain_text("Removed")
    assert "No trigger is in force" in await owner.text()
    await owner.open("/policies")
    await owner.page.get_by_role("button", name="Reload").click()
    await expect(owner.page.get_by_role("status")).to_contain_text("read again")


async def test_call_is_explained_by_the_rules_of_today(world, owner: Visitor) -> None:
    await owner.open(f"/runs/{world.kept['run']}")
    await owner.page.locator("details.call summary", has_text="check_health").click()
    await owner.page.get_by_role("link", name="Explain this call").click()
    await expect(owner.page.get_by_role("heading", name="Explanation")).to_be_visible()
    await expect(owner.page.get_by_label("Tool")).to_have_value("check_health")


async def test_theme_is_chosen_and_kept(owner: Visitor) -> None:
    await owner.open("/skills")
    await owner.page.get_by_label("Colours").select_option("dark")
    root = owner.page.locator("html")
    await expect(root).to_have_attribute("data-theme", "dark")
    await owner.open("/tools")
    await expect(root).to_have_attribute("data-theme", "dark")
    await owner.page.get_by_label("Colours").select_option("")
    await expect(root).not_to_have_attribute("data-theme", "dark")


async def test_audit_is_exported_and_files_are_never_shown_as_pages(world, owner) -> None:
    await owner.open("/audit")
    async with owner.page.expect_download() as waits:
        await owner.page.get_by_role("button", name="Export").click()
    lines = Path(await (await waits.value).path()).read_text().splitlines()
    assert len(lines) > 10 and all(line.startswith("{") for line in lines)
    address = f"{world.server.url}/dashboard/artifacts/{world.kept['notes']}/content"
    answer = await owner.page.request.get(address)
    headers = answer.headers
    assert headers["content-disposition"].startswith("attachment; ")
    assert "<" not in headers["content-disposition"]
    assert headers["content-type"] == "application/octet-stream"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "default-src 'none'" in headers["content-security-policy"]
    assert await answer.text() == EVIL


async def test_settings_say_where_each_was_found(world, owner: Visitor) -> None:
    await owner.open("/settings?q=state_dir")
    row = owner.page.locator("tr", has_text="storage.state_dir")
    await expect(row).to_contain_text(str(world.server.base_dir))
    await expect(row).not_to_contain_text("default")
    await owner.open("/settings?set=set&q=model.name")
    assert "No setting fits" in await owner.text()
    assert load_settings().sources["model.name"] == "default"


async def test_operator_sees_what_each_tenant_used(tmp_path: Path, browser: Browser) -> None:
    async with running(tmp_path) as server:
        assert (await server.ask("POST", "/v1/tenants", {"name": "acme"}))[0] == 201
        async with visit(server, browser) as visitor:
            await visitor.log_in(server.token)
            await visitor.open("/costs")
            assert "acme" not in await visitor.text()  # nothing was spent: an empty page
            await server.run()
            boss = await make_key(server, "boss", "admin", tenant="acme")
            headers = {"Authorization": f"Bearer {boss}"}
            status, _ = await server.ask(
                "POST", "/v1/runs/wait", {"user_message": "What is 2 times 3?"}, headers=headers
            )
            assert status == 200
            _, found = await server.ask("GET", "/v1/tenants/usage")
            assert sorted(found) == ["acme", "default"]
            assert [one["calls"] > 0 for one in found.values()] == [True, True]
            assert (await server.ask("GET", "/v1/tenants/usage", headers=headers))[0] == 403


async def test_page_is_printed_without_what_is_not_paper(world, owner: Visitor) -> None:
    await owner.open(f"/runs/{world.kept['run']}")
    await owner.page.emulate_media(media="print")
    for selector in (".side", ".top", ".tabs", ".actions"):
        await expect(owner.page.locator(selector).first).to_be_hidden()
    await expect(owner.page.get_by_role("heading", level=1)).to_be_visible()
    await owner.page.emulate_media(media="screen")


async def test_keys_are_told_by_a_key(owner: Visitor) -> None:
    await owner.open("/runs")
    await owner.page.keyboard.press("?")
    dialog = owner.page.get_by_role("dialog", name="Keys")
    await expect(dialog).to_contain_text("next and previous request")
    await owner.check_accessible("the keys")
    await owner.page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    await owner.page.keyboard.press("/")
    await expect(owner.page.get_by_label("Search")).to_be_focused()


async def test_everything_on_a_run_is_reached_by_the_tab_key(world, owner: Visitor) -> None:
    await owner.open(f"/runs/{world.kept['parked']}")
    wanted = await owner.page.evaluate(
        "[...document.querySelectorAll('a[href],button,select,textarea,summary,"
        "input:not([type=hidden])')].filter(e => e.checkVisibility() && !e.disabled).length"
    )
    await owner.page.evaluate(
        "() => { window.reached = new Set(); document.addEventListener('focusin',"
        " event => window.reached.add(event.target)); }"
    )
    for _ in range(wanted + 20):
        await owner.page.keyboard.press("Tab")
    missed = await owner.page.evaluate(
        "[...document.querySelectorAll('a[href],button,select,textarea,summary,"
        "input:not([type=hidden])')].filter(e => e.checkVisibility() && !e.disabled"
        " && !window.reached.has(e)).map(e => e.outerHTML.slice(0, 120))"
    )
    assert missed == []
