"""Tool calling for weak models: by native tools, by a schema, or by words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import LLMBadRequest, LLMProtocolError, LLMToolCallMissing
from holdfast.ids import new_id
from holdfast.messages import Message, Part, TextPart, TokenUsage, ToolPart, ToolSpec
from holdfast.providers.json_schema import problems
from holdfast.providers.model import (
    Delta,
    Finished,
    Model,
    ModelInfo,
    ModelRequest,
    TextDelta,
    ToolCallDelta,
    ToolMode,
)
from holdfast.providers.rescue import RescuedCall, looks_like_call, parse_value, rescue_calls
from holdfast.providers.tool_prompt import allowed_tools, must_call, rewrite

MAX_CORRECTIONS = 2


class _Reading(NamedTuple):
    """What an answer turned out to be; `complaint` says why it cannot be taken."""

    message: Message
    complaint: str = ""
    is_rescued: bool = False


class ToolModeModel:
    """Another model, asked for tool calls in the way that it can answer.

    `native` passes tools through; `json_schema` makes the answer's schema demand a call;
    `prompted` asks in words, with an example. In every mode a call that came as text is
    rescued, its name and arguments are checked, and a call that was demanded but did not
    come is asked for again, with what was wrong, at most `max_corrections` times.

    Raises:
        LLMToolCallMissing: (from `stream`) the demanded call never came.
    """

    def __init__(
        self, model: Model, mode: ToolMode, *, max_corrections: int = MAX_CORRECTIONS
    ) -> None:
        """Wrap a model; it is closed together with this one."""
        self._model = model
        self._mode: ToolMode = mode
        self._max_corrections = max_corrections

    @property
    def info(self) -> ModelInfo:
        """What is known about the wrapped model, with this tool mode."""
        return msgspec.structs.replace(self._model.info, tool_mode=self._mode)

    def count_tokens(self, request: ModelRequest) -> int:
        """Count what will really be sent: instructions and texts instead of tools."""
        return self._model.count_tokens(self._prepared(request))

    async def close(self) -> None:
        """Close the wrapped model."""
        await self._model.close()

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask, read the calls out of the answer, and correct the model where needed."""
        if not request.tools and (self._mode == "native" or request.output_schema is None):
            async with aclosing(_opened(self._model, self._prepared(request), deltas)) as plain:
                async for delta in plain:
                    yield delta
            return
        is_strict = must_call(request)
        spent = TokenUsage()
        complaint = ""
        prepared = self._prepared(request)
        for attempt in range(1 + self._max_corrections):
            # What may be taken back is not shown: neither demanded calls nor corrections.
            is_shown = deltas and attempt == 0 and not is_strict and self._mode != "json_schema"
            gate = _Gate()
            finished: Finished | None = None
            async with aclosing(_opened(self._model, prepared, is_shown)) as answer:
                async for delta in answer:
                    if isinstance(delta, Finished):
                        finished = delta
                    elif isinstance(delta, TextDelta):
                        for text in gate.pass_on(delta.text):
                            yield TextDelta(text)
                    else:
                        gate.is_open = gate.is_open or isinstance(delta, ToolCallDelta)
                        yield delta
            if finished is None:
                raise LLMProtocolError(provider=self.info.provider, detail="no end of the answer")
            reading = self._read(request, finished.message)
            spent = spent + (finished.message.usage or TokenUsage())
            complaint = reading.complaint
            is_last = attempt == self._max_corrections
            if not complaint or (is_last and not is_strict):
                message = msgspec.structs.replace(reading.message, usage=spent)
                if deltas:
                    for late in _late_deltas(message, gate, is_shown, reading.is_rescued):
                        yield late
                yield Finished(message, finished.request_id)
                return
            prepared = _corrected(prepared, finished.message, complaint)
        raise LLMToolCallMissing(
            provider=self.info.provider,
            model=self.info.model,
            attempts=1 + self._max_corrections,
            detail=complaint,
        )

    def _prepared(self, request: ModelRequest) -> ModelRequest:
        return request if self._mode == "native" else rewrite(request, self._mode)

    def _read(self, request: ModelRequest, message: Message) -> _Reading:
        tools = allowed_tools(request)
        if message.tool_calls:
            return _Reading(message, _complaint_about(message.tool_calls, tools))
        text = message.text
        only = tools[0].name if must_call(request) and len(tools) == 1 else ""
        is_whole = self._mode == "native" and not must_call(request)
        calls = rescue_calls(text, tools, only=only, whole=is_whole)
        if calls:
            return _Reading(_with_calls(message, calls), _problems_of(calls), is_rescued=True)
        if must_call(request):
            return _Reading(message, "no tool was called, but one must be called now")
        if self._mode == "native":
            return _Reading(message)
        return _with_answer(message, request.output_schema, has_tools=bool(tools))


class _Gate:
    """Holds text back while it may still turn out to be a tool call."""

    def __init__(self) -> None:
        self.held = ""
        self.is_open = False

    def pass_on(self, text: str) -> list[str]:
        if self.is_open:
            return [text]
        self.held += text
        if looks_like_call(self.held):
            return []
        self.is_open = True
        return [self.held]


def _opened(model: Model, request: ModelRequest, deltas: bool) -> AsyncIterator[Delta]:
    return model.stream(request, deltas=deltas)


def _with_calls(message: Message, calls: list[RescuedCall]) -> Message:
    parts: list[Part] = [part for part in message.parts if not isinstance(part, TextPart)]
    parts += [
        ToolPart(call_id=new_id("call"), tool=call.tool, input=call.arguments) for call in calls
    ]
    return msgspec.structs.replace(
        message,
        parts=tuple(parts),
        stop_reason="tool_calls",
        metadata={**message.metadata, "tool_call_rescued": True},
    )


def _with_answer(message: Message, schema: JsonObject | None, *, has_tools: bool) -> _Reading:
    """Unwrap `{"answer": …}`; check it where a schema was asked for."""
    try:
        value: object = parse_value(_unfenced(message.text))
    except ValueError:
        return _Reading(message, "the answer is no JSON" if schema is not None else "")
    if has_tools and isinstance(value, dict) and set(value) == {"answer"}:
        value = value["answer"]
    elif schema is None:
        return _Reading(message)
    if schema is not None:
        wrong = problems(value, schema)
        if wrong:
            return _Reading(message, "the answer does not fit its schema: " + "; ".join(wrong[:5]))
    text = value if isinstance(value, str) and schema is None else _json(value)
    kept: list[Part] = [part for part in message.parts if not isinstance(part, TextPart)]
    return _Reading(msgspec.structs.replace(message, parts=(*kept, TextPart(text=text))))


def _unfenced(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith("```") and "\n" in stripped:
        return stripped.partition("\n")[2].removesuffix("```").strip()
    return stripped


def _problems_of(calls: list[RescuedCall]) -> str:
    told = [f"{call.tool}: {'; '.join(call.problems[:5])}" for call in calls if call.problems]
    return "the arguments do not fit: " + " / ".join(told) if told else ""


def _complaint_about(calls: tuple[ToolPart, ...], tools: tuple[ToolSpec, ...]) -> str:
    offered = {tool.name: tool for tool in tools}
    for call in calls:
        if call.tool not in offered:
            return f"there is no tool {call.tool[:80]!r}; there are: {', '.join(offered) or 'none'}"
        if call.raw_input:
            return f"the arguments of {call.tool} are no JSON object"
        wrong = problems(call.input, offered[call.tool].parameters)
        if wrong:
            return f"the arguments of {call.tool} do not fit: {'; '.join(wrong[:5])}"
    return ""


def _corrected(request: ModelRequest, answer: Message, complaint: str) -> ModelRequest:
    """Add what the model wrote and what was wrong with it; calls go back as text."""
    told = answer.text or " ".join(
        _json({"tool": call.tool, "arguments": call.input}) for call in answer.tool_calls
    )
    wrote = msgspec.structs.replace(
        answer, parts=(TextPart(text=told or "(nothing)"),), stop_reason="stop"
    )
    correction = Message(
        id=new_id("msg"),
        session_id=answer.session_id,
        role="user",
        parts=(TextPart(text=f"That cannot be used: {complaint}. Try again.", is_synthetic=True),),
    )
    return msgspec.structs.replace(request, messages=(*request.messages, wrote, correction))


def _late_deltas(message: Message, gate: _Gate, is_shown: bool, is_rescued: bool) -> list[Delta]:
    """What the listener has not seen yet: held text, or calls that were found in it."""
    found: list[Delta] = []
    if not is_shown or not gate.is_open:
        if message.text:
            found.append(TextDelta(message.text))
    if is_rescued or not is_shown:
        for index, call in enumerate(message.tool_calls):
            found.append(ToolCallDelta(index, call.call_id, call.tool, _json(call.input)))
    return found


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


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
        if any(call.tool == PROBE_TOOL.name and call.input == {"value": 7} for call in calls):
            return ToolModeProbe(mode, True, tuple(failures))
        failures.append(f"{mode}: no correct call")
    return ToolModeProbe("prompted", False, tuple(failures))


async def _probe_once(wrapped: ToolModeModel, mode: ToolMode) -> tuple[ToolPart, ...]:
    asked = Message(
        id=new_id("msg"),
        session_id="",
        role="user",
        parts=(TextPart(text="Call the tool report_number with the value 7."),),
    )
    request = ModelRequest(
        messages=(asked,),
        tools=(PROBE_TOOL,),
        # Some servers refuse `required` although their models can call tools.
        tool_choice="auto" if mode == "native" else "required",
        temperature=0.0,
        max_output_tokens=200,
    )
    message: Message | None = None
    async with aclosing(_opened(wrapped, request, False)) as answer:
        async for delta in answer:
            if isinstance(delta, Finished):
                message = delta.message
    return message.tool_calls if message is not None else ()
