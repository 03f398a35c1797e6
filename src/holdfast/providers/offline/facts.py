"""Take facts out of files that describe a project; foreign text is data here, nothing more."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from holdfast.providers.lazy_patterns import compile_on_use
from holdfast.providers.offline.conversation import make_harmless

_NUMBERED = compile_on_use(r"^\s*\d+(?:[\t→]|(?:\||:|│) ?)")
_MAX_QUOTE = 600
_MAX_FOREIGN = 20_000


class WorkspaceFacts(NamedTuple):
    """What one file says about the project."""

    name: str = ""
    about: str = ""
    """One sentence or paragraph, as the file has it."""
    commands: tuple[tuple[str, str], ...] = ()
    """How to build, test or run: (what for, command)."""
    parts: tuple[str, ...] = ()
    """Sections of a README, dependencies, and the like: (label: …)."""


def strip_lines(output: str) -> str:
    """Return a file's text without the line numbers that a tool put before each line."""
    text = make_harmless(output)
    lines = [line for line in text.splitlines() if not line.startswith("(more lines follow")]
    numbered = [line for line in lines if line.strip()]
    if numbered and sum(bool(_NUMBERED.match(line)) for line in numbered) >= 0.8 * len(numbered):
        lines = [_NUMBERED.sub("", line) for line in lines]
    return "\n".join(lines)


def quote(text: str, limit: int = _MAX_QUOTE) -> str:
    """Return foreign text as plain words: no links, pictures, HTML or line breaks."""
    text = text[:_MAX_FOREIGN]
    text = re.sub(r"!\[([^\]]{0,300})\]\([^)]{0,500}\)", r"\1", text)
    text = re.sub(r"\[([^\]]{0,300})\]\([^)]{0,500}\)", r"\1", text)
    text = re.sub(r"<[^>]{0,500}>", "", text).replace("<", "‹").replace("![", "[")
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


_SHELL_BLOCK = compile_on_use(r"(?ms)^```(?:sh|bash|shell|console)\s*\n(.*?)^```")
_MOST_SHELL_LINES = 6


def read_facts(path: str, output: str) -> WorkspaceFacts:
    """Return what a file says, by its name; a file that cannot be read gives nothing."""
    text = strip_lines(output)
    name = path.rsplit("/", 1)[-1].lower()
    if name.startswith("readme"):
        return _from_readme(text)
    if name == "pyproject.toml":
        return _from_pyproject(text)
    if name == "package.json":
        return _from_package_json(text)
    if name == "cargo.toml":
        return _from_cargo(text)
    if name in {"makefile", "justfile"}:
        return _from_makefile(text, "make" if name == "makefile" else "just")
    if name == "go.mod":
        module = re.search(r"^module\s+(\S+)", text, re.M)
        run = (("build", "go build ./..."), ("test", "go test ./..."))
        return WorkspaceFacts(name=quote(module[1], 100) if module else "", commands=run)
    if name == "cmakelists.txt":
        return WorkspaceFacts(commands=(("build", "cmake -B build && cmake --build build"),))
    if name == "pom.xml":
        return WorkspaceFacts(commands=(("build", "mvn package"), ("test", "mvn test")))
    if name.startswith("build.gradle"):
        return WorkspaceFacts(commands=(("build", "gradle build"), ("test", "gradle test")))
    if name in {"tox.ini", "noxfile.py"}:
        return WorkspaceFacts(commands=(("test", "tox" if name == "tox.ini" else "nox"),))
    return WorkspaceFacts()


def _from_readme(text: str) -> WorkspaceFacts:
    title = ""
    paragraph: list[str] = []
    sections: list[str] = []
    in_code = False
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            in_code = not in_code
            if paragraph:
                continue
        if in_code:
            continue
        heading = re.match(r"#{1,3}\s+(.*)", stripped)
        if heading:
            if not title:
                title = quote(heading[1].strip("# "), 100)
            else:
                sections.append(quote(heading[1].strip("# "), 60))
            continue
        is_prose = bool(re.match(r"[A-Za-z0-9*_`\"'(]", stripped)) and not _is_decoration(stripped)
        if is_prose and (not sections or paragraph) and len(" ".join(paragraph)) < _MAX_QUOTE:
            if not paragraph or not paragraph[-1] == "":
                paragraph.append(stripped)
        elif paragraph and not stripped:
            paragraph.append("")
    about = quote(" ".join(part for part in _find_first_paragraph(paragraph)))
    listed = tuple(f"README section: {section}" for section in sections[:12] if section)
    commands = tuple(_find_shell_lines(text))
    return WorkspaceFacts(name=title, about=about, commands=commands, parts=listed)


def _find_shell_lines(text: str) -> Iterator[tuple[str, str]]:
    """Return the commands of the first shell block, each with what its comment says of it."""
    block = _SHELL_BLOCK.search(text)
    for line in (block[1] if block else "").splitlines()[:_MOST_SHELL_LINES]:
        command, _, comment = line.strip().removeprefix("$ ").partition("  #")
        if command.strip() and not command.startswith("#"):
            yield quote(comment.strip(" #"), 80) or "as the README says", quote(command.strip(), 80)


def _find_first_paragraph(lines: list[str]) -> list[str]:
    return lines[: lines.index("")] if "" in lines else lines


def _is_decoration(line: str) -> bool:
    return set(line) <= set("=-*_ ") or line.startswith("[!")


def _from_pyproject(text: str) -> WorkspaceFacts:
    data = _read_toml(text)
    project = _read_table(data.get("project")) or _read_table(
        _read_table(data.get("tool")).get("poetry")
    )
    tools = _read_table(data.get("tool"))
    commands: list[tuple[str, str]] = [("install", "pip install -e .")] if project else []
    if "pytest" in tools or "pytest" in text:
        commands.append(("test", "pytest"))
    if "ruff" in tools or re.search(r'"ruff\b', text):
        commands.append(("lint", "ruff check"))
    if "mypy" in tools:
        commands.append(("types", "mypy"))
    commands += [
        ("run", quote(str(script), 60)) for script in list(_read_table(project.get("scripts")))[:5]
    ]
    parts: list[str] = []
    if isinstance(project.get("requires-python"), str):
        parts.append(f"Python {quote(project['requires-python'], 40)}")
    needed = project.get("dependencies")
    if isinstance(needed, list) and needed:
        names = [re.split(r"[\s<>=!~;\[]", str(item), maxsplit=1)[0] for item in needed]
        parts.append("depends on " + quote(", ".join(names[:20]), 300))
    starts = list(_read_table(project.get("scripts")).items())[:3]
    parts += [f"{quote(str(name), 40)} starts {quote(str(where), 60)}" for name, where in starts]
    return WorkspaceFacts(
        name=quote(_render_text(project.get("name")), 100),
        about=quote(_render_text(project.get("description"))),
        commands=tuple(commands),
        parts=tuple(parts),
    )


def _from_package_json(text: str) -> WorkspaceFacts:
    try:
        decoded: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return WorkspaceFacts()
    data = _read_table(decoded)
    commands = [("install", "npm install")]
    for script in list(_read_table(data.get("scripts")))[:12]:
        word = quote(str(script), 40)
        commands.append((word, "npm test" if word == "test" else f"npm run {word}"))
    needed = [quote(str(name), 40) for name in list(_read_table(data.get("dependencies")))[:20]]
    return WorkspaceFacts(
        name=quote(_render_text(data.get("name")), 100),
        about=quote(_render_text(data.get("description"))),
        commands=tuple(commands),
        parts=("depends on " + ", ".join(needed),) if needed else (),
    )


def _from_cargo(text: str) -> WorkspaceFacts:
    package = _read_table(_read_toml(text).get("package"))
    return WorkspaceFacts(
        name=quote(_render_text(package.get("name")), 100),
        about=quote(_render_text(package.get("description"))),
        commands=(("build", "cargo build"), ("test", "cargo test")),
    )


def _from_makefile(text: str, program: str) -> WorkspaceFacts:
    targets = re.findall(r"^([A-Za-z][\w-]{0,40})[ \t]*:(?!=)", text, re.M)
    return WorkspaceFacts(commands=tuple((name, f"{program} {name}") for name in targets[:12]))


def _read_toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return _cut_toml(text)


def _cut_toml(text: str) -> dict[str, Any]:
    """Read as much as can be read of a file whose end is missing."""
    lines = text.splitlines()
    for end in range(len(lines) - 1, max(0, len(lines) - 40), -1):
        try:
            return tomllib.loads("\n".join(lines[:end]))
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
    return {}


def _read_table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _render_text(value: object) -> str:
    return value if isinstance(value, str) else ""
