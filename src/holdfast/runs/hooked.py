"""A model and a context builder that ask hooks; both stay out of the way when there are none."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.context import AgentContext, AgentLike, BuildsContext, MemoryLike
from holdfast.errors import HookFailed, LLMError
from holdfast.hooks import Emitter, Hooks, Replace, Retry, Where
from holdfast.hooks.points import (
    ContextAfterBuild,
    ContextBeforeBuild,
    ModelAfterResponse,
    ModelBeforeRequest,
    ModelError,
)
from holdfast.hooks.registry import text_of
from holdfast.ids import new_id
from holdfast.messages import Message, TextPart
from holdfast.providers.model import (
    Delta,
    Finished,
    Model,
    ModelRequest,
    ModelWrapper,
    OpenedStream,
    ReasoningDelta,
    Restarted,
    TextDelta,
)
from holdfast.sessions import Session
from holdfast.skills import Skill
from holdfast.tools import Tool

_MOST_RETRIES = 3
_EVENTS = ("model.requested", "model.failed", "model.text_delta", "model.reasoning_delta")


def _ids_of(where: Where) -> dict[str, str]:
    """Say in which run a hook is asked."""
    return {
        "session_id": where.session_id,
        "run_id": where.run_id,
        "agent": where.agent_path.rsplit("/", 1)[-1],
    }


class HookedModel(ModelWrapper):
    """Asks hooks before a request, after an answer and on failure; tells subscribers pieces."""

    def __init__(self, inner: Model, hooks: Hooks, bus: Emitter, where: Where) -> None:
        """Wrap a model for one run."""
        super().__init__(inner)
        self._hooks = hooks
        self._bus = bus
        self._where = where

    @property
    def _ids(self) -> dict[str, str]:
        info = self.info
        return {**_ids_of(self._where), "provider": info.provider, "model": info.model}

    def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask, with the hooks around it; without hooks and subscribers, the model itself."""
        hooks = self._hooks
        is_hooked = not hooks.is_empty and hooks.has(
            ModelBeforeRequest, ModelAfterResponse, ModelError
        )
        if is_hooked or self._bus.wants(*_EVENTS):
            return self._asked(request, deltas)
        return self.inner.stream(request, deltas=deltas)

    async def _asked(self, request: ModelRequest, deltas: bool) -> AsyncIterator[Delta]:
        """Yield the answer, asked for again as often as the hooks want, within a bound."""
        for attempt in range(_MOST_RETRIES + 1):
            is_last = attempt == _MOST_RETRIES
            request, given = await self._before(request)
            message: Message | None = None
            request_id = ""
            if given is not None:
                message = self._message(given)
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
                    message = await self._failed(error, can_retry=not is_last)
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

    async def _failed(self, error: LLMError, *, can_retry: bool) -> Message | None:
        """Return what a hook puts in place of a failed answer, `None` to ask again."""
        if self._bus.wants("model.failed"):
            self._emit("model.failed", {"error": error.to_dict()})
        if not self._hooks.has(ModelError):
            raise error
        fired = await self._hooks.fire(ModelError(error=error.to_dict(), **self._ids))
        if isinstance(fired.verdict, Replace):
            return self._message(fired.verdict)
        if isinstance(fired.verdict, Retry) and can_retry:
            return None
        raise error

    def _message(self, given: Replace) -> Message:
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
            return msgspec.structs.replace(value, id=new_id("msg"), role="assistant")
        return Message(
            id=new_id("msg"),
            session_id=self._where.session_id,
            role="assistant",
            parts=(TextPart(text=text_of(value)),),
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


class HookedContextBuilder:
    """Asks hooks before and after a context is built."""

    def __init__(self, inner: BuildsContext, hooks: Hooks, where: Where) -> None:
        """Wrap what builds the contexts of one run."""
        self._inner = inner
        self._hooks = hooks
        self._where = where

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
            return self._asked(chosen, messages)
        return build(session, agent, tools, skills, memories, messages=messages)

    async def _asked(
        self,
        build: Callable[..., Coroutine[Any, Any, AgentContext]],
        messages: Sequence[Message] | None,
    ) -> AgentContext:
        if messages is not None and self._hooks.has(ContextBeforeBuild):
            asked = ContextBeforeBuild(messages=tuple(messages), **_ids_of(self._where))
            messages = (await self._hooks.fire(asked)).payload.messages
        context = await build(messages=messages)
        if not self._hooks.has(ContextAfterBuild):
            return context
        built = ContextAfterBuild(
            system_prompt=context.system_prompt,
            messages=tuple(context.messages),
            tools=tuple(sorted(context.tools)),
            **_ids_of(self._where),
        )
        new = (await self._hooks.fire(built)).payload
        if new is built:
            return context
        return msgspec.structs.replace(
            context, system_prompt=new.system_prompt, messages=new.messages
        )
