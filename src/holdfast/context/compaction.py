"""Make room before the window is full: prune old tool output, then summarise.

The journal stays whole; only the view changes. Each way of making room must shrink the
request, and there are few attempts, so it cannot loop. What is decided is stored in one
piece, so a crash leaves either the old view or the new one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.context.compaction_hooks import (
    NO_HOOKS,
    CompactionHooks,
    CompactionWish,
    Conversation,
    Reason,
)
from holdfast.context.events import ContextPruned, SessionCompacted
from holdfast.context.history import after_compaction, is_prunable, list_kept_files
from holdfast.context.steps import format_inside
from holdfast.context.summary import Summary, compute_most_read, cut_middle, extract, summarise
from holdfast.errors import HookRefused, LLMContextTooLong
from holdfast.ids import make_id
from holdfast.journal import Event, Payload
from holdfast.messages import (
    ARTIFACT_SCHEME,
    CompactionPart,
    FilePart,
    Message,
    ReasoningPart,
    TextPart,
    ToolPart,
    read_compaction,
    strip_session,
)
from holdfast.providers import Model, ModelInfo, ModelRequest
from holdfast.sessions import MessageCreated, Session, SessionChanges, SessionUpdated

Build: TypeAlias = Callable[[Session, Sequence[Message]], Awaitable[ModelRequest]]
"""Makes the request that a session and its messages would give."""
Charge: TypeAlias = Callable[[Message], Message]
"""Writes into a message what it cost."""

MOST_ATTEMPTS = 3
LEAST_MESSAGE_TOKENS = 4
"""No message takes less in a request, by any counter of ours: its frame and its role."""
_EXTRACT_TOKENS = 4_000
"""As many hold all the lines that rules pick out of a conversation, and more."""
_TEXTS = (TextPart, ReasoningPart)
_LEAST_WINDOW = 256
_LEAST_USABLE = 64
_PROTECTED_TURNS = 2
_LEAST_SAVED = 0.1
"""A pruning that saves less than this share is not worth a broken cache."""
_SHARES = (2, 4, 8, 16)
"""Where nothing else helps, a summary is cut to a half of itself, a quarter, and so on."""
_REQUEST_CHARS = 4_000
_HEAD = (
    "<conversation_summary>\n"
    "The earlier part of this conversation is no longer shown. This is its summary:\n\n"
)
_FOOT = "\n</conversation_summary>"
_FILES_MARK = "Files and whole outputs that are kept:"
_MOST_FILES = 50
_REQUEST_MARK = "The request that you are working on, word for word:"


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens of a model's window, parted; made by `compute_room`."""

    window: int
    """What the model can read and write together."""
    usable: int
    """What is left for input when the answer gets its share."""
    full: int
    """More input than this, and room is made first: before the limit is hit."""
    recent: int
    """How much of the newest conversation stays word for word."""


def compute_room(info: ModelInfo, *, usable: int | None = None) -> Room:
    """Return the room of a model; `usable` is what a refusal taught us about the real limit."""
    return _compute_room(info.context_window, info.max_output_tokens, usable)


@functools.lru_cache(maxsize=64)
def _compute_room(context_window: int, max_output_tokens: int, usable: int | None) -> Room:
    window = max(context_window, _LEAST_WINDOW)
    answer = min(max(max_output_tokens, 0), window // 4)
    free = window - answer
    if usable is not None:
        free = max(_LEAST_USABLE, min(free, usable))
    # Counting is an estimate for most models, hence the distance to the limit.
    return Room(
        window=window,
        usable=free,
        full=free * 9 // 10,
        recent=free * 3 // 10,
    )


def count_enough(info: ModelInfo, session: Session) -> int:
    """Return the tokens of the newest messages that are enough for a turn; 0: all are needed.

    They are where the session has no summary, and more messages than the model could read if
    each had one word: room must be made (`Compactor.begin_anew`), and what stays word for word and
    what a summary is made of stand at the end.
    """
    is_long = session.message_count * LEAST_MESSAGE_TOKENS > info.context_window
    if session.compacted_at or not is_long:
        return 0
    room = compute_room(info)
    return room.recent + (compute_most_read(room.usable) if info.is_llm else _EXTRACT_TOKENS)


class _Plan(NamedTuple):
    """Why a summary is made, and what the hooks wish about it."""

    reason: Reason
    wish: CompactionWish
    fit: Room | None = None
    """The room into which it is cut, because nothing else is left to try."""


class _Attempt(NamedTuple):
    """A summary that makes the request smaller."""

    message: Message
    smaller: Conversation
    after: int


class CompactionRecorder(Protocol):
    """Where the facts go; `sessions.Turn` and `sessions.leases.Writing` are such."""

    async def append(self, *payloads: Payload) -> tuple[Event, ...]:
        """Append facts, together or not at all."""
        ...


class Compactor:
    """Keeps the requests of a conversation within what the model can read."""

    def __init__(
        self,
        model: Model,
        *,
        charge: Charge = lambda message: message,
        clock: Clock = SYSTEM,
        hooks: CompactionHooks = NO_HOOKS,
    ) -> None:
        """Summarise with this model, which is asked for its window once, now.

        `charge` writes into the summary what it cost.
        """
        self._model = model
        self._info = model.info
        self._charge = charge
        self._clock = clock
        self._hooks = hooks

    def is_needed(self, request: ModelRequest, messages: Sequence[Message]) -> bool:
        """Say whether room should be made before this request is sent.

        Cheap, and wrong only on the safe side. What the provider counted with its last answer
        is not counted again, only what came after it; what is certainly small, not at all.
        """
        if wants_compaction(messages):
            return True
        info, shown = self._info, request.messages
        full = _compute_room(info.context_window, info.max_output_tokens, None).full
        at = len(shown)
        while at and shown[at - 1].role != "assistant":
            at -= 1
        used = shown[at - 1].usage if at and shown[at - 1].provider == info.provider else None
        read = used.input + used.cache_read + used.cache_write if used is not None else 0
        if used is not None and read > 0:
            behind, left = shown[at:], full - (read + used.output + used.reasoning)
            if _are_small(behind, left):
                return False
            return not behind or self._count(ModelRequest(messages=behind)) > left
        text = "".join([request.system, *[spec.description for spec in request.tools]])
        fixed = len(text) if text.isascii() else 4 * len(text)
        for spec in request.tools:
            fixed += 64 + len(msgspec.json.encode(spec.parameters))
        return not _are_small(shown, full - fixed) and self._count(request) > full

    async def make_room(
        self, conversation: Conversation, build: Build, recorder: CompactionRecorder
    ) -> Conversation:
        """Return a conversation whose request fits, or which was asked to be compacted.

        First old tool output is pruned; if that is not enough, the older part is summarised.

        Raises:
            LLMContextTooLong: what cannot be left out is larger than the window.
            LLMError: the summary could not be made; nothing has changed.
            HookRefused: a hook cancelled what would have been needed.
        """
        if wants_compaction(conversation.messages):
            # The model's wish, not a need: where a hook says no, the run goes on without.
            with contextlib.suppress(HookRefused):
                return await self.compact(conversation, build, recorder)
            return conversation
        room = compute_room(self._info)
        return await self._shrink(conversation, build, recorder, room, "overflow")

    async def begin_anew(
        self, conversation: Conversation, build: Build, recorder: CompactionRecorder
    ) -> Conversation | None:
        """Put a summary in the place of what is older, also of what was not read.

        Returns `None` where none can be made of what was read: all has to be.
        """
        plan = _Plan("overflow", CompactionWish())
        recent = compute_room(self._info).recent
        smaller = await self._summarise(conversation, build, recorder, recent, plan)
        if smaller is None:
            return None
        await self._hooks.after(conversation, smaller[0], plan.reason, (smaller[2], smaller[1]))
        return msgspec.structs.replace(smaller[0], unread=0)

    async def make_more_room(
        self, conversation: Conversation, build: Build, recorder: CompactionRecorder, attempt: int
    ) -> Conversation:
        """Return a smaller conversation after the provider refused one as too long.

        Its own count is what it is; ours was too low. Each attempt aims at half of what
        was just refused.
        """
        tokens = self._count(await build(conversation.session, conversation.messages))
        room = compute_room(self._info, usable=tokens * 6 // 10)
        if attempt > 1:
            # Nothing is protected any more but the newest step.
            room = msgspec.structs.replace(room, recent=1)
        return await self._shrink(conversation, build, recorder, room, "refused")

    async def compact(
        self,
        conversation: Conversation,
        build: Build,
        recorder: CompactionRecorder,
        *,
        focus: str = "",
    ) -> Conversation:
        """Summarise now, because a caller asked for it; a short conversation stays as it is.

        Raises:
            HookRefused: a hook said no; nothing has changed.
        """
        room = compute_room(self._info)
        tokens = self._count(await build(conversation.session, conversation.messages))
        recent = min(room.recent, tokens // 4)
        if not self._select_older(conversation, recent):
            return conversation
        wish = await self._hooks.before(conversation, "requested", tokens, focus)
        if wish.refused is not None:
            raise wish.refused
        smaller = await self._summarise(
            conversation, build, recorder, recent, _Plan("requested", wish)
        )
        if smaller is None:
            return conversation
        await self._hooks.after(conversation, smaller[0], "requested", (tokens, smaller[1]))
        return smaller[0]

    # --- the steps --------------------------------------------------------------------

    async def _shrink(
        self,
        conversation: Conversation,
        build: Build,
        recorder: CompactionRecorder,
        room: Room,
        reason: Reason,
    ) -> Conversation:
        first = tokens = self._count(await build(conversation.session, conversation.messages))
        if tokens <= room.full:
            return conversation
        began = conversation
        wish = await self._hooks.before(conversation, reason, tokens)
        if wish.refused is None:
            pruned = await self._prune(conversation, build, recorder, room, tokens)
            if pruned is not None:
                conversation, tokens = pruned
        attempt = 0
        while wish.refused is None and tokens > room.full and attempt < MOST_ATTEMPTS:
            is_last = attempt == MOST_ATTEMPTS - 1
            recent = 0 if is_last else room.recent >> attempt
            plan = _Plan(reason, wish, room if is_last else None)
            smaller = await self._summarise(conversation, build, recorder, recent, plan)
            if smaller is not None:
                conversation, tokens, _ = smaller
            attempt += 1
        if conversation is not began:
            await self._hooks.after(began, conversation, reason, (first, tokens))
        if tokens <= room.usable or (reason == "refused" and tokens < first):
            return conversation
        if wish.refused is not None:
            raise wish.refused
        raise LLMContextTooLong(
            model=self._info.model,
            detail=f"{tokens} tokens are needed and {room.usable} fit, although everything "
            "that can be left out was left out",
        )

    async def _prune(
        self,
        conversation: Conversation,
        build: Build,
        recorder: CompactionRecorder,
        room: Room,
        tokens: int,
    ) -> tuple[Conversation, int] | None:
        """Set the prune mark before the protected turns; `None` if that saves too little."""
        kept = after_compaction(conversation.messages)
        place = self._prune_place(kept, room)
        if place == 0 or kept[place - 1].id == conversation.session.pruned_to:
            return None
        mark = kept[place - 1].id
        session = msgspec.structs.replace(conversation.session, pruned_to=mark)
        after = self._count(await build(session, conversation.messages))
        if after > tokens * (1 - _LEAST_SAVED):
            return None
        calls = sum(is_prunable(part) for message in kept[:place] for part in message.tool_calls)
        await recorder.append(
            SessionUpdated(changes=SessionChanges(pruned_to=mark)),
            ContextPruned(
                up_to_message_id=mark, calls=calls, tokens_before=tokens, tokens_after=after
            ),
        )
        return msgspec.structs.replace(conversation, session=session), after

    def _prune_place(self, kept: Sequence[Message], room: Room) -> int:
        """The place before which output may go: two turns and some tokens are protected."""
        turns, tokens = 0, 0
        for at in range(len(kept) - 1, -1, -1):
            message = kept[at]
            tokens += self._count_one(message)
            if tokens > room.recent and at < len(kept) - 1:
                return at + 1
            if message.role == "user" and read_compaction(message) is None:
                turns += 1
                if turns >= _PROTECTED_TURNS:
                    return at
        return 0

    async def _summarise(
        self,
        conversation: Conversation,
        build: Build,
        recorder: CompactionRecorder,
        recent: int,
        plan: _Plan,
    ) -> tuple[Conversation, int, int] | None:
        """Put a summary in the place of the older part; `None` if there is none, or no gain.

        Returns the smaller conversation with its tokens, and those of what it was.
        """
        kept = after_compaction(conversation.messages)
        older = kept[: self._find_summary_place(kept, recent)]
        is_summary = all(read_compaction(message) is not None for message in older)
        if is_summary and (plan.fit is None or not older):
            return None
        wish = plan.wish
        request = await build(conversation.session, conversation.messages)
        before = self._count_all(conversation, request)
        if wish.summary:
            summary = Summary(text=wish.summary, provider="hook")
        elif is_summary:
            summary = _find_summary(older, kept[len(older) :])
        else:
            usable = compute_room(self._info).usable
            summary = await summarise(self._model, older, usable=usable, focus=wish.focus)
        first = best = None
        for made in _iterate_versions(summary, older, plan):
            message = self._parse_message(
                conversation, made, older, kept[len(older) :], plan.reason
            )
            smaller = msgspec.structs.replace(
                conversation, messages=(*conversation.messages, message)
            )
            after = self._count(await build(smaller.session, smaller.messages))
            if after < before:
                best = _Attempt(message, smaller, after)
                first = first or best
                if plan.fit is None or after <= plan.fit.full:
                    break
        if best is None or first is None:
            return None
        if not _is_worth_it(best.after, before, plan):
            if is_summary:
                return None
            best = first
        count = len(older) + conversation.unread
        await self._store(recorder, best.message, count, plan.reason, before, best.after)
        return best.smaller, best.after, before

    def _select_older(self, conversation: Conversation, recent: int) -> Sequence[Message]:
        """Return what a summary would stand for; nothing if that is a summary already."""
        kept = after_compaction(conversation.messages)
        older = kept[: self._find_summary_place(kept, recent)]
        return older if any(read_compaction(message) is None for message in older) else ()

    def _find_summary_place(self, kept: Sequence[Message], recent: int) -> int:
        """The place where the part that stays word for word begins.

        Something always stays, unless nothing shall and the newest message is a step of the
        agent's own: its output can be the one thing that is too long.
        """
        if recent == 0 and kept and kept[-1].tool_calls:
            return len(kept)
        tokens = 0
        for at in range(len(kept) - 1, -1, -1):
            tokens += self._count_one(kept[at])
            if tokens > recent:
                return min(at + 1, len(kept) - 1)
        return 0

    def _parse_message(
        self,
        conversation: Conversation,
        summary: Summary,
        older: Sequence[Message],
        newer: Sequence[Message],
        reason: Reason,
    ) -> Message:
        earlier = read_compaction(older[-1])
        part = CompactionPart(
            id=make_id("prt"),
            summary=_frame(summary.text, older, newer, conversation.unread),
            is_automatic=reason != "requested",
            # A summary of a summary stands where that stood, not where it is stored.
            up_to_message_id=earlier.up_to_message_id if earlier is not None else older[-1].id,
            is_extractive=summary.is_extractive,
        )
        message = Message(
            id=make_id("msg"),
            session_id=conversation.session.id,
            role="user",
            parts=(part,),
            run_id=conversation.run_id,
            time_created=self._clock.now(),
            provider=summary.provider,
            model=summary.model,
            usage=summary.usage,
        )
        return self._charge(message) if summary.usage is not None else message

    async def _store(
        self,
        recorder: CompactionRecorder,
        message: Message,
        count: int,
        reason: Reason,
        before: int,
        after: int,
    ) -> None:
        part = read_compaction(message)
        assert part is not None
        await recorder.append(
            MessageCreated(message=strip_session(message)),
            SessionCompacted(
                message_id=message.id,
                up_to_message_id=part.up_to_message_id,
                messages=count,
                tokens_before=before,
                tokens_after=after,
                reason=reason,
                is_extractive=part.is_extractive,
            ),
        )

    def _count_all(self, conversation: Conversation, request: ModelRequest) -> int:
        """Count a request, and at least what came before it and was not read."""
        return self._count(request) + conversation.unread * LEAST_MESSAGE_TOKENS

    def _count(self, request: ModelRequest) -> int:
        return self._model.count_tokens(request)

    def _count_one(self, message: Message) -> int:
        return self._model.count_tokens(ModelRequest(messages=(message,)))


def _iterate_versions(summary: Summary, older: Sequence[Message], plan: _Plan) -> Iterator[Summary]:
    """Yield summaries to try, the best one first; shorter ones where it has to fit."""
    yield summary
    yield extract(older)
    if plan.fit is not None:
        for share in _SHARES:
            yield msgspec.structs.replace(
                summary, text=cut_middle(summary.text, len(summary.text) // share)
            )


def _is_worth_it(after: int, before: int, plan: _Plan) -> bool:
    """Say whether a summary that was cut gains enough for what it leaves out.

    It does not where something else is too long, such as the newest request.
    """
    if plan.fit is None or after <= plan.fit.usable:
        return True
    return plan.reason == "refused" and after <= before * (1 - _LEAST_SAVED)


def _find_summary(older: Sequence[Message], newer: Sequence[Message]) -> Summary:
    """Return the summary that stands in messages which hold nothing else."""
    part = read_compaction(older[-1])
    assert part is not None
    text = part.summary.removeprefix(_HEAD).removesuffix(_FOOT)
    before, mark, behind = text.partition(f"\n\n{_FILES_MARK}")
    text = before + (behind[behind.index("\n") :] if mark and "\n" in behind else "")
    if not any(_is_request(message) for message in newer):
        text = text.partition(f"\n\n{_REQUEST_MARK}")[0]  # `_framed` adds it again
    return Summary(text=text, is_extractive=part.is_extractive)


def wants_compaction(messages: Sequence[Message]) -> bool:
    """Say whether the model asked for a compaction that has not happened yet."""
    for message in reversed(messages):
        if message.role == "assistant":
            for part in message.parts:
                if isinstance(part, ToolPart) and part.tool == "compact":
                    if part.state == "completed":
                        return True
            return False
        if read_compaction(message) is not None:
            return False
    return False


def _are_small(messages: Sequence[Message], limit: int) -> bool:
    """No token is shorter than a byte, so few bytes are few tokens."""
    size = 0
    for message in messages:
        size += 32
        texts: list[str] = []
        for part in message.parts:
            if isinstance(part, ToolPart):
                if part.attachments:
                    return False
                texts += (part.output, part.error, part.raw_input)
                if part.input:
                    size += len(msgspec.json.encode(part.input))
            elif isinstance(part, _TEXTS):
                texts.append(part.text)
            elif isinstance(part, FilePart):
                return False
            elif isinstance(part, CompactionPart):
                texts.append(part.summary)
        text = "".join(texts)
        size += len(text) if text.isascii() else 4 * len(text)
        if size > limit:
            return False
    return size <= limit


def _frame(text: str, older: Sequence[Message], newer: Sequence[Message], unread: int = 0) -> str:
    """Return a summary with what the model must know to go on."""
    lines = [_HEAD + format_inside("conversation_summary", text.strip())]
    if unread:
        lines += ["", f"The first {unread} messages of the conversation are not in this summary."]
    skills = sorted(
        {
            str(part.metadata["skill"])
            for message in older
            for part in message.tool_calls
            if part.tool == "skill" and "skill" in part.metadata
        }
    )
    if skills:
        lines += ["", f"Skills that were loaded: {', '.join(skills)}. Load them again if needed."]
    files = _list_files(older)
    if files:
        lines += ["", f"{_FILES_MARK} {', '.join(files)}. Read them if needed."]
    if not any(_is_request(message) for message in newer):
        lines += _request_lines(older)
    return "\n".join(lines) + _FOOT


def _list_files(older: Sequence[Message]) -> list[str]:
    """The newest artifacts that are named by what a summary stands for, also by the one before."""
    found: list[str] = []
    for message in older:
        earlier = read_compaction(message)
        if earlier is not None and _FILES_MARK in earlier.summary:
            told = earlier.summary.rsplit(_FILES_MARK, 1)[1].split("\n", 1)[0]
            found += [one.strip(" .") for one in told.rpartition(". ")[0].split(",")]
        for part in message.parts:
            found += list_kept_files(part)
    return list(dict.fromkeys(one for one in found if one.startswith(ARTIFACT_SCHEME)))[
        -_MOST_FILES:
    ]


def _request_lines(older: Sequence[Message]) -> list[str]:
    """The request that is being worked on, word for word; from the last summary if need be."""
    for message in reversed(older):
        if _is_request(message):
            return ["", _REQUEST_MARK, message.text.strip()[:_REQUEST_CHARS]]
        earlier = read_compaction(message)
        if earlier is not None and _REQUEST_MARK in earlier.summary:
            said = earlier.summary.rsplit(_REQUEST_MARK, 1)[1].rsplit("\n", 1)[0]
            return ["", _REQUEST_MARK, said.strip()]
    return []


def _is_request(message: Message) -> bool:
    is_persons = any(
        isinstance(part, TextPart) and not part.is_synthetic and part.text.strip()
        for part in message.parts
    )
    return message.role == "user" and is_persons
