"""Take pictures of the dashboard, filled with the records of a demo, at three widths.

`./scripts/screenshots [DIRECTORY] [PAGE …]`; without a directory, the kept ones of the docs.
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
from served import running  # type: ignore[import-not-found]  # noqa: E402

WIDTHS = (360, 1024, 1600)
KEPT = {"home": (1024,), "run": (1024,), "approvals": (1024, 360), "chat": (1024,)}


async def take(target: Path, only: list[str]) -> None:
    """Write the pictures."""
    is_kept = target == ROOT / "docs" / "pictures"
    with tempfile.TemporaryDirectory() as place:
        async with running(Path(place), agents=make_agents()) as server, open_browser() as browser:
            kept = await fill(server)
            pages = {
                "home": "",
                "runs": "/runs",
                "run": f"/runs/{kept['run']}",
                "parked": f"/runs/{kept['parked']}",
                "events": f"/runs/{kept['run']}?tab=events",
                "context": f"/runs/{kept['run']}?tab=context",
                "approvals": "/approvals",
                "chat": f"/chat/{kept['session']}",
                "costs": "/costs",
                "login": "/login",
                **{name: f"/{name}" for name in (
                    "sessions", "memory", "artifacts", "state", "policies", "tools", "mcp",
                    "agents", "skills", "workflows", "triggers", "workers", "audit", "settings",
                    "keys")},
            }  # fmt: skip
            for theme in ("light", "dark"):
                for width in WIDTHS:
                    size = {"width": width, "height": 900 if width > 400 else 780}
                    async with visit(server, browser, viewport=size, color_scheme=theme) as who:
                        await who.log_in(server.token)
                        for name, path in pages.items():
                            if only and name not in only:
                                continue
                            if is_kept and (theme == "dark" or width not in KEPT.get(name, ())):
                                continue
                            status = await who.open(path)
                            await who.page.wait_for_load_state("load")
                            await who.page.wait_for_timeout(400)
                            suffix = "" if theme == "light" else "-dark"
                            file = target / f"dashboard-{name}-{width}{suffix}.png"
                            await who.page.screenshot(path=str(file), full_page=not is_kept)
                            sys.stdout.write(f"{status} {file.name}\n")


def main() -> None:
    """Read the arguments, and take the pictures."""
    words = sys.argv[1:]
    target = Path(words[0]) if words else ROOT / "docs" / "pictures"
    target.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(target, words[1:]))


if __name__ == "__main__":
    main()
