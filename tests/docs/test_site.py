"""The navigation of the site names every page once, and pages that exist."""

from __future__ import annotations

import runpy
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
SITE = runpy.run_path(str(ROOT / "scripts" / "site.py"))
PAGES = sorted(str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md"))


def read_nav() -> list[object]:
    nav: list[object] = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    return nav


def test_the_navigation_names_only_pages_that_exist() -> None:
    assert sorted(set(SITE["_list_pages"](read_nav())) - set(PAGES)) == []


def test_no_page_is_missing_from_the_navigation_and_none_stands_there_twice() -> None:
    nav = SITE["make_navigation"](read_nav(), PAGES)
    assert sorted(SITE["_list_pages"](nav)) == PAGES


def test_the_reference_has_every_public_name_with_its_signature() -> None:
    front, *rooms = SITE["list_rooms"]()
    page = SITE["render_room"](front)
    for name in front.__all__:
        assert f"## `{name}`" in page
    assert "class Agent(\n" in page
    [tools] = [room for room in rooms if room.__name__ == "holdfast.tools"]
    assert all(f"## `{name}`" in SITE["render_room"](tools) for name in tools.__all__)
