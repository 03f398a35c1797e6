"""A real browser: Debian's chromium, driven by playwright, which must ask no other host."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, async_playwright
from served import Running

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage"]  # fmt: skip
AXE = Path(__file__).parent / "axe" / "axe.min.js"


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """Start the browser; `./scripts/_browser` installs it."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


class Visitor:
    """Somebody who looks at the dashboard, and what went wrong while they did."""

    def __init__(self, server: Running, context: BrowserContext, page: Page) -> None:
        self.server = server
        self.context = context
        self.page = page
        self.foreign: list[str] = []
        self.errors: list[str] = []
        self.bytes = 0
        page.on("request", self._note_request)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note_console)

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith((self.server.url, "data:", "blob:", "about:")):
            self.foreign.append(request.url)

    def _note_console(self, message: Any) -> None:
        # A page that is not there, or not permitted, is told of by the browser itself.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    async def open(self, path: str = "") -> int:
        """Go to a page of the dashboard; returns its status."""
        response = await self.page.goto(f"{self.server.url}/dashboard{path}")
        assert response is not None
        return response.status

    async def log_in(self, credential: str) -> None:
        """Log in by the form."""
        await self.open("/login")
        await self.page.get_by_label("API key").fill(credential)
        await self.page.get_by_role("button", name="Log in").click()
        await self.page.get_by_role("heading", level=1).wait_for()

    async def text(self) -> str:
        """Return what can be read on the page."""
        return await self.page.inner_text("body")

    async def check_accessible(self, what: str, *, rules: tuple[str, ...] = ()) -> None:
        """Hold the page against the rules of axe-core, or against some of them."""
        # By the protocol of the browser: the page's own policy lets no script in.
        if not await self.page.evaluate("typeof axe === 'object'"):
            await self.page.evaluate(AXE.read_text())
        only = {"runOnly": list(rules)} if rules else {}
        found = await self.page.evaluate(
            "more => axe.run(document, {resultTypes: ['violations'], elementRef: false, ...more})"
            ".then(r => r.violations.map("
            "v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html + ' ' + n.failureSummary)"
            ".join(' | ')))",
            only,
        )
        assert not found, f"{what}: {found}"

    async def check_both_themes(self, what: str) -> None:
        """Hold the page against all rules, and its dark colours against those of colours.

        Nothing else differs: the theme is a set of colours of the same page.
        """
        await self.check_accessible(f"{what}, light")
        await self.page.emulate_media(color_scheme="dark")
        await self.check_accessible(f"{what}, dark", rules=("color-contrast",))
        await self.page.emulate_media(color_scheme="light")

    async def check_width(self, what: str, width: int) -> None:
        """Make the window narrow: nothing may reach beyond it."""
        size = self.page.viewport_size
        await self.page.set_viewport_size({"width": width, "height": 740})
        found = await self.page.evaluate("document.documentElement.scrollWidth")
        assert found <= width, (what, found)
        if size is not None:
            await self.page.set_viewport_size(size)

    async def check_unharmed(self) -> None:
        """No planted script ran, no foreign host was asked, nothing broke."""
        assert await self.page.evaluate("window.hacked") is None
        assert not self.foreign
        assert not self.errors, self.errors


@asynccontextmanager
async def visit(server: Running, browser: Browser, **more: Any) -> AsyncIterator[Visitor]:
    """Open a window of its own, with no cookies."""
    context = await browser.new_context(**{"color_scheme": "light", **more})
    context.set_default_timeout(8_000)
    try:
        yield Visitor(server, context, await context.new_page())
    finally:
        await context.close()


async def make_key(server: Running, name: str, *roles: str, **more: Any) -> str:
    """Make a key of the server; returns its secret."""
    asked = {"name": name, "subject": name, "roles": list(roles), **more}
    status, found = await server.ask("POST", "/v1/keys", asked)
    assert status == 201, found
    return str(found["secret"])
