"""Chat: words are streamed, consent is asked for in between, files come by drop."""

from __future__ import annotations

import re

import pytest
from browser import Visitor
from playwright.async_api import expect

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_message_is_answered_and_consent_is_given_in_the_conversation(owner) -> None:
    page = owner.page
    await owner.open("/chat")
    await page.locator("select[name=agent]").select_option("releaser")
    await page.get_by_label("Message").fill("deploy from the chat")
    await page.keyboard.press("Enter")
    await page.wait_for_url(re.compile(r"/chat/ses_"))
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("region", name="Conversation")).to_contain_text(
        "Done: deploy from the chat"
    )
    await owner.check_accessible("chat")


async def test_conversation_goes_on_and_is_forked(world, owner: Visitor) -> None:
    page = owner.page
    await owner.open(f"/chat/{world.kept['session']}")
    await page.locator("select[name=agent]").select_option("releaser")
    await page.get_by_label("Message").fill("thank you")
    await page.get_by_role("button", name="Send").click()
    talk = page.get_by_role("region", name="Conversation")
    await expect(talk).to_contain_text("Done: thank you")
    await page.get_by_role("button", name="Fork").click()
    await expect(page.get_by_role("status")).to_contain_text("Forked")
    await expect(talk).to_contain_text("Done: thank you")
    assert world.kept["session"] not in page.url
    await page.get_by_role("button", name="Fork").click()
    await expect(page.locator("ul.tree li")).to_have_count(3)
    await expect(page.locator("ul.tree li.deep-2 a[aria-current=page]")).to_have_count(1)


async def test_file_is_added_to_a_message(owner: Visitor) -> None:
    page = owner.page
    await owner.open("/chat")
    await page.locator("#pick").set_input_files(
        {"name": "note.txt", "mimeType": "text/plain", "buffer": b"the tide is high"}
    )
    await expect(page.locator("#files")).to_contain_text("note.txt")
    await owner.open("/artifacts")
    await page.get_by_role("link", name="note.txt").click()
    await expect(page.locator("pre")).to_contain_text("the tide is high")
