"""The conversation as a model must see it: every call followed by its result.

The journal keeps a call and its result as one part of the assistant's message. Models want
the request in the assistant's message and the result in a tool message after it; and no
request may ever stand without a result. Besides:

- a compaction stands for everything up to the message it names;
- long tool output before the session's prune mark is a short note;
- a skill that is loaded a second time is not shown a second time.

The journal is untouched by all of this. What was made of a message is remembered by the
identity of the message, so that the next request costs no more than its bytes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from holdfast.messages import (
    ARTIFACT_SCHEME,
    AgentPart,
    FilePart,
    JoinedMessages,
    Message,
    Part,
    PatchPart,
    RetryPart,
    SnapshotPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    read_compaction,
)

_NOT_EXECUTED = "This call was not executed: the run ended before it."
_MOST_BUILT = 256
"""As many conversations at once go on from their last view."""
_MOST_MADE = 4_096
"""Of so many messages it is remembered what was made of them, in all conversations together."""
_LONGEST_MORE = 64
_SHORT = 64
"""So many messages are joined in less time than it takes to read them in two parts."""
PROTECTED_TOOLS = frozenset({"skill"})
"""Tools whose output is instructions, not findings: never pruned."""
PRUNE_CHARS = 400
"""Shorter output than this is not worth pruning."""

# Parts that are for the runtime; no model reads them.
_UNSEEN = (SnapshotPart, PatchPart, AgentPart, SubtaskPart, RetryPart)


class _Shown(msgspec.Struct, frozen=True, gc=False):
    """What became of a message; `source` keeps it alive, so that its identity stays its own."""

    source: Message
    messages: tuple[Message, ...]
    skills: tuple[str, ...]
    """Skills whose bodies it brings, as `name@digest`."""


_Made: TypeAlias = dict[tuple[int, bool], _Shown]
"""By the identity of the message, and whether its output is pruned."""
_ASKED_AND_ANSWERED = 2


class _Built(msgspec.Struct, frozen=True, gc=False):
    """A view that was made before.

    What is shown of them comes in two parts, so that most of it is the same tuple each time.
    """

    base: tuple[Message, ...]
    tail: Sequence[Message]
    pruned_to: str
    first: tuple[Message, ...]
    more: tuple[Message, ...]
    loaded: frozenset[str]
    made: _Made
    """What was made of each message that is shown otherwise than it is stored."""


class HistoryView:
    """Makes views, and remembers what it made of each message; safe to share.

    A conversation that has only grown costs what is new in it. What is remembered goes with its
    conversation, and those that were used last stay: memory does not grow with the turns.
    """

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._built: OrderedDict[str, _Built] = OrderedDict()
        self._count = 0

    def show(self, messages: Sequence[Message], *, pruned_to: str = "") -> Sequence[Message]:
        """Return the messages to send, in order: complete pairs, nothing dangling."""
        base: tuple[Message, ...] = ()
        tail = messages
        if isinstance(messages, JoinedMessages):
            base, tail = messages.base, messages.tail
        if not tail and not base:
            return ()
        name = (tail or base)[0].session_id
        built = self._built.pop(name, None)
        new = tail
        made: _Made = {}
        if built is not None:
            made = built.made
            self._count -= len(made)
            before, new = tail[: len(built.tail)], tail[len(built.tail) :]
            # Comparing the same objects costs next to nothing.
            is_other = built.base is not base or before != built.tail
            for message in new:
                is_summary = message.role == "user" and read_compaction(message) is not None
                is_other = is_other or is_summary or message.id == pruned_to
            if is_other or built.pruned_to != pruned_to:
                built = None
        if built is None:
            kept = after_compaction([*base, *tail])
            prune_end = _find_place_after(kept, pruned_to) if pruned_to else 0
            earlier, made = made, {}
            shown, loaded = _show(kept, prune_end, frozenset(), earlier, made)
            built = _Built(base, tail[:], pruned_to, shown, (), loaded, made)
        elif new:
            shown, loaded = _show(new, 0, built.loaded, made, made)
            first, more = built.first, built.more + shown
            if len(more) > _LONGEST_MORE:
                first, more = first + more, ()
            built = _Built(base, tail[:], pruned_to, first, more, loaded, made)
        self._built[name] = built
        self._count += len(built.made)
        # Those that were used longest ago make room.
        while len(self._built) > _MOST_BUILT or (self._count > _MOST_MADE and len(self._built) > 1):
            _, dropped = self._built.popitem(last=False)
            self._count -= len(dropped.made)
        first, more = built.first, built.more
        return JoinedMessages(first, more) if len(first) > _SHORT else first + more


def _show(
    messages: Sequence[Message],
    prune_end: int,
    loaded: frozenset[str],
    before: _Made,
    made: _Made,
) -> tuple[tuple[Message, ...], frozenset[str]]:
    """Return what is shown of further messages, and the skills that are loaded then.

    What was made of a message `before` is not made again; all of it is in `made` afterwards.
    """
    shown: list[Message] = []
    for place, message in enumerate(messages):
        if len(message.parts) == 1 and isinstance(message.parts[0], TextPart):
            shown.append(message)  # as most are
            continue
        is_pruned = place < prune_end
        key = (id(message), is_pruned)
        entry = before.get(key)
        if entry is None or entry.source is not message:
            entry = _make(message, is_pruned)
        if len(entry.messages) == _ASKED_AND_ANSWERED:
            made[key] = entry
        if entry.skills:
            shown += _drop_repeats(entry, loaded)
            loaded = loaded.union(entry.skills)
        else:
            shown += entry.messages
    return tuple(shown), loaded


def _make(message: Message, is_pruned: bool) -> _Shown:
    """Return what a model reads of a message: what it asks for, and the results behind it."""
    seen: list[Part] = []
    results: list[Part] = []
    skills: tuple[str, ...] = ()
    for part in message.parts:
        if isinstance(part, ToolPart) and message.role == "assistant":
            seen.append(
                ToolPart(
                    id=part.id,
                    call_id=part.call_id,
                    tool=part.tool,
                    input=part.input,
                    raw_input=part.raw_input,
                )
            )
            is_done = part.state == "completed"
            results.append(part if is_done and not is_pruned else _as_result(part, is_pruned))
            if part.tool == "skill" and is_done and "skill" in part.metadata:
                skills += (_make_skill_key(part),)
        elif not isinstance(part, _UNSEEN):
            seen.append(part)
    asking = message
    if results or len(seen) < len(message.parts):
        asking = msgspec.structs.replace(message, parts=tuple(seen))
    if not results:
        return _Shown(message, (asking,) if seen else (), ())
    answering = Message(
        id=f"{message.id}-results",
        session_id=message.session_id,
        role="tool",
        parts=tuple(results),
        time_created=message.time_created,
        parent_id=message.id,
        run_id=message.run_id,
    )
    return _Shown(message, (asking, answering), skills)


def prepare_for_model(messages: Sequence[Message], *, pruned_to: str = "") -> tuple[Message, ...]:
    """Return the messages to send: requests and results apart, nothing dangling."""
    return tuple(HistoryView().show(messages, pruned_to=pruned_to))


def after_compaction(messages: Sequence[Message]) -> Sequence[Message]:
    """Return what the newest compaction leaves: its summary, then everything after its place.

    A compaction whose place is gone (a caller deleted the message) counts for nothing.
    """
    has_any = False
    for at in range(len(messages) - 1, -1, -1):
        part = read_compaction(messages[at])
        if part is None:
            continue
        has_any = True
        start = _find_place_after(messages[:at], part.up_to_message_id)
        if start:
            later = [m for m in messages[start:] if read_compaction(m) is None]
            return [messages[at], *later]
    return [m for m in messages if read_compaction(m) is None] if has_any else messages


def is_prunable(part: ToolPart) -> bool:
    """Say whether a result is long enough, and not of a kind that must stay."""
    is_long = len(part.output) > PRUNE_CHARS or bool(part.attachments)
    return part.state == "completed" and is_long and part.tool not in PROTECTED_TOOLS


def _find_place_after(messages: Sequence[Message], message_id: str) -> int:
    """The place behind a message; 0 if it is not there."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].id == message_id:
            return at + 1
    return 0


def _as_result(part: ToolPart, is_pruned: bool) -> ToolPart:
    if part.state not in ("completed", "error"):
        return msgspec.structs.replace(part, state="error", error=_NOT_EXECUTED)
    if is_pruned and is_prunable(part):
        note = (
            f"(The output of this call, {len(part.output)} characters, is no longer shown. "
            f"{_say_how_to_see(part)})"
        )
        return msgspec.structs.replace(part, output=note, attachments=())
    return part


def list_kept_files(part: Part) -> list[str]:
    """Return the addresses of artifacts that a part names: files, and outputs that were cut."""
    files = part.attachments if isinstance(part, ToolPart) else (part,)
    found = [file.url for file in files if isinstance(file, FilePart) and file.artifact_id]
    if isinstance(part, ToolPart) and isinstance(whole := part.metadata.get("artifact"), str):
        found.append(f"{ARTIFACT_SCHEME}{whole}")
    return found


def _say_how_to_see(part: ToolPart) -> str:
    kept = list_kept_files(part)
    if kept:
        return f"It is kept: read {', '.join(kept)} if you need it."
    return "Call the tool again if you need it."


def _make_skill_key(part: ToolPart) -> str:
    return f"{part.metadata['skill']}@{part.metadata.get('digest', '')}"


def _drop_repeats(entry: _Shown, before: frozenset[str]) -> tuple[Message, ...]:
    """Show a skill's body where it came first, and say so where it came again."""
    if not before.intersection(entry.skills) and len(set(entry.skills)) == len(entry.skills):
        return entry.messages
    loaded = set(before)
    asking, answering = entry.messages
    parts: list[Part] = []
    for part in answering.parts:
        if isinstance(part, ToolPart) and part.tool == "skill" and "skill" in part.metadata:
            key = _make_skill_key(part)
            if key in loaded:
                note = f"The skill {part.metadata['skill']} is loaded already, see above."
                part = msgspec.structs.replace(part, output=note)
            loaded.add(key)
        parts.append(part)
    return asking, msgspec.structs.replace(answering, parts=tuple(parts))
