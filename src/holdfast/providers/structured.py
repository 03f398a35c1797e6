"""Answers of a schema from servers that may not obey one.

Some servers take a schema and ignore it: llama.cpp's `/responses` does where its
`/chat/completions` obeys. So what comes back is checked, and where it does not fit the next way is
tried: Responses, chat, and at last the schema in words, with what was wrong told to the model. The
way that worked is remembered by address and model.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import LLMBadRequest, LLMProtocolError
from holdfast.messages import Message, Part, TextPart, TokenUsage
from holdfast.providers.endpoint_memory import EndpointMemory, SchemaWay
from holdfast.providers.json_schema import list_problems
from holdfast.providers.model import (
    Delta,
    Finished,
    Model,
    ModelRequest,
    ModelWrapper,
    OpenedStream,
    Restarted,
)
from holdfast.providers.rescue import find_json
from holdfast.providers.tool_prompt import add_correction

_TRIES_IN_WORDS = 3


class StructuredOutputModel(ModelWrapper):
    """A model whose answers fit the schema that was asked for, as far as it can be brought to it.

    An answer that fits in no way comes as it is: its reader checks it too, and says so.
    """

    def __init__(
        self, model: Model, ways: Mapping[SchemaWay, Model], memory: EndpointMemory, base_url: str
    ) -> None:
        """Ask `model` for all else; `ways` are the APIs that take a schema, the best one first."""
        super().__init__(model)
        self._ways: tuple[tuple[SchemaWay, Model], ...] = (*ways.items(), ("prompted", model))
        self._memory = memory
        self._place = (base_url, model.info.model)

    async def stream(self, request: ModelRequest, *, deltas: bool = True) -> AsyncIterator[Delta]:
        """Ask in the way that is known to work, and go on to the next one where it does not."""
        if request.output_schema is None:
            async with OpenedStream(self.inner, request, deltas) as plain:
                async for delta in plain:
                    yield delta
            return
        known = self._memory.find_schema_way(*self._place)
        tries = self._list_tries(known)
        spent: TokenUsage | None = None
        asked, before = request, ""
        for number, (way, model) in enumerate(tries):
            if way == "prompted" != before:
                asked = put_schema_in_words(request)
            before = way
            got = _Got()
            # What may be taken back is not shown.
            async with aclosing(_ask(model, asked, got, deltas and way == known)) as shown:
                async for delta in shown:
                    yield delta
            if got.finished is None:
                continue  # it does not take this schema
            message = got.finished.message
            used = message.usage
            spent = used if spent is None else spent + (used or TokenUsage())
            fitted, wrong = _fit(message, request.output_schema)
            # Neither a longer answer nor another mind is had by asking again.
            is_final = message.stop_reason == "length" or message.refusal is not None
            is_taken = not wrong or is_final or number == len(tries) - 1
            if got.has_shown and (fitted is not message or not is_taken):
                yield Restarted(LLMProtocolError.code, self.info.provider, self.info.model)
            if is_taken:
                if not wrong and not message.tool_calls and way != known:
                    self._memory.set_schema_way(*self._place, way)
                if fitted.usage is not spent:
                    fitted = msgspec.structs.replace(fitted, usage=spent)
                yield Finished(fitted, got.finished.request_id)
                return
            asked = add_correction(asked, message, wrong) if way == "prompted" else request

    def _list_tries(self, known: SchemaWay | None) -> list[tuple[SchemaWay, Model]]:
        """Return the ways in order, the known one first; words are tried several times."""
        order = sorted(self._ways, key=lambda one: one[0] != known)
        return [one for one in order for _ in range(_TRIES_IN_WORDS if one[0] == "prompted" else 1)]


class _Got(msgspec.Struct):
    """What came of one try."""

    finished: Finished | None = None
    has_shown: bool = False


async def _ask(
    model: Model, request: ModelRequest, got: _Got, is_shown: bool
) -> AsyncGenerator[Delta, None]:
    """Ask once; yield what may be shown, and leave the end of the answer in `got`."""
    try:
        async with OpenedStream(model, request, is_shown) as answer:
            async for delta in answer:
                if isinstance(delta, Finished):
                    got.finished = delta
                else:
                    got.has_shown = True
                    yield delta
    except LLMBadRequest:
        if request.output_schema is None:
            raise


def put_schema_in_words(request: ModelRequest) -> ModelRequest:
    """Return a request that tells its schema in the instructions instead of beside them."""
    schema = msgspec.json.encode(request.output_schema).decode()
    when = "When you give your answer, write" if request.tools else "Answer with"
    told = f"{when} one JSON object of this schema and nothing else:\n{schema}"
    system = f"{request.system}\n\n{told}" if request.system else told
    return msgspec.structs.replace(request, system=system, output_schema=None)


def _fit(message: Message, schema: JsonObject) -> tuple[Message, str]:
    """Return the answer with its JSON alone, and what is wrong with it."""
    if message.tool_calls:
        return message, ""
    try:
        value = find_json(message.text)
    except ValueError:
        return message, "it is no valid JSON"
    wrong = list_problems(value, schema)
    if wrong:
        return message, "it does not fit the schema: " + "; ".join(wrong[:5])
    try:
        is_bare = msgspec.json.decode(message.text) == value
    except msgspec.DecodeError:
        is_bare = False
    if is_bare:
        return message, ""
    kept: list[Part] = [part for part in message.parts if not isinstance(part, TextPart)]
    text = TextPart(text=msgspec.json.encode(value).decode())
    return msgspec.structs.replace(message, parts=(*kept, text)), ""


__all__ = ["StructuredOutputModel", "put_schema_in_words"]
