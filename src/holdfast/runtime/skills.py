"""Skills: which ones hold for a directory, and which the application brought."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from holdfast.errors import AlreadyExists
from holdfast.sessions import Session
from holdfast.settings import Settings
from holdfast.skills import HOME_FOLDERS, Skill, SkillCatalog, SkillLibrary, TrustStore


def list_skill_folders(settings: Settings) -> list[Path]:
    """Return where the skills are that hold for every directory."""
    folders = [settings.user_dir / "skills"]
    if settings.home_dir is not None:
        folders += [settings.home_dir / place for place in HOME_FOLDERS]
    return folders


class SkillService:
    """The skills of one runtime."""

    def __init__(self, settings: Settings, trust: TrustStore) -> None:
        """Look below the workspace and in the user's folders."""
        self._workspace = settings.workspace
        self._library = SkillLibrary(trust, user_folders=list_skill_folders(settings))
        self.registered: tuple[Skill, ...] = ()
        """The skills that the application brought for every agent."""

    def register(self, skill: Skill) -> None:
        """Offer a skill to every agent; raises AlreadyExists."""
        if any(known.name == skill.name for known in self.registered):
            raise AlreadyExists(kind="skill", value=skill.name)
        self.registered += (skill,)

    async def find(self, directory: str | os.PathLike[str] | None) -> SkillCatalog:
        """Return the skills that hold for a directory, trusted or not, with what is wrong."""
        place = self._workspace if directory is None else directory
        return await asyncio.to_thread(self._library.find, place)

    async def trust(
        self, name: str, directory: str | os.PathLike[str] | None, *, revoke: bool
    ) -> Skill:
        """Vouch for a project's skill as it is now, or take that back; raises NotFound."""
        place = self._workspace if directory is None else directory
        change = self._library.revoke if revoke else self._library.trust
        return await asyncio.to_thread(change, place, name)

    def offered(self, directory: str) -> tuple[Skill, ...]:
        """Return the skills that may be loaded in a directory; blocks for a moment."""
        found = (*self._library.find(directory).offered, *self.registered)
        return tuple({skill.name: skill for skill in found}.values())

    async def list_offered_in(self, session: Session) -> tuple[Skill, ...]:
        """Return the skills that may be loaded in a session."""
        if not self._library.has_any(session.directory):
            return self.registered
        return await asyncio.to_thread(self.offered, session.directory)
