"""Skills in a prompt: as a catalog to choose from, or with their whole content."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Protocol

from holdfast.skills.skill import Skill

DEFAULT_CHARS = 32_000
_HEADER = (
    "Skills are instructions for special tasks. When one fits the task, load it with the "
    "`skill` tool before you begin; do not guess what it says."
)
_OPENING = "You have access to the following skills:\n"


@functools.cache
def _compile_unsafe() -> re.Pattern[str]:
    return re.compile(
        "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
    )


@functools.cache
def _tag() -> re.Pattern[str]:
    return re.compile(r"<(?=/?\s*(skill|available_skills)\b)", re.IGNORECASE)


class Named(Protocol):
    """The agent that the prompt is for."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


def as_line(text: str) -> str:
    """Return foreign text as one line that cannot close or open a tag of ours."""
    return _tag().sub("&lt;", _compile_unsafe().sub("", " ".join(text.split())))


def as_block(text: str) -> str:
    """Return foreign text in which no tag of ours begins or ends."""
    return _tag().sub("&lt;", _compile_unsafe().sub("", text))


def render_catalog(skills: Sequence[Skill], *, max_chars: int) -> tuple[str, int]:
    """Return names and descriptions within a budget, and how many skills did not fit.

    The order is by name, so that the text is the same as long as the skills are. Long
    descriptions are cut before a skill is left out.
    """
    offered = (skill for skill in skills if skill.is_trusted and not skill.is_for_people)
    ordered = sorted(offered, key=lambda skill: skill.name)
    for most in (1_024, 200, 80):
        lines = [f"- {_write_title(s)}: {_cut(as_line(s.description), most)}" for s in ordered]
        if sum(len(line) + 1 for line in lines) <= max_chars:
            break
    kept: list[str] = []
    room = max_chars
    for line in lines:
        if len(line) + 1 > room:
            break
        kept.append(line)
        room -= len(line) + 1
    if not kept:
        return "", len(ordered)
    text = "\n".join(["<available_skills>", _HEADER, *kept, "</available_skills>"])
    return text, len(ordered) - len(kept)


class SkillInjector:
    """Writes skills with their whole content before a prompt, within a budget."""

    def __init__(self, *, max_chars: int = DEFAULT_CHARS) -> None:
        """Take at most so many characters for skills, with all that is said about them."""
        self._max_chars = max_chars

    def build_agent_prompt(self, agent: Named, skills: Sequence[Skill], base_prompt: str) -> str:
        """Return the prompt of an agent with its skills in front.

        Skills that are not trusted are left out. A content that does not fit the budget is
        left out as a whole, and so is a skill of which not even the name fits; the prompt says
        so where that fits.
        """
        usable = (skill for skill in skills if skill.is_trusted and not skill.is_for_people)
        offered = sorted(usable, key=lambda skill: skill.name)
        entries: list[str] = []
        room = self._max_chars - len(_OPENING)
        for skill in offered:
            fits = [entry for entry in _list_entries(skill) if len(entry) <= room]
            entries += fits[:1]
            room -= len(fits[0]) if fits else 0
        while (
            entries and len(entries) < len(offered) and room < len(_explain_left_out(len(offered)))
        ):
            room += len(entries.pop())
        if not entries:
            return base_prompt
        left = len(offered) - len(entries)
        return "".join(
            [_OPENING, *entries, _explain_left_out(left) if left else "", "\n", base_prompt]
        )


def _list_entries(skill: Skill) -> tuple[str, str]:
    """Return a skill with its content, and without it."""
    head = f"- {as_line(skill.name)}: {_cut(as_line(skill.description), 1_024)}\n  content: "
    content = as_block(skill.content).strip()
    note = f"(left out: {len(content)} characters do not fit; load it by name)"
    return f"{head}{_indent(content)}\n", f"{head}{note}\n"


def _write_title(skill: Skill) -> str:
    hint = f" {as_line(skill.argument_hint)}" if skill.argument_hint else ""
    return f"{as_line(skill.name)}{hint}"


def _explain_left_out(skills: int) -> str:
    return f"- ({skills} more left out)\n"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _indent(text: str) -> str:
    return text.replace("\n", "\n    ")
