"""Find out how a model can call tools, with a tiny call, and remember it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
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

_EXAMPLE_TOKENS = 120


def _make_tool(name: str, description: str, **arguments: str) -> ToolSpec:
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in arguments.items()},
        "required": list(arguments),
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=description, parameters=parameters)


PROBE_TOOL = _make_tool("report_number", "Report a whole number.", value="integer")
_WEATHER = _make_tool("get_weather", "Say what the weather is in a city.", city="string")
_TIME = _make_tool("get_time", "Say what time it is in a city.", city="string")
_NOTE = _make_tool("save_note", "Keep a note for later.", text="string")
_DELETE = _make_tool("delete_note", "Delete the note with this number.", number="integer")


class ProbeCase(NamedTuple):
    """Something to ask of a model, and the one right call; none where none is needed."""

    text: str
    tools: tuple[ToolSpec, ...]
    tool: str = ""
    arguments: JsonObject = {}

    def is_met(self, calls: Sequence[ToolPart]) -> bool:
        """Say whether these calls, and no others, are what was asked for."""
        if not self.tool or len(calls) != 1:
            return not self.tool and not calls
        given = {key: _fold(value) for key, value in calls[0].input.items()}
        return calls[0].tool == self.tool and given == self.arguments


CASES: Final = (
    ProbeCase(
        f"Call the tool {PROBE_TOOL.name} with the value 7.",
        (PROBE_TOOL, _NOTE),
        PROBE_TOOL.name,
        {"value": 7},
    ),
    ProbeCase("What is the weather in Paris?", (_TIME, _WEATHER), "get_weather", {"city": "paris"}),
    ProbeCase("Save the note: buy milk", (_DELETE, _NOTE), "save_note", {"text": "buy milk"}),
    ProbeCase("Say hello. You need no tool for that.", (PROBE_TOOL,)),
)
_ENOUGH = 2
"""A model that meets so many cases by native calls, from the first on, needs no other mode."""


class ToolModeProbe(NamedTuple):
    """What a probe found: the mode with the most cases right, and what failed."""

    mode: ToolMode
    is_working: bool
    failures: tuple[str, ...] = ()
    scores: Mapping[ToolMode, int] = {}
    """How many of the cases each mode that was tried got right."""


async def probe_tool_mode(model: Model) -> ToolModeProbe:
    """Find out with a few tiny calls how a model calls tools best.

    A model that makes native calls is taken at its word. Any other is asked the same cases in
    every mode, as a run would ask them, and the mode that got most of them right wins; of equals,
    the first. When none brings any call, `prompted` is returned with `is_working` false:
    remember nothing.

    Raises:
        LLMError: the model cannot be reached or refuses the key; nothing was found out.
    """
    failures: list[str] = []
    scores: dict[ToolMode, int] = {}
    working: list[ToolMode] = []
    modes: tuple[ToolMode, ...] = ("native", "json_schema", "prompted")
    for mode in modes:
        wrapped = ToolModeModel(model, mode, max_corrections=0)
        right = native = calls = 0
        try:
            for number, case in enumerate(CASES, 1):
                message = await _ask(wrapped, case)
                is_right = message is not None and case.is_met(message.tool_calls)
                right += is_right
                calls += is_right and bool(case.tool)
                is_rescued = message is None or bool(message.metadata.get("tool_call_rescued"))
                native += is_right and not is_rescued
                if mode == "native" and native == number == _ENOUGH:
                    return ToolModeProbe("native", True, (), {"native": right})
        except (LLMBadRequest, LLMProtocolError, LLMToolCallMissing) as error:
            failures.append(f"{mode}: {error.code}")
            continue
        scores[mode] = right
        if calls:
            working.append(mode)
        else:
            failures.append(f"{mode}: no correct call")
    if not working:
        return ToolModeProbe("prompted", False, tuple(failures), scores)
    best = max(working, key=lambda mode: (scores[mode], -modes.index(mode)))
    return ToolModeProbe(best, True, tuple(failures), scores)


def _fold(value: object) -> object:
    return value.strip().rstrip(".").casefold() if isinstance(value, str) else value


async def _ask(wrapped: ToolModeModel, case: ProbeCase) -> Message | None:
    asked = Message(
        id=make_id("msg"), session_id="", role="user", parts=(TextPart(text=case.text),)
    )
    request = ModelRequest(
        messages=(asked,),
        tools=case.tools,
        # As in a run; and some servers refuse `required` although their models can call tools.
        tool_choice="auto",
        max_output_tokens=_EXAMPLE_TOKENS,
        # What is chosen for good must not hang on chance.
        temperature=0,
    )
    async with OpenedStream(wrapped, request, False) as answer:
        async for delta in answer:
            if isinstance(delta, Finished):
                return delta.message
    return None


FindWindow: TypeAlias = Callable[[str, str], Awaitable[int]]
"""Asks a server how many tokens a model of it takes; 0 where it does not say."""


class ProbedToolModel(ModelWrapper):
    """A model whose window and tool mode are found out before its first request.

    What works is remembered by address and model. When no mode works, requests go out
    in words (`prompted`), and the next process tries again.
    """

    def __init__(
        self,
        model: Model,
        memory: EndpointMemory,
        base_url: str,
        *,
        find_window: FindWindow | None = None,
    ) -> None:
        """Nothing is asked before the first request; `find_window` asks the server for its size."""
        super().__init__(model)
        self._find_window = find_window
        self._window = 0
        self._memory = memory
        self._base_url = base_url
        self._chosen: ToolModeModel | None = None
        self._lock: asyncio.Lock | None = None

    @property
    def info(self) -> ModelInfo:
        """What is known about the model, with its tool mode once that is known."""
        if self._chosen is not None:
            return self._chosen.info
        info = self.inner.info
        window = min(self._window or info.context_window, info.context_window)
        return msgspec.structs.replace(info, context_window=window)

    def count_tokens(self, request: ModelRequest) -> int:
        """Count what will be sent."""
        return (self._chosen or self.inner).count_tokens(request)

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask in the way that works."""
        if self._find_window is not None:
            await self._learn_window(self._find_window)
        chosen: Model = await self._choose() if request.tools else self._chosen or self.inner
        async with OpenedStream(chosen, request, deltas) as answer:
            async for delta in answer:
                yield delta

    async def _learn_window(self, find_window: FindWindow) -> None:
        self._find_window = None
        place = (self._base_url, self.inner.info.model)
        self._window = self._memory.find_window(*place)
        if not self._window:
            self._window = await find_window(*place)
            if self._window:
                self._memory.set_context_window(*place, self._window)

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
                self._chosen = ToolModeModel(self.inner, mode, window=self._window)
        return self._chosen
