"""The steps that make a context, each small, named and replaceable.

A step changes the draft: it adds a section to the system prompt, chooses the history, or
chooses the tools. What stays the same from turn to turn comes first, so that the caches of
providers hit; what differs in every turn (memories) stands as late as possible.
"""

from __future__ import annotations

import asyncio
import datetime
import functools
import logging
import os
import platform
import re
import shlex
import stat
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

import msgspec

from holdfast.context.account import Section
from holdfast.context.history import HistoryView
from holdfast.errors import HoldfastError
from holdfast.messages import Message, TextPart, read_compaction
from holdfast.sessions import Session
from holdfast.skills import InstructionTrust, Skill, list_levels, render_catalog
from holdfast.tools import Tool, Workspace

_log = logging.getLogger("holdfast.context")
_FILE = "AGENTS.md"
_OF_FOLDER = ("path", "command")
_FALLBACK = "CLAUDE.md"
_MOST_BYTES = 32 * 1024
_KEPT_FILES = 64
_NOT_READ = ((0, 0, 0), ("", ""))
_UNSAFE = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]"
_CATALOG_CHARS = 8_000
_KEPT_RECALLS = 64
_DAY_S = 86_400


class AgentLike(Protocol):
    """What the context needs to know about an agent."""

    @property
    def name(self) -> str:
        """The agent's name."""
        ...

    @property
    def prompt(self) -> str:
        """The agent's own instructions."""
        ...


class MemoryLike(Protocol):
    """What the context needs to know about a memory."""

    @property
    def content(self) -> str:
        """What is remembered."""
        ...


Recaller: TypeAlias = Callable[[Session, str], Awaitable[Sequence[MemoryLike]]]
"""Finds what is remembered about a request, within its own budget."""


class ContextDraft(msgspec.Struct, kw_only=True):
    """A context in the making: what is known, and what the steps have chosen so far."""

    session: Session
    agent: AgentLike
    skills: tuple[Skill, ...]
    memories: tuple[MemoryLike, ...]
    history: Sequence[Message]
    """The whole conversation, as the journal has it."""
    tools: dict[str, Tool]
    """The tools that the agent may use; a step may take some away."""
    sections: list[Section] = msgspec.field(default_factory=list)
    messages: Sequence[Message] = ()

    def add(self, name: str, text: str, *, note: str = "") -> None:
        """Add a section to the system prompt; an empty one is only noted."""
        if text or note:
            self.sections.append(_make_section(name, text, note))


class ContextStep(Protocol):
    """One step; its name is how it is replaced."""

    @property
    def name(self) -> str:
        """Unique among the steps of a builder."""
        ...

    async def apply(self, draft: ContextDraft) -> None:
        """Change the draft; whatever it raises ends the turn."""
        ...


class OnceStep(msgspec.Struct, eq=False):
    """Steps whose outcome is the same for all requests of one turn: made with the first.

    So the beginning of the context stays as it is within a turn, byte for byte, and costs
    nothing from the second request on. Steps belong here that look neither at the history
    nor at the memories, and say so by `is_steady`.
    """

    name: ClassVar[str] = "beginning"
    _steps: Sequence[ContextStep]
    _given: tuple[object, ...] = ()
    _sections: tuple[Section, ...] = ()
    _tools: dict[str, Tool] = {}

    async def apply(self, draft: ContextDraft) -> None:
        """Apply the steps, or what came of them for the same session, agent, skills and tools."""
        session = draft.session
        given = (session.id, session.directory, draft.agent, draft.skills, draft.tools)
        if given != self._given:
            # As they were: a step may take tools away.
            given = (*given[:-1], draft.tools.copy())
            for step in self._steps:
                await step.apply(draft)
            self._sections, self._tools = tuple(draft.sections), draft.tools
            self._given = given
            draft.tools = draft.tools.copy()
        else:
            draft.sections = list(self._sections)
            draft.tools = self._tools.copy()


def count_steady(steps: Sequence[ContextStep]) -> int:
    """How many steps from the first on are steady; within a turn, `OnceStep` is all of them."""
    count = 0
    while count < len(steps) and getattr(steps[count], "is_steady", False):
        count += 1
    return count


def make_view(steps: Sequence[ContextStep]) -> HistoryView | None:
    """Return what alone shows a conversation from one request to the next; `None` if more do.

    Steps behind the history belong here that do nothing new as long as no caller asks anything
    new, and say so by `waits_for_request`.
    """
    if not steps or type(steps[0]) is not HistoryStep:
        return None
    waits = [getattr(step, "waits_for_request", False) for step in steps[1:]]
    return steps[0].view if all(waits) else None


def _has_folder_tool(draft: ContextDraft) -> bool:
    """Say whether the agent has a tool that reads or changes files, or runs commands."""
    return any([tool.target_kind in _OF_FOLDER for tool in draft.tools.values()])


class PromptStep:
    """The agent's own instructions."""

    name = "prompt"
    is_steady = True

    async def apply(self, draft: ContextDraft) -> None:
        """Add them as they are."""
        draft.add(self.name, draft.agent.prompt.strip())


class WrittenStep:
    """What functions of the application wrote for this turn, behind all that stays the same."""

    name = "written"
    is_steady = True

    async def apply(self, draft: ContextDraft) -> None:
        """Add it as it is; most agents have none."""
        draft.add(self.name, getattr(draft.agent, "written_text", ""))


class EnvironmentStep:
    """Where the agent works; nothing that changes within a session.

    One that has no tool for it works nowhere: its provider need not learn of the folder in which
    the application happens to run, and a small model is not led astray by it.
    """

    name = "environment"
    is_steady = True

    async def apply(self, draft: ContextDraft) -> None:
        """Add directory, platform and the day on which the session began."""
        if not _has_folder_tool(draft):
            return
        session = draft.session
        draft.add(
            self.name, _describe_environment(session.directory, int(session.time_created // _DAY_S))
        )


class FoundInstructions(NamedTuple):
    """The file that holds for a directory, and what tells whether it has changed."""

    name: str
    path: Path
    stamp: tuple[int, int, int]
    known: tuple[str, str] | None
    """What was read of it, if that is what is there now; see `ProjectInstructions.read`."""


class ProjectInstructions:
    """Finds and reads the nearest AGENTS.md; reads again only when it has changed.

    A directory without one may have a CLAUDE.md instead.
    """

    def __init__(
        self, *, max_bytes: int = _MOST_BYTES, trust: InstructionTrust | None = None
    ) -> None:
        """Read at most so many bytes of a file; `trust` says which files are not obeyed."""
        self._max_bytes = max_bytes
        self._trust = trust
        self._told: set[tuple[str, tuple[int, int, int]]] = set()
        self.passed_over = ""
        """The last file that was found and not obeyed, because a run wrote it."""
        self._levels: dict[str, tuple[tuple[str, Path], ...]] = {}
        self._read: dict[str, tuple[tuple[int, int, int], tuple[str, str]]] = {}

    def find(self, directory: str) -> FoundInstructions | None:
        """Return the file that holds for a directory; one look per directory above it."""
        places = self._levels.get(directory)
        if places is None:
            if len(self._levels) >= _KEPT_FILES:
                self._levels.clear()
            names = (_FILE, _FALLBACK)
            files = [level / name for level in list_levels(directory) for name in names]
            places = self._levels[directory] = tuple([(str(file), file) for file in files])
        for name, path in places:
            try:
                seen = os.stat(name)
            except OSError:
                continue
            if not stat.S_ISREG(seen.st_mode):
                continue
            trust = self._trust
            # Most runs write nothing that could instruct agents; then there is no such folder.
            is_sure = trust is None or not os.path.isdir(trust.folder)
            if is_sure or self._is_obeyed(name, seen):
                stamp = (seen.st_mtime_ns, seen.st_size, seen.st_ino)
                then, read = self._read.get(name, _NOT_READ)
                return FoundInstructions(name, path, stamp, read if then == stamp else None)
        return None

    def _is_obeyed(self, name: str, seen: os.stat_result) -> bool:
        if self._trust is None or self._trust.is_obeyed(name):
            return True
        self.passed_over = name
        stamp = (name, (seen.st_mtime_ns, seen.st_size, seen.st_ino))
        if stamp not in self._told:
            self._told = {*list(self._told)[-_KEPT_FILES:], stamp}
            _log.warning(
                "%s was written by a run, and is not obeyed: %s", name, _format_advice(name)
            )
        return False

    def read(self, directory: str, found: FoundInstructions) -> tuple[str, str]:
        """Return the text and a note about what is missing from it.

        Opened as tools open files: beneath the project's root, links out of it refused. A
        file that cannot be read gives an empty text and the reason. Blocks for a moment.
        """
        read = self._load(list_levels(directory)[-1], found.path)
        if len(self._read) >= _KEPT_FILES:
            self._read.clear()
        self._read[found.name] = (found.stamp, read)
        return read

    def _load(self, root: Path, path: Path) -> tuple[str, str]:
        try:
            with Workspace(root).open(str(path.relative_to(root))) as stream:
                data = stream.read(self._max_bytes + 1)
        except (HoldfastError, OSError) as error:
            return "", f"{path.name} was not read: {error}"
        text = make_harmless(data[: self._max_bytes].decode("utf-8", "replace")).strip()
        if len(data) > self._max_bytes:
            return text, f"cut after {self._max_bytes} bytes"
        return text, ""


class InstructionsStep:
    """The nearest AGENTS.md from the session's directory up to the root of the repository."""

    name = "instructions"
    is_steady = True

    def __init__(self, instructions: ProjectInstructions | None = None) -> None:
        """Read through this reader."""
        self._instructions = instructions or ProjectInstructions()

    async def apply(self, draft: ContextDraft) -> None:
        """Add the file, cut to its limit; one that cannot be read is noted.

        It speaks to those who work in the folder.
        """
        if not _has_folder_tool(draft):
            return
        directory = draft.session.directory
        self._instructions.passed_over = ""
        found = self._instructions.find(directory)
        passed = self._instructions.passed_over
        doubt = ""
        if passed:
            doubt = f"{passed} was written by a run, and is not obeyed: {_format_advice(passed)}"
        if found is None:
            if doubt:
                draft.add(self.name, "", note=doubt)
            return
        known = found.known
        if known is None:
            known = await asyncio.to_thread(self._instructions.read, directory, found)
        text, note = known
        note = "; ".join(filter(None, (note, doubt)))
        draft.add(self.name, _tag(text, found.path.name) if text else "", note=note)


class SkillsStep:
    """The names and descriptions of the skills that may be loaded, within a budget."""

    name = "skills"
    is_steady = True

    def __init__(self, *, max_chars: int = _CATALOG_CHARS) -> None:
        """Take at most so many characters."""
        self._max_chars = max_chars

    async def apply(self, draft: ContextDraft) -> None:
        """Add the catalog; without skills the tool that loads them is not offered either."""
        if not draft.skills:
            draft.tools.pop("skill", None)
            return
        if "skill" not in draft.tools:
            draft.add(self.name, "", note=f"{len(draft.skills)} skills, but no right to load them")
            return
        text, left_out = render_catalog(draft.skills, max_chars=self._max_chars)
        note = f"{left_out} skills do not fit" if left_out else ""
        draft.add(self.name, text, note=note)


class ToolsStep:
    """The tools in a stable order."""

    name = "tools"
    is_steady = True

    async def apply(self, draft: ContextDraft) -> None:
        """Sort by name."""
        names = list(draft.tools)
        ordered = sorted(names)
        if names != ordered:
            draft.tools = {name: draft.tools[name] for name in ordered}


class HistoryStep:
    """The conversation as the model must see it."""

    name = "history"

    def __init__(self, view: HistoryView | None = None) -> None:
        """Remember what was made of messages in this view."""
        self.view = view or HistoryView()

    async def apply(self, draft: ContextDraft) -> None:
        """Show what compaction and pruning leave, calls and results in pairs."""
        draft.messages = self.view.show(draft.history, pruned_to=draft.session.pruned_to)


class RecallStep:
    """Looks for memories about the newest request, unless the caller brought some.

    Once per request: within a turn the context keeps its beginning, byte for byte.
    """

    name = "recall"
    waits_for_request = True

    def __init__(self, recall: Recaller) -> None:
        """Ask this for memories; it is called again only for another request."""
        self._recall = recall
        self._known: OrderedDict[tuple[str, str], tuple[MemoryLike, ...]] = OrderedDict()

    async def apply(self, draft: ContextDraft) -> None:
        """Choose the memories; a later step shows them."""
        place = _find_last_request(draft.messages)
        if draft.memories or place == len(draft.messages):
            return
        request = draft.messages[place]
        key = (draft.session.id, request.id)
        if key not in self._known:
            self._known[key] = tuple(await self._recall(draft.session, request.text))
            if len(self._known) > _KEPT_RECALLS:
                self._known.popitem(last=False)
        draft.memories = self._known[key]


class MemoriesStep:
    """What is remembered, before the newest request, within a budget."""

    name = "memories"
    waits_for_request = True
    MAX_CHARS: ClassVar[int] = 8_000

    def __init__(self, *, max_chars: int = MAX_CHARS) -> None:
        """Take at most so many characters."""
        self._max_chars = max_chars

    async def apply(self, draft: ContextDraft) -> None:
        """Put them before the last thing that a caller asked, so that all before is stable."""
        if not draft.memories:
            return
        lines: list[str] = []
        room = self._max_chars
        for memory in draft.memories:
            line = (
                f"- {format_inside('memories', make_harmless(' '.join(_render(memory).split())))}"
            )
            if len(line) > room:
                break
            lines.append(line)
            room -= len(line)
        if not lines:
            return
        text = "\n".join(["<memories>", *lines, "</memories>"])
        left_out = len(draft.memories) - len(lines)
        note = f"{len(lines)} memories, {len(text)} characters of the history"
        draft.add(self.name, "", note=f"{note}; {left_out} do not fit" if left_out else note)
        place = _find_last_request(draft.messages)
        remembered = Message(
            id="memories",
            session_id=draft.session.id,
            role="user",
            parts=(TextPart(text=text, is_synthetic=True),),
        )
        draft.messages = (*draft.messages[:place], remembered, *draft.messages[place:])


def _render(memory: MemoryLike) -> str:
    """Return what is remembered, after the name of who said it where that is known."""
    speaker = getattr(memory, "speaker", "")
    return f"{speaker}: {memory.content}" if speaker else memory.content


def _format_advice(path: str) -> str:
    return f"look at it, then run `holdfast config trust {shlex.quote(path)}`"


def list_default_steps(trust: InstructionTrust | None = None) -> tuple[ContextStep, ...]:
    """Return fresh steps in their order; `trust` says which instructions are obeyed."""
    return (
        PromptStep(),
        EnvironmentStep(),
        InstructionsStep(ProjectInstructions(trust=trust)),
        SkillsStep(),
        WrittenStep(),
        ToolsStep(),
        HistoryStep(),
        MemoriesStep(),
    )


@functools.lru_cache(maxsize=128)
def _make_section(name: str, text: str, note: str) -> Section:
    return Section(name=name, text=text, note=note)


@functools.lru_cache(maxsize=16)
def _tag(text: str, file: str) -> str:
    tag = "project-instructions"
    return f'<{tag} file="{file}">\n{format_inside(tag, text)}\n</{tag}>'


@functools.lru_cache(maxsize=256)
def _describe_environment(directory: str, day: int) -> str:
    began = datetime.datetime.fromtimestamp(day * _DAY_S, datetime.UTC)
    return (
        "<environment>\n"
        f"Working directory: {make_harmless(directory)}\n"
        f"Platform: {platform.system().lower()}\n"
        f"Session began: {began:%Y-%m-%d} (UTC)\n"
        "</environment>"
    )


def _find_last_request(messages: Sequence[Message]) -> int:
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        if message.role == "user" and read_compaction(message) is None:
            return at
    return len(messages)


def make_harmless(text: str) -> str:
    """Return foreign text without control characters and marks that hide or reorder it.

    Against prompt injection that a person who reads the same text would not see.
    """
    return re.sub(_UNSAFE, "", text.replace("\r\n", "\n").replace("\r", "\n"))


def format_inside(tag: str, text: str) -> str:
    """Return foreign text that cannot close the tag around it."""
    return re.sub(rf"<(?=/\s*{re.escape(tag)})", "&lt;", text, flags=re.IGNORECASE)
