"""Prepare the documentation's site in `.site/`: the pages, a reference of every public name, and
the navigation. `scripts/docs` builds it from there.

A page that `mkdocs.yml` does not name is put at the end of the section of its folder, so that none
is ever missing from the navigation.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / ".site"
SECTIONS = {
    "howto": "Build",
    "howto/providers": "Models",
    "tutorial": "Start",
    "concepts": "Concepts",
    "reference": "Reference",
    "reference/tools": "Reference",
    "reference/api": "Reference",
    "runbooks": "Operate",
    "decisions": "Decisions",
    "": "Concepts",
}
_GROUPS = {
    "reference/tools": "Tools",
    "reference/api": "Every public name",
    "howto/providers": "Each provider",
    "runbooks": "Runbooks",
    "howto": "More",
}


def list_rooms() -> list[ModuleType]:
    """Return the front door, then every public room."""
    front = importlib.import_module("holdfast")
    names = sorted(one.name for one in pkgutil.iter_modules(front.__path__))
    open_names = [name for name in names if not name.startswith("_")]
    return [front, *(importlib.import_module(f"holdfast.{name}") for name in open_names)]


def list_names(room: ModuleType) -> list[str]:
    """Return what a room offers."""
    if hasattr(room, "__all__"):
        return sorted(room.__all__)
    own = (name for name, one in vars(room).items() if _module_of(one) == room.__name__)
    return sorted(name for name in own if not name.startswith("_"))


def _module_of(value: object) -> str:
    return str(getattr(value, "__module__", ""))


def render_room(room: ModuleType) -> str:
    """Return the page of a room: each name with its signature and what it promises."""
    lines = [f"# `{room.__name__}`", "", _tidy(inspect.getdoc(room)), ""]
    for name in list_names(room):
        lines += render_name(name, getattr(room, name))
    return "\n".join(lines)


def render_name(name: str, value: Any) -> Iterator[str]:  # noqa: ANN401 - any public object
    """Return the lines about one name."""
    yield from (f"## `{name}`", "")
    if isinstance(value, ModuleType):
        yield from (f"A module: {_tidy(inspect.getdoc(value))}", "")
        return
    if not (inspect.isclass(value) or callable(value)):
        yield from ("```py", f"{name} = {_shorten(repr(value))}", "```", "")
        return
    shown = _signature(value)
    if inspect.isclass(value):
        shown = shown.removesuffix(" -> None")
    yield from ("```py", f"{_word(value)} {name}{shown}", "```", "")
    yield from (_tidy(inspect.getdoc(value)), "")
    if inspect.isclass(value):
        yield from _render_members(name, value)


def _render_members(own: str, kind: type) -> Iterator[str]:
    if issubclass(kind, enum.Enum):
        yield from ("Values: " + ", ".join(f"`{one.name}`" for one in kind), "")
        return
    for name, member in sorted(vars(kind).items()):
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if name.startswith("_") or not (inspect.isfunction(plain) or isinstance(plain, property)):
            continue
        if isinstance(plain, property):
            yield from (f"### `{own}.{name}`", "")
            yield from (_tidy(inspect.getdoc(plain.fget)), "")
        else:
            yield from (f"### `{own}.{name}()`", "")
            yield from ("```py", f"{_word(plain)} {name}{_signature(plain)}", "```", "")
            yield from (_tidy(inspect.getdoc(plain)), "")


def _word(value: object) -> str:
    if inspect.isclass(value):
        return "class"
    return "async def" if inspect.iscoroutinefunction(value) else "def"


def _signature(value: Any) -> str:  # noqa: ANN401 - any public object
    try:
        made = inspect.signature(value)
    except (ValueError, TypeError):
        return ""
    text = _write_signature(made)
    return text if len(text) <= 88 else _fold(text)


def _write_signature(made: inspect.Signature) -> str:
    """Return a signature as it stands in the code: annotations are no texts, `self` is nothing."""
    given = [
        one.replace(annotation=_Bare(one.annotation)) if one.annotation is not one.empty else one
        for place, one in enumerate(made.parameters.values())
        if not (place == 0 and one.name in ("self", "cls"))
    ]
    returned = made.return_annotation
    if returned is not made.empty:
        returned = _Bare(returned)
    shown = str(made.replace(parameters=given, return_annotation=returned))
    return re.sub(r"<[\w.]+(?: object)? at 0x\w+>|<factory>|<object object>", "…", shown)


class _Bare:
    """An annotation that is written without quotes and without the modules of its names."""

    def __init__(self, annotation: object) -> None:
        self._text = (
            annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        )

    def __repr__(self) -> str:
        return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", self._text)


def _fold(shown: str) -> str:
    """Return a long signature with a line for each parameter."""
    inner, _, returned = shown.rpartition(") -> ")
    if not inner:
        inner, returned = shown.removesuffix(")"), ""
    parts, depth, start = [], 0, 1
    for place, letter in enumerate(inner):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 1:
            parts.append(inner[start:place].strip())
            start = place + 1
    parts.append(inner[start:].strip())
    body = "".join(f"    {part},\n" for part in parts)
    return f"(\n{body})" + (f" -> {returned}" if returned else "")


def _tidy(text: str | None) -> str:
    """Return a docstring as Markdown: its sections as bold words, its drawings as they are."""
    lines = re.sub(r"::$", ":", text or "", flags=re.MULTILINE).splitlines()
    return "\n".join(
        f"**{line[:-1]}:**\n" if line in ("Raises:", "Returns:", "Args:", "Yields:") else line
        for line in lines
    )


def _shorten(text: str) -> str:
    text = re.sub(r" at 0x\w+", "", text)
    return text if len(text) <= 200 else text[:199] + "…"


def make_navigation(nav: list[Any], pages: list[str]) -> list[Any]:
    """Return the navigation with every page that it does not name yet."""
    named = set(_list_pages(nav))
    left: dict[str, list[str]] = {}
    for page in pages:
        if page not in named:
            left.setdefault(page.rpartition("/")[0], []).append(page)
    for folder, rest in sorted(left.items()):
        [section] = [one for one in nav if SECTIONS[folder] in one]
        group = _GROUPS.get(folder)
        section[SECTIONS[folder]] += [{group: rest}] if group else rest
    return nav


def _list_pages(nav: Any) -> Iterator[str]:  # noqa: ANN401 - nested lists and tables
    if isinstance(nav, str):
        yield nav
    else:
        for one in nav.values() if isinstance(nav, dict) else nav:
            yield from _list_pages(one)


def main() -> int:
    """Write `.site/docs` and `.site/mkdocs.yml`."""
    shutil.rmtree(PLACE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PLACE / "docs")
    api = PLACE / "docs" / "reference" / "api"
    api.mkdir()
    for room in list_rooms():
        (api / f"{room.__name__}.md").write_text(render_room(room), encoding="utf-8")
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    docs = PLACE / "docs"
    # Without their endings, so that `holdfast` stands before its rooms.
    found = sorted(path.relative_to(docs).with_suffix("") for path in docs.rglob("*.md"))
    pages = [f"{path}.md" for path in map(str, found)]
    config["nav"] = make_navigation(config["nav"], pages)
    config["site_dir"] = "site"
    text = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
    (PLACE / "mkdocs.yml").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
