"""Find out how a model can call tools, with a tiny call, and remember it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple

import msgspec

from holdfast.errors import LLMBadRequest, LLMProtocolError, LLMToolCallMissing
from holdfast.ids import make_id
from holdfast.messages import Message, TextPart, ToolPart, ToolSpec
from holdfast.providers.endpoint_memory import EndpointMemory
from holdfast.providers.model import (
    Delta,
    Finished,
    Model,
    ModelInfo,
    ModelRequest,
    ModelWrapper,
    OpenedStream,
    ToolMode,
)
from holdfast.providers.tool_modes import ToolModeModel

PROBE_TOOL = ToolSpec(
    name="report_number",
    description="Report a whole number.",
    parameters={
        "type": "object",
        "properties": {"value": {"type": "integer"}},
        "required": ["value"],
        "additionalProperties": False,
    },
)
_SAME_TOOL = msgspec.structs.replace(PROBE_TOOL, name="report_value")
"""Whichever of the two a model takes is right: only that there is a choice matters."""

_RIGHT = (PROBE_TOOL.name, _SAME_TOOL.name)
_ASKED = 7


class ToolModeProbe(NamedTuple):
    """What a probe found: the first mode that gave a correct call, and what failed before."""

    mode: ToolMode
    is_working: bool
    failures: tuple[str, ...] = ()


async def probe_tool_mode(model: Model) -> ToolModeProbe:
    """Find out with up to three tiny calls how a model can call tools.

    The first mode in which the model calls the one offered tool with the asked number
    wins. When none does, `prompted` is returned with `is_working` false: remember nothing.

    Raises:
        LLMError: the model cannot be reached or refuses the key; nothing was found out.
    """
    failures: list[str] = []
    modes: tuple[ToolMode, ...] = ("native", "json_schema", "prompted")
    for mode in modes:
        wrapped = ToolModeModel(model, mode, max_corrections=0)
        try:
            calls = await _probe_once(wrapped, mode)
        except (LLMBadRequest, LLMProtocolError, LLMToolCallMissing) as error:
            failures.append(f"{mode}: {error.code}")
            continue
        if any(call.tool in _RIGHT and call.input == {"value": _ASKED} for call in calls):
            return ToolModeProbe(mode, True, tuple(failures))
        failures.append(f"{mode}: no correct call")
    return ToolModeProbe("prompted", False, tuple(failures))


async def _probe_once(wrapped: ToolModeModel, mode: ToolMode) -> tuple[ToolPart, ...]:
    asked = Message(
        id=make_id("msg"),
        session_id="",
        role="user",
        parts=(TextPart(text=f"Call the tool {PROBE_TOOL.name} with the value {_ASKED}."),),
    )
    request = ModelRequest(
        messages=(asked,),
        # A choice between two is a schema of another form, and not every server takes it.
        tools=(PROBE_TOOL, _SAME_TOOL) if mode == "json_schema" else (PROBE_TOOL,),
        # Some servers refuse `required` although their models can call tools.
        tool_choice="auto" if mode == "native" else "required",
        max_output_tokens=120,
    )
    message: Message | None = None
    async with OpenedStream(wrapped, request, False) as answer:
        async for delta in answer:
            if isinstance(delta, Finished):
                message = delta.message
    if message is None or (mode == "native" and message.metadata.get("tool_call_rescued")):
        return ()
    return message.tool_calls


class ProbedToolModel(ModelWrapper):
    """A model whose tool mode is found out before its first request with tools.

    What works is remembered by address and model. When no mode works, requests go out
    in words (`prompted`), and the next process tries again.
    """

    def __init__(self, model: Model, memory: EndpointMemory, base_url: str) -> None:
        """Nothing is asked before the first request with tools."""
        super().__init__(model)
        self._memory = memory
        self._base_url = base_url
        self._chosen: ToolModeModel | None = None
        self._lock: asyncio.Lock | None = None

    @property
    def info(self) -> ModelInfo:
        """What is known about the model, with its tool mode once that is known."""
        return self._chosen.info if self._chosen is not None else self.inner.info

    def count_tokens(self, request: ModelRequest) -> int:
        """Count what will be sent."""
        return (self._chosen or self.inner).count_tokens(request)

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask in the way that works."""
        chosen: Model = await self._choose() if request.tools else self._chosen or self.inner
        async with OpenedStream(chosen, request, deltas) as answer:
            async for delta in answer:
                yield delta

    async def _choose(self) -> ToolModeModel:
        if self._chosen is not None:
            return self._chosen
        if self._lock is None:
            self._lock = asyncio.Lock()
        async with self._lock:
            if self._chosen is None:
                place = (self._base_url, self.inner.info.model)
                mode = self._memory.tool_mode(*place)
                if mode is None:
                    found = await probe_tool_mode(self.inner)
                    mode = found.mode
                    if found.is_working:
                        self._memory.set_tool_mode(*place, mode)
                self._chosen = ToolModeModel(self.inner, mode)
        return self._chosen
