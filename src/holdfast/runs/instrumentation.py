"""What observes a run: hooks, subscribers, and the application's own context."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.canonical import JsonObject
from holdfast.context import AgentContext, AgentLike, BuildsContext, MemoryLike
from holdfast.errors import HookFailed, LLMError
from holdfast.hooks import (
    NOWHERE,
    ContextAfterBuild,
    ContextBeforeBuild,
    Emitter,
    ExecutionContext,
    Hooks,
    ModelAfterResponse,
    ModelBeforeRequest,
    ModelError,
    Replace,
    Retry,
    Silence,
    ToolAfterDiscovery,
    ToolBeforeDiscovery,
    Where,
    read_text_of,
)
from holdfast.ids import make_id
from holdfast.messages import Message, TextPart
from holdfast.providers import (
    Delta,
    Finished,
    Model,
    ModelInfo,
    ModelRequest,
    OpenedStream,
    ReasoningDelta,
    Restarted,
    TextDelta,
)
from holdfast.sessions import Session
from holdfast.skills import Skill
from holdfast.tools import (
    Attendant,
    NoAttendant,
    ProgressSink,
    ProgressUpdate,
    Tool,
    ToolRegistry,
)


class Instrumentation(msgspec.Struct, frozen=True, kw_only=True):
    """Hooks, subscribers and context; without them a run pays next to nothing."""

    hooks: Hooks = msgspec.field(default_factory=Hooks)
    bus: Emitter = msgspec.field(default_factory=Silence)
    execution: ExecutionContext = msgspec.field(default_factory=ExecutionContext)
    where: Where = NOWHERE
    attendant: Attendant = msgspec.field(default_factory=NoAttendant)
    """Who answers the questions of tools while a run goes on."""

    def make_for_run(
        self, session_id: str, run_id: str, agent_path: str, *, correlation_id: str = ""
    ) -> Instrumentation:
        """Return the surroundings of one run."""
        where = Where(
            session_id=session_id,
            run_id=run_id,
            agent_path=agent_path,
            correlation_id=correlation_id,
        )
        return replace(self, where=where)

    def make_progress_sink(self) -> ProgressSink:
        """Return what tells subscribers how far a tool is."""
        loop = asyncio.get_running_loop()

        def tell(update: ProgressUpdate) -> None:
            if self.bus.wants("tool.progress"):
                data: JsonObject = {
                    "call_id": update.call_id,
                    "text": update.text,
                    "fraction": update.fraction,
                }
                # Tools report from any thread; the loop may have ended meanwhile.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._emit, "tool.progress", data)

        return tell

    async def discover(self, registry: ToolRegistry, visible: dict[str, Tool]) -> dict[str, Tool]:
        """Return the tools that the model may see, without those that a hook hides."""
        if self.hooks.is_empty or not self.hooks.has(ToolBeforeDiscovery, ToolAfterDiscovery):
            return visible
        ids = {
            "session_id": self.where.session_id,
            "run_id": self.where.run_id,
            "agent": self.where.agent_path.rsplit("/", 1)[-1],
        }
        known: Mapping[str, Tool] = registry.tools
        fired = await self.hooks.fire(ToolBeforeDiscovery(tools=tuple(sorted(known)), **ids))
        kept = set(fired.payload.tools)
        shown = {name: tool for name, tool in visible.items() if name in kept}
        await self.hooks.notify(ToolAfterDiscovery(tools=tuple(sorted(shown)), **ids))
        return shown

    def _emit(self, name: str, data: JsonObject) -> None:
        self.bus.emit(name, data, where=self.where)


_MOST_RETRIES = 3
_EVENTS = ("model.requested", "model.failed", "model.text_delta", "model.reasoning_delta")


def _read_ids_of(where: Where) -> dict[str, str]:
    """Say in which run a hook is asked."""
    return {
        "session_id": where.session_id,
        "run_id": where.run_id,
        "agent": where.agent_path.rsplit("/", 1)[-1],
    }


class HookedModel(msgspec.Struct, frozen=True):
    """Asks hooks before a request, after an answer and on failure; tells subscribers pieces.

    Made for one run, around its model.
    """

    inner: Model
    _hooks: Hooks
    _bus: Emitter
    _where: Where

    def around(self, other: Model) -> HookedModel:
        """Return another model with the same hooks around it."""
        return msgspec.structs.replace(self, inner=other)

    @property
    def info(self) -> ModelInfo:
        """What is known about the wrapped model."""
        return self.inner.info

    def count_tokens(self, request: ModelRequest) -> int:
        """Count as the wrapped model counts."""
        return self.inner.count_tokens(request)

    async def close(self) -> None:
        """Close the wrapped model."""
        await self.inner.close()

    @property
    def _ids(self) -> dict[str, str]:
        info = self.info
        return {**_read_ids_of(self._where), "provider": info.provider, "model": info.model}

    def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask, with the hooks around it; without hooks and subscribers, the model itself."""
        hooks = self._hooks
        is_hooked = not hooks.is_empty and hooks.has(
            ModelBeforeRequest, ModelAfterResponse, ModelError
        )
        if is_hooked or self._bus.wants(*_EVENTS):
            return self._ask(request, deltas)
        return self.inner.stream(request, deltas=deltas)

    async def _ask(self, request: ModelRequest, deltas: bool) -> AsyncIterator[Delta]:
        """Yield the answer, asked for again as often as the hooks want, within a bound."""
        for attempt in range(_MOST_RETRIES + 1):
            is_last = attempt == _MOST_RETRIES
            request, given = await self._before(request)
            message: Message | None = None
            request_id = ""
            if given is not None:
                message = self._parse_message(given)
            else:
                try:
                    async with OpenedStream(
                        self.inner, request, deltas or self._has_readers()
                    ) as stream:
                        async for delta in stream:
                            self._tell(delta)
                            if isinstance(delta, Finished):
                                message, request_id = delta.message, delta.request_id
                            elif deltas:
                                yield delta
                except LLMError as error:
                    message = await self._tell_failed(error, can_retry=not is_last)
            if message is not None:
                message = await self._after(message, can_retry=not is_last)
            if message is not None:
                yield Finished(message, request_id)
                return
            if deltas:
                yield Restarted(reason="a hook asked for another answer")

    async def _before(self, request: ModelRequest) -> tuple[ModelRequest, Replace | None]:
        if self._bus.wants("model.requested"):
            self._emit("model.requested", {"messages": len(request.messages)})
        if not self._hooks.has(ModelBeforeRequest):
            return request, None
        asked = ModelBeforeRequest(
            system=request.system,
            messages=tuple(request.messages),
            tools=tuple(spec.name for spec in request.tools),
            temperature=request.temperature,
            top_p=request.top_p,
            **self._ids,
        )
        fired = await self._hooks.fire(asked)
        fired.raise_if_cancelled()
        new = fired.payload
        if new is not asked:
            request = msgspec.structs.replace(
                request,
                system=new.system,
                messages=new.messages,
                temperature=new.temperature,
                top_p=new.top_p,
            )
        return request, fired.verdict if isinstance(fired.verdict, Replace) else None

    async def _after(self, message: Message, *, can_retry: bool) -> Message | None:
        """Return the answer as the hooks leave it, `None` to ask again."""
        if not self._hooks.has(ModelAfterResponse):
            return message
        fired = await self._hooks.fire(ModelAfterResponse(message=message, **self._ids))
        fired.raise_if_cancelled()
        if isinstance(fired.verdict, Retry) and can_retry:
            return None
        return fired.payload.message

    async def _tell_failed(self, error: LLMError, *, can_retry: bool) -> Message | None:
        """Return what a hook puts in place of a failed answer, `None` to ask again."""
        if self._bus.wants("model.failed"):
            self._emit("model.failed", {"error": error.to_dict()})
        if not self._hooks.has(ModelError):
            raise error
        fired = await self._hooks.fire(ModelError(error=error.to_dict(), **self._ids))
        if isinstance(fired.verdict, Replace):
            return self._parse_message(fired.verdict)
        if isinstance(fired.verdict, Retry) and can_retry:
            return None
        raise error

    def _parse_message(self, given: Replace) -> Message:
        """Make an answer from what a hook gave: a text, or a message as an object or JSON."""
        value = given.value
        if isinstance(value, dict) and "parts" in value:
            try:
                value = msgspec.convert({"id": "", "session_id": "", **value}, Message)
            except msgspec.ValidationError as error:
                detail = f"its answer is no message: {error}"
                raise HookFailed(
                    hook="replace", point=ModelBeforeRequest.point, detail=detail
                ) from error
        if isinstance(value, Message):
            return msgspec.structs.replace(value, id=make_id("msg"), role="assistant")
        return Message(
            id=make_id("msg"),
            session_id=self._where.session_id,
            role="assistant",
            parts=(TextPart(text=read_text_of(value)),),
            provider="hook",
            stop_reason="stop",
        )

    def _has_readers(self) -> bool:
        return self._bus.wants("model.text_delta", "model.reasoning_delta")

    def _tell(self, delta: Delta) -> None:
        if isinstance(delta, TextDelta):
            self._emit("model.text_delta", {"text": delta.text})
        elif isinstance(delta, ReasoningDelta):
            self._emit("model.reasoning_delta", {"text": delta.text})

    def _emit(self, name: str, data: dict[str, object]) -> None:
        self._bus.emit(name, data, where=self._where)


class HookedContextBuilder(msgspec.Struct, frozen=True):
    """Asks hooks before and after a context of one run is built."""

    _inner: BuildsContext
    _hooks: Hooks
    _where: Where

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
        """Return the context as the hooks leave it; without hooks, the builder's own."""
        build = self._inner.build_agent_context
        hooks = self._hooks
        if not hooks.is_empty and hooks.has(ContextBeforeBuild, ContextAfterBuild):
            chosen = functools.partial(build, session, agent, tools, skills, memories)
            return self._ask(chosen, messages)
        return build(session, agent, tools, skills, memories, messages=messages)

    async def _ask(
        self,
        build: Callable[..., Coroutine[Any, Any, AgentContext]],
        messages: Sequence[Message] | None,
    ) -> AgentContext:
        if messages is not None and self._hooks.has(ContextBeforeBuild):
            asked = ContextBeforeBuild(messages=tuple(messages), **_read_ids_of(self._where))
            messages = (await self._hooks.fire(asked)).payload.messages
        context = await build(messages=messages)
        if not self._hooks.has(ContextAfterBuild):
            return context
        built = ContextAfterBuild(
            system_prompt=context.system_prompt,
            messages=tuple(context.messages),
            tools=tuple(sorted(context.tools)),
            **_read_ids_of(self._where),
        )
        new = (await self._hooks.fire(built)).payload
        if new is built:
            return context
        return msgspec.structs.replace(
            context, system_prompt=new.system_prompt, messages=new.messages
        )
