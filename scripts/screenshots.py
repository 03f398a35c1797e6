"""Take pictures of the dashboard, filled with the records of a demo and empty, at three widths.

`./scripts/screenshots [DIRECTORY] [PAGE …]`; without a directory, the kept ones of the docs.
A page is named as in its file, such as `runs`, or `empty-runs` of a server without records.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "unit" / "server"), str(ROOT / "tests/behaviour/dashboard")]

from browser import open_browser, visit  # type: ignore[import-not-found]  # noqa: E402
from demo import fill, make_agents  # type: ignore[import-not-found]  # noqa: E402
from playwright.async_api import Browser  # noqa: E402
from served import Running, running  # type: ignore[import-not-found]  # noqa: E402

WIDTHS = (360, 1024, 1600)
KEPT = {"home": (1024,), "run": (1024,), "approvals": (1024, 360), "chat": (1024,)}
PLAIN = ("runs", "approvals", "chat", "sessions", "memory", "artifacts", "state", "policies",
         "tools", "mcp", "agents", "skills", "workflows", "triggers", "costs", "workers", "audit",
         "settings", "keys")  # fmt: skip


def list_pages(kept: dict[str, str]) -> dict[str, str]:
    """Return the pages by name; without records only those that are there at once."""
    found = {"home": "", "login": "/login", **{name: f"/{name}" for name in PLAIN}}
    if not kept:
        return {f"empty-{name}": path for name, path in found.items() if name != "login"}
    run = f"/runs/{kept['run']}"
    return found | {
        "run": run,
        "parked": f"/runs/{kept['parked']}",
        "failed-call": f"/runs/{kept['evil']}",
        "events": f"{run}?tab=events",
        "context": f"{run}?tab=context",
        "fork": f"{run}?tab=fork",
        "plan": f"/runs/{kept['loop']}?tab=plan",
        "flow": f"/runs/{kept['flow']}?tab=plan",
        "picture": f"/runs/{kept['picture']}",
        "beside": f"{run}/beside/{kept['parked']}",
        "chat": f"/chat/{kept['session']}",
        "chats": "/chat",
        "session": f"/sessions/{kept['session']}",
        "artifact": f"/artifacts/{kept['chart']}",
        "agent": "/agents/releaser",
        "tool": "/tools/bash",
        "workflow": "/workflows/roll-out",
        "found": "/memory?q=who+owns+the+checkout",
        "explained": "/policies?tool=bash&kind=command&target=ls&replay=1&check=1",
        "verified": "/audit?verify=1",
        "missing": "/runs/run_nothing",
    }


async def take(
    server: Running, browser: Browser, pages: dict[str, str], target: Path, only: list[str]
) -> None:
    """Write the pictures of one server."""
    is_kept = target == ROOT / "docs" / "pictures"
    for theme in ("light",) if is_kept else ("light", "dark"):
        for width in WIDTHS:
            wanted = [
                name
                for name in pages
                if (not only or name in only) and (not is_kept or width in KEPT.get(name, ()))
            ]
            if not wanted:
                continue
            size = {"width": width, "height": 900 if width > 400 else 780}
            async with visit(server, browser, viewport=size, color_scheme=theme) as who:
                await who.log_in(server.token)
                for name in wanted:
                    status = await who.open(pages[name])
                    await who.page.wait_for_load_state("load")
                    await who.page.wait_for_timeout(400)
                    suffix = "" if theme == "light" else "-dark"
                    file = target / f"dashboard-{name}-{width}{suffix}.png"
                    await who.page.screenshot(path=str(file), full_page=not is_kept)
                    sys.stdout.write(f"{status} {file.name}\n")


async def take_all(target: Path, only: list[str]) -> None:
    """Write the pictures of a server with records, then those of one without."""
    async with open_browser() as browser:
        with tempfile.TemporaryDirectory() as place:
            async with running(Path(place), agents=make_agents()) as server:
                await take(server, browser, list_pages(await fill(server)), target, only)
        if target != ROOT / "docs" / "pictures":
            with tempfile.TemporaryDirectory() as place:
                async with running(Path(place)) as server:
                    await take(server, browser, list_pages({}), target, only)


def main() -> None:
    """Read the arguments, and take the pictures."""
    words = sys.argv[1:]
    target = Path(words[0]) if words else ROOT / "docs" / "pictures"
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(take_all(target, words[1:]))


if __name__ == "__main__":
    main()
