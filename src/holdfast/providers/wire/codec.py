"""What the three APIs have in common: the codec protocol, encoded messages, answers.

A conversation is kept as bytes between requests, so that only what is new is joined: the
request of a long one then costs little more than copying its bytes.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Protocol, TypeAlias, TypeVar

import msgspec

from holdfast.canonical import JsonObject, digest
from holdfast.errors import LLMBadRequest, LLMError, LLMInputUnsupported, LLMProtocolError
from holdfast.ids import make_id
from holdfast.messages import (
    CompactionPart,
    FilePart,
    Message,
    ModelRefusal,
    Part,
    ReasoningPart,
    TextPart,
    TokenUsage,
    ToolPart,
    ToolSpec,
    find_input_kind,
    split_parts,
)
from holdfast.providers.model import (
    Delta,
    ModelInfo,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
)

UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)
"""What decoding foreign JSON may raise."""

MAX_TOOL_CALLS = 512
"""More calls in one answer than any model means to make."""

MAX_CITATIONS = 4096
"""More citations in one text than any model means to make."""

CUT = ("length", "filtered")
"""Stop reasons of an answer that does not end where the model would have ended it."""

QUEUED = "queued"
"""Stop reason of an answer that the provider goes on making in the background."""
PAUSED = "paused"
"""Stop reason of an answer that the provider goes on with when it is asked again."""
OPEN = (QUEUED, PAUSED)
"""Stop reasons that only the wire sees: what they stand at is not the whole answer."""

LONGEST_ID = 128
_LONGEST_PRINTED = 2_400
_WORTH_KEEPING = 4
_MOST_KEPT = 256
_MOST_BYTES = 16 * 1024 * 1024

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
    refusal: ModelRefusal | None = None
    sent_back: JsonObject | None = None
    """The turn of a paused answer, as the provider wants it back to go on."""


class StreamDecoder(Protocol):
    """Puts one streamed answer together."""

    done: bool
    """The API's end mark was seen; what follows does not matter."""
    begun: bool
    """A piece of the answer was seen, so the first-token limit no longer counts."""
    open_id: str
    """The provider goes on making the answer under this id when the connection is lost."""

    def feed(self, events: list[bytes], out: list[Delta] | None) -> None:
        """Take events in order; append what is said to `out` if a subscriber listens.

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


class Fragment(msgspec.Struct, frozen=True, gc=False):
    """One message, or all tools, as bytes; `tail` goes behind the messages with the same role."""

    role: str
    data: bytes
    tail: bytes = b""


class EncodedCache:
    """Bytes by the object that they were made from, bounded in size.

    Objects are told apart by identity, and kept alive while their bytes are kept. Two
    generations take turns, so that a hit costs one dictionary look-up.
    """

    def __init__(self, max_bytes: int = 16 * 1024 * 1024) -> None:
        """Start empty; `max_bytes` bounds both generations together."""
        self._limit = max_bytes // 2
        self._young: dict[int, tuple[object, Fragment]] = {}
        self._old: dict[int, tuple[object, Fragment]] = {}
        self._size = 0

    def fragments(self, sources: Sequence[_S], make: Callable[[_S], Fragment]) -> list[Fragment]:
        """Return all sources as bytes, making only what was not made before."""
        found: list[Fragment] = []
        for source in sources:
            key = id(source)
            entry = self._young.get(key)
            if entry is not None and entry[0] is source:
                found.append(entry[1])
                continue
            entry = self._old.get(key)
            made = entry[1] if entry is not None and entry[0] is source else make(source)
            found.append(made)
            # The source weighs about as much as its bytes, and an entry has a fixed price.
            weight = 2 * (len(made.data) + len(made.tail)) + 512
            self._size += weight
            if self._size > self._limit:
                self._old, self._young, self._size = self._young, {}, weight
            if weight <= self._limit:
                self._young[key] = (source, made)
        return found


class Joiner(Protocol):
    """How one API puts the bytes of messages behind each other."""

    def fragment(self, message: Message) -> Fragment:
        """Return one message as bytes."""
        ...

    def add(self, data: bytearray, fragments: Iterable[Fragment], state: bytes) -> bytes:
        """Append the bytes of messages; `state` is what `add` returned for those before them."""
        ...

    def end(self, data: bytearray, state: bytes) -> bytes:
        """Return what is still missing behind the last message; an empty `state` misses nothing."""
        ...


class _Kept:
    """A conversation so far: these messages are in these bytes."""

    __slots__ = ("base", "data", "state", "tail")

    def __init__(self) -> None:
        self.base: tuple[Message, ...] = ()
        self.tail: tuple[Message, ...] = ()
        self.data = bytearray()
        self.state = b""


class WireTranscript:
    """Joins messages, each encoded once in its life, and remembers long conversations."""

    def __init__(self, joiner: Joiner) -> None:
        """Remember nothing yet."""
        self._joiner = joiner
        self._cache = EncodedCache()
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._size = 0

    def pieces(self, messages: Sequence[Message]) -> tuple[bytearray, bytes]:
        """Return a conversation's bytes and their end; both belong into one list of JSON.

        The first may be kept and grow with the next request: copy it before that.
        """
        joiner = self._joiner
        if len(messages) <= _WORTH_KEEPING:
            data = bytearray()
            state = joiner.add(data, self._cache.fragments(messages, joiner.fragment), b"")
            return data, joiner.end(data, state) if state else b""
        base: tuple[Message, ...] = ()
        tail: Sequence[Message] = messages
        if not isinstance(messages, tuple):
            base, tail = split_parts(messages)
        tail = tuple(tail)
        first = id((base or tail)[0])
        kept = self._kept.pop(first, None) or _Kept()
        self._size -= len(kept.data)
        if kept.base is base:
            done, now = kept.tail, tail
        else:
            done, now = kept.base + kept.tail, base + tail
        # Comparing the same objects costs next to nothing.
        if now[: len(done)] != done:
            kept, done, now = _Kept(), (), base + tail
        data, new = kept.data, now[len(done) :]
        kept.state = joiner.add(data, self._cache.fragments(new, joiner.fragment), kept.state)
        kept.base, kept.tail = base, tail
        self._kept[first] = kept
        self._size += len(data)
        if len(self._kept) > _MOST_KEPT or self._size > _MOST_BYTES:
            self._make_room()
        return data, joiner.end(data, kept.state) if kept.state else b""

    def _make_room(self) -> None:
        """Forget the oldest conversations."""
        while self._kept and (len(self._kept) > _MOST_KEPT or self._size > _MOST_BYTES):
            self._size -= len(self._kept.popitem(last=False)[1].data)


def make_tool_part(provider: str, call_id: str, name: str, arguments: str) -> ToolPart:
    """Return a call whose arguments are text; text that is no object stays in `raw_input`.

    Raises:
        LLMProtocolError: the call has no name, so no caller can know what is meant.
    """
    if not name:
        raise LLMProtocolError(provider=provider, detail="a tool call has no name")
    call_id = call_id or make_id("call")
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


def make_sent_name(name: str) -> str:
    """Return the name of a call to send back where it is no `is_sendable_name`.

    Models make up names such as `functions.read`. The call fails, but it stays in the
    conversation, and servers refuse every later request that holds such a name.
    """
    return _ODD.sub("_", name)[:64] or "_"


def make_sent_id(call_id: str) -> str:
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


def render_result(part: ToolPart) -> str:
    """Return what a tool answered, or why it failed."""
    if part.error and part.output:
        return f"{part.output}\n{part.error}"
    return part.error or part.output


def read_text_of(parts: tuple[Part, ...]) -> list[str]:
    """Return the texts that a model shall read, empty ones left out."""
    found = []
    for part in parts:
        if isinstance(part, TextPart) and part.text:
            found.append(part.text)
        elif isinstance(part, CompactionPart) and part.summary:
            found.append(part.summary)
    return found


def match_base64(part: FilePart) -> str:
    """Return the inline data of a file as base64."""
    return b64encode(part.data or b"").decode()


def make_data_url(part: FilePart) -> str:
    """Return the address of a file, or its data as a `data:` address."""
    return part.url or f"data:{part.media_type};base64,{match_base64(part)}"


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


class CacheKey:
    """The key by which a provider finds requests of the same beginning: a digest of it."""

    def __init__(self) -> None:
        """Nothing was asked yet."""
        self._known: tuple[str, tuple[ToolSpec, ...], str] = ("", (), "")

    def find(self, request: ModelRequest) -> str:
        """Return the key of a request: the same while prompt and tools stay the same."""
        stable = request.system[: len(request.system) - request.changing].rstrip()
        system, tools, key = self._known
        if not key or tools is not request.tools or system != stable:
            specs = [[tool.name, tool.description, tool.parameters] for tool in request.tools]
            key = digest([stable, specs])[:32]
            self._known = (stable, request.tools, key)
        return key


def make_unsupported(info: ModelInfo, part: FilePart) -> LLMInputUnsupported:
    """Return what is raised for a file that this API has no place for."""
    return LLMInputUnsupported(
        provider=info.provider,
        model=info.model,
        kind=f"{find_input_kind(part)} of the type {part.media_type} over this API",
        name=part.name or "without a name",
    )


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


def drop_cut_call(answer: Answer) -> tuple[Part, ...]:
    """Return the parts; a call that was cut off before its arguments must not run without any."""
    last = answer.parts[-1] if answer.parts else None
    if answer.stop_reason not in CUT or not isinstance(last, ToolPart):
        return answer.parts
    if last.input or last.raw_input:
        return answer.parts
    return (*answer.parts[:-1], msgspec.structs.replace(last, raw_input="{"))


def request_id(headers: Mapping[str, str], key: str) -> str:
    """Return the provider's id of the call, for a question to its support.

    One in which the server put our key is none.
    """
    for name in ("request-id", "x-request-id", "x-amzn-requestid", "cf-ray"):
        value = headers.get(name)
        if value:
            if key and key in value:
                return ""
            return (value if value.isprintable() else make_printable(value))[:LONGEST_ID]
    return ""


def make_printable(text: str) -> str:
    """Return foreign text on one line, without what a terminal would obey, and not too long."""
    if text.isprintable() and len(text) <= _LONGEST_PRINTED:
        return text
    return "".join(char if char.isprintable() else " " for char in text[:_LONGEST_PRINTED])
