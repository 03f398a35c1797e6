"""What a model sees: skills, contexts, compaction."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from holdfast.client.hooks import HookMethods
from holdfast.client.models import ModelMethods
from holdfast.context import CompactionHooks, Compactor, ContextBuilder, Conversation
from holdfast.errors import AlreadyExists
from holdfast.messages import Message
from holdfast.providers.model import Model, ModelRequest
from holdfast.sessions import Session, check_open
from holdfast.skills import Skill, SkillCatalog, SkillLibrary, TrustStore


class ContextMethods(HookMethods, ModelMethods):
    """What the client can do about contexts."""

    _builder: ContextBuilder | None = None
    _library: SkillLibrary | None = None
    _own_skills: dict[str, Skill] | None = None

    @property
    def context_builder(self) -> ContextBuilder:
        """The builder of all contexts; put another one in its place to change its steps."""
        if self._builder is None:
            self._builder = self._make_builder()
        return self._builder

    @context_builder.setter
    def context_builder(self, builder: ContextBuilder) -> None:
        self._builder = builder

    # --- skills -----------------------------------------------------------------------

    async def register_skill(self, skill: Skill) -> None:
        """Offer a skill to every agent of this client.

        Raises:
            AlreadyExists: a skill of this name was registered.
        """
        known = self._own_skills = self._own_skills or {}
        if skill.name in known:
            raise AlreadyExists(kind="skill", value=skill.name)
        known[skill.name] = skill

    async def list_skills(self, directory: str | os.PathLike[str] | None = None) -> SkillCatalog:
        """Return the skills that hold for a directory, trusted or not, with what is wrong."""
        place = self.settings.workspace if directory is None else directory
        return await asyncio.to_thread(self._skill_library().find, place)

    async def trust_skill(
        self, name: str, directory: str | os.PathLike[str] | None = None, *, revoke: bool = False
    ) -> Skill:
        """Vouch for a project's skill as it is now, or take that back; raises NotFound."""
        place = self.settings.workspace if directory is None else directory
        library = self._skill_library()
        return await asyncio.to_thread(library.revoke if revoke else library.trust, place, name)

    # --- compaction -------------------------------------------------------------------

    async def compact_session(
        self, session_id: str, *, focus: str = "", model: str | Model = ""
    ) -> Message | None:
        """Summarise a session's older part for the model's view and return the summary.

        The conversation itself stays whole. `focus` says what matters most. Returns `None`
        when there is nothing worth summarising.

        Raises:
            SessionBusy: a turn holds the session.
            InvalidTransition: the session is not active.
            LLMError: the summary could not be made; nothing has changed.
            HookRefused: a hook said no; nothing has changed.
        """
        sessions = await self._ready()
        session = await sessions.get_session(session_id)
        check_open(session, self._journal.clock.now())
        ready = await self.ready_model(model)
        compactor = Compactor(
            ready.model,
            charge=ready.charge,
            clock=self._journal.clock,
            hooks=CompactionHooks(hooks=self.hooks),
        )

        async def build(session: Session, messages: Sequence[Message]) -> ModelRequest:
            context = await self.context_builder.build_agent_context(
                session, _Nobody(), {}, messages=messages
            )
            return ModelRequest(messages=context.messages, system=context.system_prompt)

        async with sessions.writing(session.id) as hold:
            await sessions.check_idle(session.id)
            before = await sessions.messages.all(session)
            talk = Conversation(session=session, messages=before)
            after = await compactor.compact(talk, build, hold, focus=focus)
        return after.messages[-1] if len(after.messages) > len(before) else None

    # --- inside -----------------------------------------------------------------------

    def _make_builder(self) -> ContextBuilder:
        return ContextBuilder(self._sessions)

    def _skill_library(self) -> SkillLibrary:
        if self._library is None:
            self._library = SkillLibrary(
                TrustStore(self.base_dir), user_folders=[self.settings.user_dir / "skills"]
            )
        return self._library

    def _offered_skills(self, directory: str) -> tuple[Skill, ...]:
        """The skills that may be loaded in a directory; blocks for a moment."""
        found = {skill.name: skill for skill in self._skill_library().find(directory).offered}
        return tuple({**found, **(self._own_skills or {})}.values())

    async def _skills_for(self, session: Session) -> tuple[Skill, ...]:
        if not self._skill_library().has_any(session.directory):
            return tuple((self._own_skills or {}).values())
        return await asyncio.to_thread(self._offered_skills, session.directory)


class _Nobody:
    """No agent: a summary is made for whoever goes on."""

    name = ""
    prompt = ""
