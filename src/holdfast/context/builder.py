"""The ContextBuilder: what a model sees next, and exactly that.

The beginning stays the same from turn to turn (prompt, environment, instructions, skills,
tools), so that the caches of providers hit; what changes stands at the end.
"""

from __future__ import annotations

import functools
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
    count_steady,
    list_default_steps,
    make_view,
)
from holdfast.errors import NotFound, UsageError
from holdfast.messages import GrowingMessages, Message, ToolSpec
from holdfast.sessions import Session, SessionManager
from holdfast.skills import Skill
from holdfast.tools import Tool

_KEPT = 64
"""So many prompts and lists of tools are known again."""


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

    def view(self) -> ContextView:
        """Return what of it is data."""
        return ContextView(
            session=self.session,
            agent=self.agent.name,
            system_prompt=self.system_prompt,
            messages=tuple(self.messages),
            tool_specs=self.tool_specs,
            sections=self.sections,
        )


class ContextView(msgspec.Struct, frozen=True, kw_only=True):
    """What a model would see, as data: the context without the objects that it is built from."""

    session: Session
    agent: str
    system_prompt: str
    messages: tuple[Message, ...]
    tool_specs: tuple[ToolSpec, ...] = ()
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
        self.steps = tuple(steps) if steps is not None else list_default_steps()
        names = [step.name for step in self.steps]
        if len(set(names)) != len(names):
            raise UsageError(detail=f"Two steps have the same name: {', '.join(names)}.")
        self._steady = count_steady(self.steps)
        self._view = make_view(self.steps[self._steady :])
        # The same texts and tools give the same object, so that its bytes are made once.
        self._prompt = functools.lru_cache(_KEPT)(_join)
        self._specs = functools.lru_cache(_KEPT)(_list_specs)

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
        return await _TurnBuilder(self, self.steps).build_agent_context(
            session, agent, tools, skills, memories, messages=messages
        )

    def prepare_for_turn(self) -> BuildsContext:
        """Return a builder for the requests of one turn, which all begin in the same way.

        What the steady steps make (prompt, environment, instructions, skills, tools) is made
        with the first request. A builder of one's own kind is returned as it is.
        """
        if type(self) is not ContextBuilder:
            return self
        first, rest = self.steps[: self._steady], self.steps[self._steady :]
        return _TurnBuilder(self, (OnceStep(first), *rest))

    @property
    def shows_all(self) -> bool:
        """Whether the model sees all that fits, not what steps of one's own choose of it."""
        return type(self) is ContextBuilder and self._view is not None

    # --- other steps ------------------------------------------------------------------

    def with_replacement(self, step: ContextStep) -> ContextBuilder:
        """Return a builder in which a step of the same name is this one.

        Raises:
            NotFound: there is no step of this name.
        """
        at = self._find_place(step.name)
        return self._with((*self.steps[:at], step, *self.steps[at + 1 :]))

    def without(self, name: str) -> ContextBuilder:
        """Return a builder without a step; raises NotFound."""
        at = self._find_place(name)
        return self._with((*self.steps[:at], *self.steps[at + 1 :]))

    def with_step(self, step: ContextStep, *, after: str = "") -> ContextBuilder:
        """Return a builder with a further step, after another one or at the end."""
        at = self._find_place(after) + 1 if after else len(self.steps)
        return self._with((*self.steps[:at], step, *self.steps[at:]))

    # --- inside -----------------------------------------------------------------------

    def _with(self, steps: tuple[ContextStep, ...]) -> ContextBuilder:
        return ContextBuilder(self._sessions, steps=steps)

    def _find_place(self, name: str) -> int:
        for at, step in enumerate(self.steps):
            if step.name == name:
                return at
        raise NotFound(kind="context step", value=name)


def _join(sections: tuple[Section, ...]) -> str:
    return "\n\n".join([section.text for section in sections if section.text])


def _list_specs(tools: tuple[Tool, ...]) -> tuple[ToolSpec, ...]:
    return tuple([tool.spec for tool in tools])


class _Before(msgspec.Struct):
    """The last context of a turn, and the conversation it was made of, which grows meanwhile."""

    context: AgentContext
    tools: object
    skills: object
    messages: GrowingMessages
    count: int
    """How many of them had come after the beginning that stays."""


class _TurnBuilder(msgspec.Struct, eq=False):
    """Builds the contexts of one turn: most are the one before, and what came behind it."""

    _builder: ContextBuilder
    _steps: tuple[ContextStep, ...]
    _before: _Before | None = None

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
        last, builder = self._before, self._builder
        if (
            last is not None
            and builder._view is not None
            and messages is last.messages
            and session is last.context.session
            and agent is last.context.agent
            and tools is last.tools
            and skills is last.skills
            and not memories
            # Another answer, and no caller has asked anything new.
            and len(last.messages.tail) == last.count + 1
            and last.messages.tail[-1].role == "assistant"
        ):
            shown = builder._view.show(last.messages, pruned_to=session.pruned_to)
            last.context, last.count = replace(last.context, messages=shown), last.count + 1
            return last.context
        read = builder._sessions.messages.all
        history = messages if messages is not None else await read(session)
        # Asked for `dict` first, which nearly all are; the abstract class takes its time.
        if isinstance(tools, dict) or isinstance(tools, Mapping):
            offered = dict(tools)
        else:
            offered = {tool.name: tool for tool in tools}
        draft = ContextDraft(
            session=session,
            agent=agent,
            skills=tuple(skills),
            memories=tuple(memories or ()),
            history=history,
            tools=offered,
        )
        for step in self._steps:
            await step.apply(draft)
        sections = tuple(draft.sections)
        context = AgentContext(
            system_prompt=builder._prompt(sections),
            tools=draft.tools,
            messages=draft.messages,
            memories=draft.memories,
            session=session,
            agent=agent,
            tool_specs=builder._specs(tuple(draft.tools.values())),
            sections=sections,
        )
        self._before = None
        if isinstance(messages, GrowingMessages) and not context.memories:
            self._before = _Before(context, tools, skills, messages, len(messages.tail))
        return context
