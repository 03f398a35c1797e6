"""The `skill` tool: the body of a skill, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeAlias

from pydantic import Field

from holdfast.errors import PermissionDenied, TellModel, UsageError
from holdfast.skills.injector import as_block, as_line
from holdfast.skills.skill import Skill, fill_in
from holdfast.tools import Tool, ToolContext, ToolResult, tool

Offer: TypeAlias = Callable[[str], Sequence[Skill]]
"""Returns the skills that may be loaded in a directory; may block for a moment."""

_MOST_FILES = 100


def make_skill_tool(offer: Offer | Sequence[Skill]) -> Tool:
    """Return the tool over a set of skills, or over whatever is offered where it is called."""
    known: Offer = offer if callable(offer) else (lambda _directory: offer)

    @tool(name="skill", effect="read", tags=("skills",), target="name")
    async def load(
        name: Annotated[str, Field(min_length=1, max_length=64, description="Name of the skill")],
        context: ToolContext,
        arguments: Annotated[
            str, Field(max_length=10_000, description="What the skill is to be used on, if any")
        ] = "",
    ) -> ToolResult:
        """Load a skill: instructions for a special task, from the list of available skills.

        Follow what it says, within your own rules. Files that it mentions are read with
        `read`, scripts run with `bash`, both as usual.
        """
        skills = await context.look(known, context.workspace.root)
        usable = (skill for skill in skills if skill.is_trusted and not skill.is_for_people)
        offered = {skill.name: skill for skill in usable}
        found = offered.get(name.strip().lower())
        if found is None:
            names = ", ".join(sorted(offered)) or "none"
            raise TellModel(f"There is no skill {name!r}. Available skills: {names}.")
        if found.directory:
            await context.look(_reach, context, found)
        return ToolResult(
            _render(found, context.workspace.root, arguments.strip()),
            title=found.name,
            metadata={
                "skill": found.name,
                "digest": found.digest,
                **({"model": found.model} if found.model else {}),
            },
        )

    return load


def _reach(context: ToolContext, skill: Skill) -> None:
    """Bring a skill's folder into reach for reading, if it lies outside the workspace."""
    folder = skill.directory
    root = context.workspace.root
    if folder == root or folder.startswith(root.rstrip("/") + "/"):
        return
    try:
        context.workspace.grant(folder)
    except (UsageError, PermissionDenied) as error:
        raise TellModel(f"The folder of the skill cannot be read: {error}") from error


def _render(skill: Skill, root: str, arguments: str) -> str:
    text = as_block(fill_in(skill, arguments)).strip()
    lines = [f'<skill name="{as_line(skill.name)}">', text]
    if skill.directory:
        folder = skill.directory
        inside = folder.removeprefix(root.rstrip("/") + "/")
        lines.append(f"\nThe folder of this skill: {as_line(inside)}")
        if skill.files:
            shown = [f"- {as_line(name)}" for name in skill.files[:_MOST_FILES]]
            more = len(skill.files) - len(shown)
            lines += ["Its files:", *shown, *([f"- and {more} more"] if more > 0 else [])]
    return "\n".join([*lines, "</skill>"])
