"""The ContextBuilder: what a model sees next, and exactly that.

The beginning stays the same from turn to turn (prompt, environment, instructions, skills,
tools), so that the caches of providers hit; what changes stands at the end.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from holdfast.context.account import (
    DEFAULT_WINDOW,
    ContextAccount,
    CountTokens,
    Section,
    draw_account,
)
from holdfast.context.steps import (
    AgentLike,
    ContextDraft,
    ContextStep,
    MemoryLike,
    OnceStep,
    as_mapping,
    count_steady,
    default_steps,
    view_of,
)
from holdfast.errors import NotFound, UsageError
from holdfast.messages import GrowingMessages, Message, ToolSpec
from holdfast.sessions import Session, SessionManager
from holdfast.skills import Skill
from holdfast.tools import Tool

_KEPT_SPECS = 64


class AgentContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one model call is built from."""

    system_prompt: str
    tools: Mapping[str, Tool]
    messages: Sequence[Message]
    memories: tuple[MemoryLike, ...] = ()
    session: Session
    agent: AgentLike
    tool_specs: tuple[ToolSpec, ...] = ()
    """The tools as the model sees them, in a stable order; the same object while unchanged."""
    sections: tuple[Section, ...] = ()

    @property
    def account(self) -> ContextAccount:
        """What takes how much, estimated for no model in particular."""
        return self.account_for()

    def account_for(
        self, count: CountTokens | None = None, *, limit: int = DEFAULT_WINDOW
    ) -> ContextAccount:
        """Return what takes how much, as a model counts it (`Model.count_tokens`)."""
        return draw_account(self.sections, self.messages, self.tool_specs, count=count, limit=limit)


class BuildsContext(Protocol):
    """Whatever builds the context of the next model call; `ContextBuilder` is one."""

    def build_agent_context(
        self,
        session: Session,
        agent: AgentLike,
        tools: Mapping[str, Tool] | Sequence[Tool],
        skills: Sequence[Skill] = (),
        memories: Sequence[MemoryLike] | None = None,
        *,
        messages: Sequence[Message] | None = None,
    ) -> Coroutine[Any, Any, AgentContext]:
        """Return the complete context for the next model call."""
        ...


class ContextBuilder:
    """Builds the context of an agent from its session, tools, skills and memories.

    Made of named steps: `replacing`, `without` and `adding` return a builder with other
    ones. Build all contexts of a process with one builder: what it made of old messages is
    made once.
    """

    def __init__(
        self, sessions: SessionManager, *, steps: Sequence[ContextStep] | None = None
    ) -> None:
        """Read conversations from these sessions; `steps` instead of the usual ones."""
        self._sessions = sessions
        self.steps = tuple(steps) if steps is not None else default_steps()
        names = [step.name for step in self.steps]
        if len(set(names)) != len(names):
            raise UsageError(detail=f"Two steps have the same name: {', '.join(names)}.")
        self._steady = count_steady(self.steps)
        self._view = view_of(self.steps[self._steady :])
        self._specs: dict[tuple[Tool, ...], tuple[ToolSpec, ...]] = {}
        self._prompts: dict[tuple[Section, ...], str] = {}

    async def build_agent_context(
        self,
        session: Session,
        agent: AgentLike,
        tools: Mapping[str, Tool] | Sequence[Tool],
        skills: Sequence[Skill] = (),
        memories: Sequence[MemoryLike] | None = None,
        *,
        messages: Sequence[Message] | None = None,
    ) -> AgentContext:
        """Return the complete context for the next model call.

        `messages` is the conversation if the caller has it at hand; otherwise it is read.
        """
        return await self._build(self.steps, session, agent, tools, skills, memories, messages)

    async def _build(
        self,
        steps: Sequence[ContextStep],
        session: Session,
        agent: AgentLike,
        tools: Mapping[str, Tool] | Sequence[Tool],
        skills: Sequence[Skill],
        memories: Sequence[MemoryLike] | None,
        messages: Sequence[Message] | None,
    ) -> AgentContext:
        history = messages if messages is not None else await self._sessions.messages.all(session)
        draft = ContextDraft(
            session=session,
            agent=agent,
            skills=tuple(skills),
            memories=tuple(memories or ()),
            history=history,
            tools=as_mapping(tools),
        )
        for step in steps:
            await step.apply(draft)
        sections = tuple(draft.sections)
        return AgentContext(
            system_prompt=self._prompt(sections),
            tools=draft.tools,
            messages=draft.messages,
            memories=draft.memories,
            session=session,
            agent=agent,
            tool_specs=self._tool_specs(tuple(draft.tools.values())),
            sections=sections,
        )

    def for_turn(self) -> BuildsContext:
        """Return a builder for the requests of one turn, which all begin in the same way.

        What the steady steps make (prompt, environment, instructions, skills, tools) is made
        with the first request. A builder of one's own kind is returned as it is.
        """
        if type(self) is not ContextBuilder:
            return self
        return _OfTurn(self)

    # --- other steps ------------------------------------------------------------------

    def replacing(self, step: ContextStep) -> ContextBuilder:
        """Return a builder in which a step of the same name is this one.

        Raises:
            NotFound: there is no step of this name.
        """
        at = self._place(step.name)
        return self._with((*self.steps[:at], step, *self.steps[at + 1 :]))

    def without(self, name: str) -> ContextBuilder:
        """Return a builder without a step; raises NotFound."""
        at = self._place(name)
        return self._with((*self.steps[:at], *self.steps[at + 1 :]))

    def adding(self, step: ContextStep, *, after: str = "") -> ContextBuilder:
        """Return a builder with a further step, after another one or at the end."""
        at = self._place(after) + 1 if after else len(self.steps)
        return self._with((*self.steps[:at], step, *self.steps[at:]))

    # --- inside -----------------------------------------------------------------------

    def _with(self, steps: tuple[ContextStep, ...]) -> ContextBuilder:
        return ContextBuilder(self._sessions, steps=steps)

    def _place(self, name: str) -> int:
        for at, step in enumerate(self.steps):
            if step.name == name:
                return at
        raise NotFound(kind="context step", value=name)

    def _prompt(self, sections: tuple[Section, ...]) -> str:
        """Return the same texts as the same object, so that its bytes are made once."""
        known = self._prompts.get(sections)
        if known is None:
            if len(self._prompts) >= _KEPT_SPECS:
                self._prompts.clear()
            texts = [section.text for section in sections if section.text]
            known = self._prompts[sections] = "\n\n".join(texts)
        return known

    def _tool_specs(self, tools: tuple[Tool, ...]) -> tuple[ToolSpec, ...]:
        known = self._specs.get(tools)
        if known is None:
            if len(self._specs) >= _KEPT_SPECS:
                self._specs.clear()
            known = self._specs[tools] = tuple([tool.spec for tool in tools])
        return known


class _Before(msgspec.Struct):
    """The last context of a turn, and the conversation it was made of, which grows meanwhile."""

    context: AgentContext
    tools: object
    skills: object
    messages: GrowingMessages
    count: int
    """How many of them had come after the beginning that stays."""


class _OfTurn:
    """Builds the contexts of one turn: most are the one before, and what came behind it."""

    def __init__(self, builder: ContextBuilder) -> None:
        steady = builder._steady
        self._builder = builder
        self._steps = (OnceStep(builder.steps[:steady]), *builder.steps[steady:])
        self._before: _Before | None = None

    async def build_agent_context(
        self,
        session: Session,
        agent: AgentLike,
        tools: Mapping[str, Tool] | Sequence[Tool],
        skills: Sequence[Skill] = (),
        memories: Sequence[MemoryLike] | None = None,
        *,
        messages: Sequence[Message] | None = None,
    ) -> AgentContext:
        """Return the complete context for the next model call of the turn."""
        last, view = self._before, self._builder._view
        if (
            last is not None
            and view is not None
            and messages is last.messages
            and session is last.context.session
            and agent is last.context.agent
            and tools is last.tools
            and skills is last.skills
            and not memories
            # Another answer, and nobody has asked anything new.
            and len(last.messages.tail) == last.count + 1
            and last.messages.tail[-1].role == "assistant"
        ):
            shown = view.show(last.messages, pruned_to=session.pruned_to)
            last.context, last.count = replace(last.context, messages=shown), last.count + 1
            return last.context
        context = await self._builder._build(
            self._steps, session, agent, tools, skills, memories, messages
        )
        self._before = None
        if isinstance(messages, GrowingMessages) and not context.memories:
            self._before = _Before(context, tools, skills, messages, len(messages.tail))
        return context
