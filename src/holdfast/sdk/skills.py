"""SkillLoader: the skills that hold for a directory."""

from __future__ import annotations

import os

from holdfast.client import AsyncClient
from holdfast.errors import NotFound
from holdfast.skills import Skill


class SkillLoader:
    """Finds the skills of a project and of the user; those of a project need trust."""

    def __init__(self, client: AsyncClient, directory: str | os.PathLike[str] = ".") -> None:
        """Look from this directory upwards."""
        self._client = client
        self._directory = os.path.abspath(directory)

    async def discover_skills(self) -> tuple[Skill, ...]:
        """Return the skills that agents are offered, by name."""
        catalog = await self._client.skills.list(self._directory)
        return catalog.offered

    async def load_skill(self, name: str) -> Skill:
        """Return a skill with its content; raises NotFound."""
        for skill in await self.discover_skills():
            if skill.name == name:
                return skill
        raise NotFound(kind="skill", value=name)


__all__ = ["SkillLoader"]
