"""Callbacks: plain functions before and after agents, models and tools; nothing else to learn.

A thin layer over hooks. A `before_…` function may return `None` to go on, or what should be
used instead; an `after_…` function may return `None`, or what should be returned instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import msgspec

from holdfast.hooks import points
from holdfast.hooks.registry import Hook, Hooks
from holdfast.hooks.verdicts import CONTINUE, Replace, Verdict
from holdfast.messages import Message

Text: TypeAlias = str | None | Awaitable[str | None]
Arguments: TypeAlias = dict[str, Any]


class Callbacks(msgspec.Struct, frozen=True, kw_only=True):
    """Functions to call around agents, models and tools; give only those that you need.

    before_agent   (agent, message) -> another message
    after_agent    (agent, response) -> another response
    before_model   (agent, messages) -> the model's answer, without asking it
    after_model    (agent, message) -> another message
    before_tool    (tool, arguments) -> a text: the result, without the call; a dictionary:
                   other arguments
    after_tool     (tool, output) -> another output
    """

    before_agent: Callable[[str, str], Text] | None = None
    after_agent: Callable[[str, str], Text] | None = None
    before_model: Callable[[str, tuple[Message, ...]], Text] | None = None
    after_model: Callable[[str, Message], Message | None | Awaitable[Message | None]] | None = None
    before_tool: (
        Callable[[str, Arguments], str | Arguments | None | Awaitable[str | Arguments | None]]
        | None
    ) = None
    after_tool: Callable[[str, str], Text] | None = None

    def register(self, hooks: Hooks, *, agent: str = "", priority: int = 0) -> tuple[Hook, ...]:
        """Add the functions as hooks, for one agent or for all."""
        given: tuple[tuple[Any, type[points.HookPayload], Any], ...] = (
            (self.before_agent, points.AgentBeforeExecution, _before_agent),
            (self.after_agent, points.AgentAfterExecution, _after_agent),
            (self.before_model, points.ModelBeforeRequest, _before_model),
            (self.after_model, points.ModelAfterResponse, _after_model),
            (self.before_tool, points.ToolBeforeExecution, _before_tool),
            (self.after_tool, points.ToolAfterExecution, _after_tool),
        )
        return tuple(
            hooks.on(
                point,
                adapt(function),
                name=getattr(function, "__qualname__", point.point),
                agent=agent,
                priority=priority,
            )
            for function, point, adapt in given
            if function is not None
        )


_Adapted: TypeAlias = Callable[[Any], Any]


def _adapt(
    function: Callable[..., Any],
    arguments: Callable[[Any], tuple[Any, ...]],
    verdict: Callable[[Any, Any], Verdict],
) -> _Adapted:
    """Return a hook: an `async` one for an `async` function, so that neither blocks the loop."""
    if inspect.iscoroutinefunction(function):

        async def ask(payload: Any) -> Verdict:  # noqa: ANN401 - the payload of the point
            answer = await function(*arguments(payload))
            return CONTINUE if answer is None else verdict(payload, answer)

        return ask

    def ask_plainly(payload: Any) -> Verdict:  # noqa: ANN401 - the payload of the point
        answer = function(*arguments(payload))
        return CONTINUE if answer is None else verdict(payload, answer)

    return ask_plainly


def _before_agent(function: Callable[..., Any]) -> _Adapted:
    return _adapt(
        function, lambda p: (p.agent, p.message), lambda p, answer: p.modify(message=answer)
    )


def _after_agent(function: Callable[..., Any]) -> _Adapted:
    return _adapt(
        function, lambda p: (p.agent, p.response), lambda p, answer: p.modify(response=answer)
    )


def _before_model(function: Callable[..., Any]) -> _Adapted:
    return _adapt(function, lambda p: (p.agent, p.messages), lambda p, answer: Replace(answer))


def _after_model(function: Callable[..., Any]) -> _Adapted:
    return _adapt(
        function, lambda p: (p.agent, p.message), lambda p, answer: p.modify(message=answer)
    )


def _before_tool(function: Callable[..., Any]) -> _Adapted:
    return _adapt(
        function,
        lambda p: (p.tool, p.arguments),
        lambda p, answer: (
            p.modify(arguments=answer) if isinstance(answer, dict) else Replace(answer)
        ),
    )


def _after_tool(function: Callable[..., Any]) -> _Adapted:
    return _adapt(function, lambda p: (p.tool, p.output), lambda p, answer: p.modify(output=answer))
