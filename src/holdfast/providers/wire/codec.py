"""What the three APIs have in common: the codec protocol, encoded messages, answers."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from typing import Annotated, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.canonical import JsonObject, digest
from holdfast.errors import LLMBadRequest, LLMError, LLMProtocolError
from holdfast.ids import new_id
from holdfast.messages import (
    CompactionPart,
    FilePart,
    Part,
    ReasoningPart,
    TextPart,
    TokenUsage,
    ToolPart,
)
from holdfast.providers.model import Delta, ModelRequest, ReasoningDelta, TextDelta, ToolCallDelta
from holdfast.providers.wire.repeats import Pieces

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What decoding foreign JSON may raise."""

MAX_TOOL_CALLS = 512
"""More calls in one answer than any model means to make."""

CUT = ("length", "filtered")
"""Stop reasons of an answer that does not end where the model would have ended it."""

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=10**12)] | None
"""A token count as servers should send it; see `count` for all that they do send."""

# Asked for every call of a conversation, and so without a function around it.
is_sendable_name = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch
"""Says whether every API takes a name; Anthropic takes only such ids as well."""
is_sendable_id = re.compile(r"[!-~]{1,64}").fullmatch
"""Says whether the APIs of OpenAI take the id of a call."""
_ODD = re.compile(r"[^A-Za-z0-9_-]")

_HEX = rb"[0-9A-Fa-f]"
_ESCAPE = re.compile(
    rb"\\(?:u[Dd][89ABab]%b{2}\\u[Dd][C-Fc-f]%b{2}|u%b{4}|.)" % (_HEX, _HEX, _HEX), re.DOTALL
)
_HALF = re.compile(rb"\\u[Dd][89A-Fa-f]%b{2}" % _HEX)

_S = TypeVar("_S")
_T = TypeVar("_T")
_decode_any = msgspec.json.Decoder().decode
encode_json = msgspec.json.Encoder().encode


class Answer(msgspec.Struct, frozen=True, gc=False):
    """A whole answer, whichever way it came."""

    parts: tuple[Part, ...]
    stop_reason: str
    usage: TokenUsage | None
    response_id: str
    model: str
    metadata: JsonObject


class StreamDecoder(Protocol):
    """Puts one streamed answer together."""

    done: bool
    """The API's end mark was seen; what follows does not matter."""
    begun: bool
    """A piece of the answer was seen, so the first-token limit no longer counts."""

    def feed(self, events: list[bytes], out: list[Delta] | None) -> None:
        """Take events in order; append what is said to `out` if somebody listens.

        Raises:
            LLMError: an event reports a failure, or cannot be read.
        """
        ...

    def finish(self) -> Answer:
        """Return the whole answer.

        Raises:
            LLMProtocolError: the stream ended before the answer did.
        """
        ...


class Codec(Protocol):
    """One API of one model: requests to bytes, bytes to answers."""

    path: str
    headers: dict[str, str]

    def encode(self, request: ModelRequest, *, stream: bool) -> bytes:
        """Return the body of a request; each message is encoded once in its life."""
        ...

    def decoder(self) -> StreamDecoder:
        """Return a decoder for one streamed answer."""
        ...

    def decode(self, body: bytes) -> Answer:
        """Return the answer that came as one body.

        Raises:
            LLMError: the body reports a failure, or cannot be read.
        """
        ...


class CallPieces(msgspec.Struct, eq=False):
    """A tool call whose arguments arrive in pieces."""

    call_id: str
    name: str
    pieces: Pieces = msgspec.field(default_factory=Pieces)


def tool_part(provider: str, call_id: str, name: str, arguments: str) -> ToolPart:
    """Return a call whose arguments are text; text that is no object stays in `raw_input`.

    Raises:
        LLMProtocolError: the call has no name, so nobody can know what is meant.
    """
    if not name:
        raise LLMProtocolError(provider=provider, detail="a tool call has no name")
    call_id = call_id or new_id("call")
    if not arguments.strip():
        return ToolPart(call_id=call_id, tool=name)
    try:
        value = _decode_any(arguments)
    except UNREADABLE:
        value = None
    if isinstance(value, dict):
        return ToolPart(call_id=call_id, tool=name, input=value)
    return ToolPart(call_id=call_id, tool=name, raw_input=arguments)


def call_input(part: ToolPart) -> JsonObject:
    """Return the arguments to send back; text that was no JSON goes back as a field.

    Servers parse the arguments of earlier calls (Anthropic as an object, many local
    ones in the chat template), so broken text would break every later request too.
    """
    return {"invalid_arguments": part.raw_input} if part.raw_input else part.input


def sent_name(name: str) -> str:
    """Return the name of a call to send back where it is no `is_sendable_name`.

    Models make up names such as `functions.read`. The call fails, but it stays in the
    conversation, and servers refuse every later request that holds such a name.
    """
    return _ODD.sub("_", name)[:64] or "_"


def sent_id(call_id: str) -> str:
    """Return an id to send back, with a call and its result, in place of one that is refused.

    Servers make up ids that others refuse: with odd characters, or too long.
    """
    return f"call_{digest(call_id)[:24]}"


def mend_halves(event: bytes, half: bytes) -> tuple[bytes, bytes]:
    """Return an event without half characters, and the half that waits for its other one.

    Servers that cut texts by UTF-16 send the halves of an emoji in two events, which is no
    JSON that can be read. The first half waits; one that comes alone is a mark of what is lost.
    """

    def whole(found: re.Match[bytes]) -> bytes:
        nonlocal half
        escape = found[0]
        if not _HALF.fullmatch(escape):
            return escape
        if escape[3:4] in b"89ABab":
            half = escape
            return b""
        before, half = half, b""
        return before + escape if before else b"\\ufffd"

    return _ESCAPE.sub(whole, event), half


class Halves(msgspec.Struct, gc=False):
    """Decodes the events of a stream in which a character may come in two halves."""

    _half: bytes = b""

    def decode(
        self,
        decode: Callable[[bytes], _T],
        event: bytes,
        unreadable: Callable[[Exception], LLMError],
    ) -> _T:
        """Return what an event says that cannot be read as it is, perhaps for a half in it.

        Raises what `unreadable` makes of the error.
        """
        try:
            return decode(event)
        except UNREADABLE as error:
            mended, self._half = mend_halves(event, self._half)
            try:
                return decode(mended)
            except UNREADABLE:
                raise unreadable(error) from None


def decode_whole(decode: Callable[[bytes], _T], body: bytes) -> _T:
    """Decode an answer that came as one body; half characters in it are mended.

    Raises:
        msgspec.MsgspecError, RecursionError, UnicodeDecodeError: it cannot be read.
    """
    try:
        return decode(body)
    except UNREADABLE:
        return decode(mend_halves(body, b"")[0])


def result_text(part: ToolPart) -> str:
    """Return what a tool answered, or why it failed."""
    if part.error and part.output:
        return f"{part.output}\n{part.error}"
    return part.error or part.output


def text_of(parts: tuple[Part, ...]) -> list[str]:
    """Return the texts that a model shall read, empty ones left out."""
    found = []
    for part in parts:
        if isinstance(part, TextPart) and part.text:
            found.append(part.text)
        elif isinstance(part, CompactionPart) and part.summary:
            found.append(part.summary)
    return found


def base64_of(part: FilePart) -> str:
    """Return the inline data of a file as base64."""
    return b64encode(part.data or b"").decode()


def data_url(part: FilePart) -> str:
    """Return the address of a file, or its data as a `data:` address."""
    return part.url or f"data:{part.media_type};base64,{base64_of(part)}"


def inline_text(part: FilePart) -> str | None:
    """Return a text file as text, which every API takes; None if it is no text."""
    plain = part.media_type.split(";")[0].strip().lower()
    if part.data is None or not (plain.startswith("text/") or plain == "application/json"):
        return None
    text = part.data.decode(errors="replace")
    return f'<file name="{part.name}">\n{text}\n</file>' if part.name else text


def check_file(provider: str, part: FilePart) -> None:
    """Refuse a file that is neither inline nor at an address.

    Raises:
        LLMBadRequest: none or both are set, or the address is not http(s) or data.
    """
    if bool(part.url) == (part.data is not None):
        detail = f"the file {part.name!r} needs either data or a url"
        raise LLMBadRequest(provider=provider, detail=detail)
    if part.url and not part.url.startswith(("https://", "http://", "data:")):
        detail = f"the file {part.name!r} has an address that no provider can read"
        raise LLMBadRequest(provider=provider, detail=detail)


def decode_object(raw: msgspec.Raw) -> JsonObject | None:
    """Return a JSON object that is no part of the answer itself; None if it is none."""
    try:
        value = _decode_any(raw)
    except UNREADABLE:
        return None
    return value if isinstance(value, dict) else None


def count(value: object) -> int:
    """Return a token count from foreign JSON; anything odd counts as none."""
    if type(value) is not int and type(value) is not float:
        return 0
    return int(value) if 0 < value < 1e12 else 0


def split_usage(
    total_in: int, total_out: int, *, reasoning: int, cache_read: int, cache_write: int
) -> TokenUsage:
    """Return counts that do not overlap, from totals that include their parts."""
    cache_read = min(cache_read, total_in)
    cache_write = min(cache_write, total_in - cache_read)
    reasoning = min(reasoning, total_out)
    return TokenUsage(
        input=total_in - cache_read - cache_write,
        output=total_out - reasoning,
        reasoning=reasoning,
        cache_read=cache_read,
        cache_write=cache_write,
    )


def as_deltas(answer: Answer) -> list[Delta]:
    """Return an answer that came as one body as the deltas it would have been."""
    found: list[Delta] = []
    for index, part in enumerate(answer.parts):
        if isinstance(part, TextPart):
            found.append(TextDelta(part.text))
        elif isinstance(part, ReasoningPart) and part.text:
            found.append(ReasoningDelta(part.text))
        elif isinstance(part, ToolPart):
            arguments = part.raw_input or encode_json(part.input).decode()
            found.append(ToolCallDelta(index, part.call_id, part.tool, arguments))
    return found


def without_cut_call(answer: Answer) -> tuple[Part, ...]:
    """Return the parts; a call that was cut off before its arguments must not run without any."""
    last = answer.parts[-1] if answer.parts else None
    if answer.stop_reason not in CUT or not isinstance(last, ToolPart):
        return answer.parts
    if last.input or last.raw_input:
        return answer.parts
    return (*answer.parts[:-1], msgspec.structs.replace(last, raw_input="{"))
