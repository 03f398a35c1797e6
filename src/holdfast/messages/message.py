"""Messages: one by one with what they used, or many as a conversation.

Request after request of a long conversation has the same beginning. Where that is the very
same tuple, it is known again at once, without touching a single message of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.ids import make_id
from holdfast.messages.parts import CompactionPart, FilePart, Part, TextPart, ToolPart

Role: TypeAlias = Literal["user", "assistant", "system", "tool"]

# To ask whether something is of an abstract class takes Python's own code, each time.
if TYPE_CHECKING:
    _Sequence = Sequence["Message"]
else:
    _Sequence = object


class TokenUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What a model call used; the five counts never overlap, so `total` counts once.

    `input` excludes cached tokens, `output` excludes reasoning tokens, whatever the
    provider's own convention is.
    """

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        """All tokens, each counted once."""
        return self.input + self.output + self.reasoning + self.cache_read + self.cache_write

    def __add__(self, other: TokenUsage) -> TokenUsage:
        """Return the sum of two usages."""
        return TokenUsage(
            input=self.input + other.input,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
        )


def sum_usage(usages: Iterable[TokenUsage]) -> TokenUsage:
    """Return what many model calls used together."""
    tokens = [0, 0, 0, 0, 0]
    for used in usages:
        tokens[0] += used.input
        tokens[1] += used.output
        tokens[2] += used.reasoning
        tokens[3] += used.cache_read
        tokens[4] += used.cache_write
    return TokenUsage(
        input=tokens[0],
        output=tokens[1],
        reasoning=tokens[2],
        cache_read=tokens[3],
        cache_write=tokens[4],
    )


class ModelRefusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """The model, or its provider, declined to answer; often without saying why."""

    text: str = ""
    """What it says about that."""
    category: str = ""
    """The provider's own word for what it declined."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A message with its parts; `agent`, `model`, `usage` and the rest say where it came from.

    Messages and parts hold JSON and each other, never anything that leads back to them, so the
    garbage collector need not look at them: a process that keeps many has little to collect.
    """

    id: str
    session_id: str
    role: Role
    parts: tuple[Part, ...] = ()
    time_created: float = 0.0
    parent_id: str = ""
    run_id: str = ""
    agent: str = ""
    provider: str = ""
    model: str = ""
    stop_reason: str = ""
    usage: TokenUsage | None = None
    cost_usd: float = 0.0
    metadata: JsonObject = msgspec.field(default_factory=dict)
    refusal: ModelRefusal | None = None
    """Set where the model refused; `stop_reason` is `filtered` then, and the text may be empty."""

    @property
    def text(self) -> str:
        """All text parts, one below the other."""
        texts: list[str] = []
        for part in self.parts:  # seldom many; a comprehension is one call more
            if isinstance(part, TextPart):
                texts.append(part.text)
        return "\n".join(texts)

    @property
    def tool_calls(self) -> tuple[ToolPart, ...]:
        """The tool parts, in order."""
        calls: tuple[ToolPart, ...] = ()
        for part in self.parts:  # seldom many, as above
            if isinstance(part, ToolPart):
                calls += (part,)
        return calls


def compose(session_id: str, role: str, content: str | Sequence[Part], clock_now: float) -> Message:
    """Make a message from a text or from parts.

    Raises:
        UsageError: unknown role, or nothing in it.
    """
    try:
        parts = (
            (TextPart(id=make_id("prt"), text=content),)
            if isinstance(content, str)
            else tuple(content)
        )
        message = msgspec.convert(
            {
                "id": make_id("msg"),
                "session_id": session_id,
                "role": role,
                "parts": msgspec.to_builtins(parts),
                "time_created": clock_now,
            },
            Message,
        )
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise UsageError(detail=f"This is no message: {error}") from error
    if not message.parts:
        raise UsageError(detail="A message needs at least one part.")
    return message


def strip_session(message: Message) -> Message:
    """Return the message as the log keeps it: the envelope knows the session."""
    return msgspec.structs.replace(message, session_id="")


def read_compaction(message: Message) -> CompactionPart | None:
    """Return the compaction that a message brings, `None` for every other message."""
    if message.role != "user" or not message.parts:
        return None
    first = message.parts[0]
    return first if isinstance(first, CompactionPart) else None


class JoinedMessages(_Sequence):
    """Messages in order: `base`, then `tail`; equal to any other sequence of the same ones."""

    __slots__ = ("base", "tail")

    def __init__(self, base: tuple[Message, ...] = (), tail: Sequence[Message] = ()) -> None:
        """Share both parts."""
        self.base = base
        self.tail = tail

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.base) + len(self.tail)

    def __iter__(self) -> Iterator[Message]:
        """All messages, oldest first."""
        return itertools.chain(self.base, self.tail)

    def __reversed__(self) -> Iterator[Message]:
        """All messages, newest first."""
        return itertools.chain(reversed(self.tail), reversed(self.base))

    @overload
    def __getitem__(self, place: int) -> Message: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Message, ...]: ...

    def __getitem__(self, place: int | slice) -> Message | tuple[Message, ...]:
        """Return one message, or some."""
        before = len(self.base)
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            if start >= before and step == 1:
                return tuple(self.tail[start - before : max(0, stop - before)])
            return tuple(self)[place]
        at = place + len(self) if place < 0 else place
        if at < 0:
            raise IndexError(place)
        return self.base[at] if at < before else self.tail[at - before]

    def __eq__(self, other: object) -> bool:
        """Say whether the other sequence has equal messages, in however many parts."""
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]
    index = Sequence.index
    count = Sequence.count

    def __repr__(self) -> str:
        """Like that of a tuple."""
        return repr(tuple(self))


Sequence.register(JoinedMessages)


class GrowingMessages(JoinedMessages):
    """A conversation in order: a beginning that stays as it is, and an end that grows.

    Turn after turn of a long session has the very same `base`, so that what was made of it
    is found again without looking at any message of it. `tail` belongs to this object.
    """

    __slots__ = ("has_files", "is_partial", "last")

    tail: list[Message]
    last: Message
    """The newest message; not set while there is none."""

    def __init__(
        self,
        base: tuple[Message, ...] = (),
        tail: Iterable[Message] = (),
        *,
        has_files: bool = False,
        is_partial: bool = False,
    ) -> None:
        """Share the base, and copy the tail; `has_files` where a message brings a file.

        `is_partial`: what came before was not read, and no summary stands for it.
        """
        self.base = base
        self.tail = list(tail)
        self.has_files = has_files
        self.is_partial = is_partial
        if newest := self.tail or base:
            self.last = newest[-1]

    def append(self, message: Message) -> None:
        """Add a message."""
        self.tail.append(message)
        self.last = message

    def extend(self, messages: Iterable[Message]) -> None:
        """Add some messages."""
        for message in messages:
            self.append(message)

    def replace_last(self, message: Message) -> None:
        """Put another message into the place of the last one."""
        if not self.tail:
            self.base, self.tail = self.base[:-1], [self.base[-1]]
        self.tail[-1] = self.last = message


def has_file(part: Part) -> bool:
    """Say whether a part is a file, or a result that brings some."""
    return isinstance(part, FilePart) or (isinstance(part, ToolPart) and bool(part.attachments))


def split_parts(messages: Sequence[Message]) -> tuple[tuple[Message, ...], Sequence[Message]]:
    """Return a beginning that may be known by its identity, and what comes behind it."""
    if isinstance(messages, JoinedMessages):
        return messages.base, messages.tail
    return (), messages
