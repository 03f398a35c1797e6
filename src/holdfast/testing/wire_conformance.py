"""What every model behind the `Model` protocol must do, whichever server answers.

Each check is an async function that takes a `Model` and raises `AssertionError`. The
checks ask for behaviour only, never for words, so they hold for a fake server and for
a real model alike. What a server cannot do is declared with `Ability`, never sniffed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import TypeAlias

import msgspec

from holdfast.errors import LLMError
from holdfast.ids import make_id
from holdfast.messages import FilePart, Message, Part, TextPart, ToolPart, ToolSpec
from holdfast.providers import Delta, Finished, Model, ModelRequest, TextDelta, ToolCallDelta

_STOPS = ("stop", "length", "tool_calls", "filtered")
_LIMIT = 64
_TOOL = ToolSpec(
    name="multiply",
    description="Multiply two whole numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
)
_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "inhabitants": {"type": "integer"}},
    "required": ["city", "inhabitants"],
}
_PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360606060000000050001a5f645400000000049454e44ae426082"
)


class Ability(Enum):
    """What a server may lack."""

    TOOLS = "tools"
    FORCED_TOOLS = "forced_tools"
    JSON_SCHEMA = "json_schema"
    LIMIT = "limit"
    IMAGES = "images"
    USAGE = "usage"
    CHECKS = "checks"


Check: TypeAlias = Callable[[Model], Awaitable[None]]


async def answers_while_it_streams(model: Model) -> None:
    """Pieces join to the text of the finished message, which comes last."""
    deltas = await _collect(model, _ask("Say hello."), deltas=True)
    message = _make_finished(deltas)
    text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert text == "".join(p.text for p in message.parts if isinstance(p, TextPart))
    assert text, "the answer is empty"


async def answers_without_a_listener(model: Model) -> None:
    """Only the finished message comes."""
    deltas = await _collect(model, _ask("Say hello."), deltas=False)
    assert len(deltas) == 1
    message = _make_finished(deltas)
    assert message.text
    assert message.role == "assistant" and message.id and message.provider and message.model


async def counts_tokens(model: Model) -> None:
    """Input and output are counted, streamed and not."""
    for listens in (True, False):
        usage = _make_finished(await _collect(model, _ask("Say hello."), deltas=listens)).usage
        assert usage is not None
        assert usage.input + usage.cache_read > 0
        assert usage.output + usage.reasoning > 0


async def stops_at_the_limit(model: Model) -> None:
    """An answer that was cut off says so."""
    request = msgspec.structs.replace(_ask("Count from one to ten."), max_output_tokens=1)
    for listens in (True, False):
        message = _make_finished(await _collect(model, request, deltas=listens))
        assert message.stop_reason == "length", message


async def calls_a_demanded_tool(model: Model) -> None:
    """A forced call comes with a name, an id and arguments, streamed and not."""
    for listens in (True, False):
        deltas = await _collect(model, _demand(), deltas=listens)
        message = _make_finished(deltas)
        assert message.stop_reason == "tool_calls", message
        call = message.tool_calls[0]
        assert call.tool == "multiply" and call.call_id and call.state == "pending"
        assert set(call.input) == {"a", "b"}, call
        if listens:
            pieces = [d for d in deltas if isinstance(d, ToolCallDelta)]
            assert pieces[0].name == "multiply"
            first = "".join(d.arguments for d in pieces if d.index == pieces[0].index)
            assert msgspec.json.decode(first) == call.input


async def takes_tool_results(model: Model) -> None:
    """Results of two parallel calls, one of them an error, are taken back."""
    calls = (
        ToolPart(call_id="call_a", tool="multiply", input={"a": 2, "b": 3}),
        ToolPart(call_id="call_b", tool="multiply", raw_input='{"a": 2, "b":'),
    )
    results = (
        ToolPart(call_id="call_a", tool="multiply", state="completed", output="6"),
        ToolPart(call_id="call_b", tool="multiply", state="error", error="no JSON"),
    )
    request = ModelRequest(
        messages=(
            _parse_message("user", TextPart(text="What is 2 times 3?")),
            _parse_message("assistant", TextPart(text="Let me see."), *calls),
            _parse_message("tool", results[0]),
            _parse_message("tool", results[1]),
            _parse_message("user", TextPart(text="Now answer in words.")),
        ),
        system="Be brief.",
        tools=(_TOOL,),
        max_output_tokens=_LIMIT,
    )
    for listens in (True, False):
        message = _make_finished(await _collect(model, request, deltas=listens))
        assert message.stop_reason in _STOPS


async def fills_a_schema(model: Model) -> None:
    """Structured output is JSON that has the fields of the schema."""
    request = msgspec.structs.replace(_ask("Name a city."), output_schema=_SCHEMA)
    for listens in (True, False):
        message = _make_finished(await _collect(model, request, deltas=listens))
        data = msgspec.json.decode(message.text)
        assert isinstance(data["city"], str) and isinstance(data["inhabitants"], int)


async def looks_at_an_image(model: Model) -> None:
    """An inline image is taken."""
    image = FilePart(media_type="image/png", data=_PIXEL, name="pixel.png")
    messages = (_parse_message("user", TextPart(text="What is this?"), image),)
    request = ModelRequest(messages=messages, max_output_tokens=_LIMIT)
    assert _make_finished(await _collect(model, request, deltas=True)).stop_reason in _STOPS


async def refuses_nonsense(model: Model) -> None:
    """A result without its call is a clear error, and the next request works again."""
    orphan = ToolPart(call_id="call_x", tool="multiply", state="completed", output="6")
    messages = (_parse_message("user", TextPart(text="Hello.")), _parse_message("tool", orphan))
    request = ModelRequest(messages=messages, tools=(_TOOL,), max_output_tokens=_LIMIT)
    try:
        await _collect(model, request, deltas=True)
    except LLMError as error:
        assert error.code == "llm.bad_request", error.code
    else:
        raise AssertionError("a tool result without call was taken")
    await answers_while_it_streams(model)


async def serves_many_at_once(model: Model) -> None:
    """Answers of calls that run together are not mixed."""
    asked = (_collect(model, _ask("Say hello."), deltas=bool(n % 2)) for n in range(4))
    for deltas in await asyncio.gather(*asked):
        _make_finished(deltas)


async def can_be_left(model: Model) -> None:
    """Leaving an answer half-way does no harm to the next one."""
    async for _ in model.stream(_ask("Say hello."), deltas=True):
        break
    await answers_while_it_streams(model)


CHECKS: dict[Check, frozenset[Ability]] = {
    answers_while_it_streams: frozenset(),
    answers_without_a_listener: frozenset(),
    counts_tokens: frozenset({Ability.USAGE}),
    stops_at_the_limit: frozenset({Ability.LIMIT}),
    calls_a_demanded_tool: frozenset({Ability.FORCED_TOOLS}),
    takes_tool_results: frozenset({Ability.TOOLS}),
    fills_a_schema: frozenset({Ability.JSON_SCHEMA}),
    looks_at_an_image: frozenset({Ability.IMAGES}),
    refuses_nonsense: frozenset({Ability.CHECKS}),
    serves_many_at_once: frozenset(),
    can_be_left: frozenset(),
}
"""Every check with the abilities that it needs."""


def _parse_message(role: str, *parts: Part) -> Message:
    return msgspec.convert(
        {"id": make_id("msg"), "session_id": "s", "role": role, "parts": parts}, Message
    )


def _ask(text: str) -> ModelRequest:
    messages = (_parse_message("user", TextPart(text=text)),)
    return ModelRequest(messages=messages, max_output_tokens=_LIMIT, temperature=0.0)


def _demand() -> ModelRequest:
    return msgspec.structs.replace(
        _ask("What is 15 times 23? Use the tool."), tools=(_TOOL,), tool_choice="required"
    )


async def _collect(model: Model, request: ModelRequest, *, deltas: bool) -> list[Delta]:
    return [delta async for delta in model.stream(request, deltas=deltas)]


def _make_finished(deltas: list[Delta]) -> Message:
    assert deltas, "nothing came"
    assert [isinstance(delta, Finished) for delta in deltas].count(True) == 1
    last = deltas[-1]
    assert isinstance(last, Finished)
    assert last.message.stop_reason in _STOPS
    return last.message
