"""Tool calling for weak models: by native tools, by a schema, or by words."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import LLMProtocolError, LLMToolCallMissing
from holdfast.ids import make_id
from holdfast.messages import Message, Part, TextPart, TokenUsage, ToolPart, ToolSpec
from holdfast.providers.claims import find_claimed_tool
from holdfast.providers.json_schema import list_problems
from holdfast.providers.model import (
    Delta,
    Finished,
    Model,
    ModelInfo,
    ModelRequest,
    ModelWrapper,
    OpenedStream,
    Restarted,
    TextDelta,
    ToolCallDelta,
    ToolMode,
)
from holdfast.providers.rescue import (
    RescuedCall,
    drop_thoughts,
    find_json,
    looks_like_call,
    rescue_calls,
)
from holdfast.providers.short_tools import shorten_tools
from holdfast.providers.tool_prompt import (
    add_correction,
    call_schema,
    must_call,
    rewrite,
    select_allowed_tools,
)

MAX_CORRECTIONS = 2
CLAIMED = "claimed_not_called"
"""In the metadata of an answer: the tool that it says was used, though none was called."""


class _Reading(NamedTuple):
    """What an answer turned out to be; `complaint` says why it cannot be taken."""

    message: Message
    complaint: str = ""
    claimed: str = ""
    """The tool that it says was used, though it was not."""
    is_repeated: bool = False
    """Whether it only asks for what it has just been given."""


class ToolModeModel(ModelWrapper):
    """Another model, asked for tool calls in the way that it can answer.

    `native` passes tools through; `json_schema` makes the answer's schema demand a call;
    `prompted` asks in words, with an example. In every mode a call that came as text is
    rescued, its name and arguments are checked, and a call that was demanded but did not
    come is asked for again, with what was wrong, at most `max_corrections` times. An answer
    that only says that a tool was used is asked about once, then marked (`CLAIMED`). A call
    whose result the model has just read is not made again; it is asked for its answer. In a
    small window, tools are said in few words, and only those that matter.

    Raises:
        LLMToolCallMissing: (from `stream`) the demanded call never came.
    """

    def __init__(
        self,
        model: Model,
        mode: ToolMode,
        *,
        max_corrections: int = MAX_CORRECTIONS,
        window: int = 0,
    ) -> None:
        """Wrap a model, which is closed with this one; `window` is what its server really takes."""
        super().__init__(model)
        self._window = window
        self._mode: ToolMode = mode
        self._max_corrections = max_corrections

    @property
    def info(self) -> ModelInfo:
        """What is known about the wrapped model, with this tool mode."""
        info = self.inner.info
        window = min(self._window or info.context_window, info.context_window)
        return msgspec.structs.replace(info, tool_mode=self._mode, context_window=window)

    def count_tokens(self, request: ModelRequest) -> int:
        """Count what will really be sent: instructions and texts instead of tools."""
        short = shorten_tools(request, self.info.context_window)
        return self.inner.count_tokens(self._prepare(short))

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask, read the calls out of the answer, and correct the model where needed."""
        request = shorten_tools(request, self.info.context_window)
        prepared = self._prepare(request)
        if not request.tools and (self._mode == "native" or request.output_schema is None):
            async with OpenedStream(self.inner, prepared, deltas) as plain:
                async for delta in plain:
                    yield delta
            return
        is_strict = must_call(request)
        spent: TokenUsage | None = None
        complaint = ""
        has_asked = False
        for attempt in range(1 + self._max_corrections):
            # What may be taken back is not shown: neither demanded calls nor corrections.
            is_shown = deltas and attempt == 0 and not is_strict and self._mode != "json_schema"
            gate = _Gate(is_shown=is_shown)
            async with aclosing(self._ask(prepared, gate)) as shown:
                async for delta in shown:
                    yield delta
            finished = gate.finished
            if finished is None:
                raise LLMProtocolError(provider=self.info.provider, detail="no end of the answer")
            reading = self._read(request, finished.message)
            if attempt < self._max_corrections:
                reading = self._check_again(reading, request, has_asked)
                has_asked = has_asked or bool(reading.claimed)
            if reading.claimed and not reading.complaint:
                reading = reading._replace(message=_mark_claim(reading))
            used = finished.message.usage
            # Nothing reported is not nothing used: it is estimated above.
            spent = used if spent is None else spent + (used or TokenUsage())
            complaint = reading.complaint
            is_changed = reading.message.parts is not finished.message.parts
            if gate.has_shown and (complaint or is_changed):
                # The listener saw a text that is not the answer.
                yield Restarted(LLMToolCallMissing.code, self.info.provider, self.info.model)
            if not complaint or (attempt == self._max_corrections and not is_strict):
                message = reading.message
                if message.usage is not spent:
                    message = msgspec.structs.replace(message, usage=spent)
                for late in _list_late_deltas(message, gate, is_changed) if deltas else ():
                    yield late
                yield Finished(message, finished.request_id)
                return
            prepared = _correct(prepared, finished.message, reading, request)
        raise LLMToolCallMissing(
            provider=self.info.provider,
            model=self.info.model,
            attempts=1 + self._max_corrections,
            detail=complaint,
        )

    async def _ask(self, request: ModelRequest, gate: _Gate) -> AsyncGenerator[Delta, None]:
        """Ask once; yield what may be shown, and leave the end of the answer in the gate."""
        async with OpenedStream(self.inner, request, gate.is_shown) as answer:
            async for delta in answer:
                if isinstance(delta, Finished):
                    gate.finished = delta
                elif isinstance(delta, TextDelta):
                    text = gate.pass_on(delta.text)
                    if text:
                        yield TextDelta(text)
                else:
                    if isinstance(delta, Restarted):
                        gate.restart()
                    yield delta

    def _check_again(self, reading: _Reading, request: ModelRequest, has_asked: bool) -> _Reading:
        """Add what the model is to be asked about, though the answer could be taken."""
        if reading.claimed and not has_asked:
            return reading._replace(complaint=_ask_about(reading.claimed))
        if self._mode == "native" or must_call(request):
            return reading
        return _refuse_repeat(reading, request.messages)

    def _prepare(self, request: ModelRequest) -> ModelRequest:
        return request if self._mode == "native" else rewrite(request, self._mode)

    def _read(self, request: ModelRequest, message: Message) -> _Reading:
        tools = select_allowed_tools(request)
        if message.tool_calls:
            # A free call that does not fit is told to the model by the tool itself.
            wrong = _format_complaint(message.tool_calls, tools) if must_call(request) else ""
            return _Reading(message, wrong)
        text = message.text
        only = tools[0].name if must_call(request) and len(tools) == 1 else ""
        is_whole = self._mode == "native" and not must_call(request)
        calls = rescue_calls(text, tools, only=only, whole=is_whole)
        if calls:
            return _Reading(_with_calls(message, calls), _describe_problems(calls))
        if must_call(request):
            return _Reading(message, "no tool was called, but one must be called now")
        reading = _Reading(message)
        if self._mode != "native":
            reading = _with_answer(message, request.output_schema, has_tools=bool(tools))
        if reading.complaint or request.output_schema is not None:
            return reading
        claimed = find_claimed_tool(reading.message.text, tools, request.messages)
        return reading._replace(claimed=claimed or "")


class _Gate:
    """Holds text back while it may still turn out to be a tool call."""

    def __init__(self, *, is_shown: bool) -> None:
        self.is_shown = is_shown
        self.has_shown = False
        self.finished: Finished | None = None
        self._held = ""

    def pass_on(self, text: str) -> str:
        """Return what may be shown now."""
        if self.has_shown:
            return text
        self._held += text
        if looks_like_call(self._held):
            return ""
        self.has_shown = True
        return self._held

    def restart(self) -> None:
        """The answer begins anew."""
        self.has_shown = False
        self._held = ""


def _with_calls(message: Message, calls: list[RescuedCall]) -> Message:
    parts: list[Part] = [part for part in message.parts if not isinstance(part, TextPart)]
    parts += [
        ToolPart(call_id=make_id("call"), tool=call.tool, input=call.arguments) for call in calls
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
        value = find_json(message.text)
    except ValueError:
        is_meant = schema is not None or drop_thoughts(message.text).lstrip().startswith("{")
        return _Reading(message, "it is no valid JSON" if is_meant else "")
    if has_tools and isinstance(value, dict) and set(value) == {"answer"}:
        value = value["answer"]
    elif schema is None:
        return _Reading(message)
    if schema is not None:
        wrong = list_problems(value, schema)
        if wrong:
            return _Reading(message, "the answer does not fit its schema: " + "; ".join(wrong[:5]))
    text = value if isinstance(value, str) and schema is None else _parse_json(value)
    kept: list[Part] = [part for part in message.parts if not isinstance(part, TextPart)]
    return _Reading(msgspec.structs.replace(message, parts=(*kept, TextPart(text=text))))


def _ask_about(tool: str) -> str:
    return f"it says that {tool} was used, but no tool was called; call it now, or answer without"


def _mark_claim(reading: _Reading) -> Message:
    metadata = {**reading.message.metadata, CLAIMED: reading.claimed}
    return msgspec.structs.replace(reading.message, metadata=metadata)


def _refuse_repeat(reading: _Reading, messages: Sequence[Message]) -> _Reading:
    """Ask for an answer where a weak model makes the call again whose result it has just read."""
    calls = reading.message.tool_calls
    if reading.complaint or not calls or not messages or messages[-1].role != "tool":
        return reading
    given = [part for part in messages[-1].tool_calls if part.state == "completed"]
    if not all(
        any((one.tool, one.input) == (call.tool, call.input) for one in given) for call in calls
    ):
        return reading
    told = f"{calls[0].tool} was called with this already; answer now with what it gave"
    return reading._replace(complaint=told, is_repeated=True)


def _correct(
    prepared: ModelRequest, answer: Message, reading: _Reading, request: ModelRequest
) -> ModelRequest:
    """Return the next try: what was wrong with the last one, and no call where one is repeated."""
    corrected = add_correction(prepared, answer, reading.complaint)
    if not reading.is_repeated or prepared.output_schema is None:
        return corrected
    only_answer = call_schema((), needs_call=False, answer=request.output_schema)
    return msgspec.structs.replace(corrected, output_schema=only_answer)


def _describe_problems(calls: list[RescuedCall]) -> str:
    told = [f"{call.tool}: {'; '.join(call.problems[:5])}" for call in calls if call.problems]
    return "the arguments do not fit: " + " / ".join(told) if told else ""


def _format_complaint(calls: tuple[ToolPart, ...], tools: tuple[ToolSpec, ...]) -> str:
    offered = {tool.name: tool for tool in tools}
    for call in calls:
        if call.tool not in offered:
            return f"there is no tool {call.tool[:80]!r}; there are: {', '.join(offered) or 'none'}"
        if call.raw_input:
            return f"the arguments of {call.tool} are no JSON object"
        wrong = list_problems(call.input, offered[call.tool].parameters)
        if wrong:
            return f"the arguments of {call.tool} do not fit: {'; '.join(wrong[:5])}"
    return ""


def _list_late_deltas(message: Message, gate: _Gate, is_changed: bool) -> list[Delta]:
    """What the listener has not seen yet: held text, or what was found in the text."""
    found: list[Delta] = []
    if message.text and (not gate.has_shown or is_changed):
        found.append(TextDelta(message.text))
    if is_changed or not gate.is_shown:
        for index, call in enumerate(message.tool_calls):
            found.append(ToolCallDelta(index, call.call_id, call.tool, _parse_json(call.input)))
    return found


def _parse_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
