"""Agents in Markdown files: frontmatter for the fields, the text below for the prompt.

`<project>/.holdfast/agents/*.md` and `<user_dir>/agents/*.md`; the nearest file of a name
wins. A project's file that no person has trusted can take rights away but gives none: what
it allows is asked for, unless it only reads.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from holdfast.agents.definition import Agent, Mode
from holdfast.canonical import hash_sha256
from holdfast.errors import HoldfastError, NotFound, UsageError
from holdfast.sessions import PermissionRule
from holdfast.settings import RunWrites
from holdfast.skills import Fault, Frontmatter, TrustStore, list_levels, read_frontmatter
from holdfast.skills import FrontmatterValue as Value
from holdfast.tools import Workspace

FOLDER = ".holdfast/agents"
MAX_BYTES = 64 * 1024
MAX_FILES = 200
_TRUST_PREFIX = "agent:"
_READING = frozenset(
    {"read", "grep", "glob", "list", "astgrepsearch", "lsp", "calculator", "todoread", "skill"}
)
_FIELDS = (
    "name", "description", "mode", "model", "temperature", "top_p", "steps", "hidden",
    "tools", "permission",
)  # fmt: skip

FileSource: TypeAlias = Literal["project", "user"]


class _Fields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The plain fields, as numbers and words."""

    name: str
    description: str = ""
    mode: Mode = "primary"
    model: str = ""
    temperature: float | None = None
    top_p: float | None = None
    steps: int = 50
    hidden: bool = False


@dataclass(frozen=True, kw_only=True)
class AgentFile:
    """An agent that was found in a file."""

    agent: Agent
    source: FileSource
    path: Path
    digest: str
    is_trusted: bool


@dataclass(frozen=True, kw_only=True)
class FoundAgents:
    """All agents of the files that hold for a directory, and what is wrong with others."""

    agents: dict[str, AgentFile]
    """By name in lower case."""
    problems: dict[str, str]
    """By the name that the file stands for: `path:line: text`."""
    root: Path


def parse_agent(text: str, name: str) -> tuple[Agent | None, tuple[Fault, ...]]:
    """Return the agent of a file's text, or what is wrong with it; `name` is the file's."""
    found = read_frontmatter(text)
    if found.faults:
        return None, found.faults
    faults = [
        Fault(
            text=f"{key[:40]!r} is no field of an agent ({', '.join(_FIELDS)})",
            line=found.lines[key],
        )
        for key in found.fields
        if key not in _FIELDS
    ]
    rules, rule_faults = _make_rules(found)
    fields, field_faults = _split_fields(found, name)
    faults += [*rule_faults, *field_faults]
    if faults or fields is None:
        return None, tuple(faults)
    tools, denied = _render_tools(found.fields.get("tools"))
    try:
        agent = Agent(
            **msgspec.structs.asdict(fields),
            permission=rules,
            allowed_tools=tools,
            denied_tools=denied,
            prompt=found.body.strip(),
        )
    except UsageError as error:
        return None, (Fault(text=str(error), line=2),)
    return agent, ()


class AgentFiles:
    """Finds agents in files; every call blocks for a moment."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        user_folder: str | os.PathLike[str],
        trust: TrustStore,
        writes: RunWrites | None = None,
    ) -> None:
        """Look from this directory upwards, and into the user's folder.

        `writes` knows which files a run wrote: those are not read before a user trusts them.
        """
        self._writes = writes
        self._directory = Path(directory)
        self._user_folder = Path(user_folder)
        self._trust = trust
        self._known: dict[Path, tuple[tuple[int, int], Agent | None, str, str]] = {}

    def has_any(self) -> bool:
        """Say whether there is a folder to look into; nothing is read."""
        return self._user_folder.is_dir() or any(
            (level / FOLDER).is_dir() for level in list_levels(self._directory)
        )

    def find(self, reserved: Collection[str] = ()) -> FoundAgents:
        """Return all agents, the nearest of each name, and what is wrong with other files.

        A project's file takes a `reserved` name (in lower case) only when it is trusted.
        """
        return self._find(reserved)

    def _find(self, reserved: Collection[str] = (), *, keeps_written: bool = False) -> FoundAgents:
        places = list_levels(self._directory)
        found = FoundAgents(agents={}, problems={}, root=places[-1])
        for level in places:
            self._look(found, places[-1], level / FOLDER, "project", reserved)
        self._look(found, self._user_folder, self._user_folder, "user")
        if self._writes is not None and not keeps_written:
            self._leave_out_written(found, self._writes)
        return found

    def _leave_out_written(self, found: FoundAgents, writes: RunWrites) -> None:
        """Take out what a run wrote, which no user has trusted; nothing else takes its place."""
        for key, file in list(found.agents.items()):
            if file.source == "project" and not file.is_trusted and writes.was_written(file.path):
                del found.agents[key]
                told = "it was written by a run, and no person has trusted it"
                advice = f"read it, then run `holdfast agents trust {key}`, or remove it"
                found.problems[key] = f"{file.path}:1: {told}: {advice}"

    def trust(self, name: str) -> AgentFile:
        """Vouch for a project's agent as it is now; raises NotFound."""
        found = self._find(keeps_written=True)
        entry = found.agents.get(name.casefold())
        if entry is None:
            raise NotFound(kind="agent file", value=name)
        if entry.source == "project":
            self._trust.trust(found.root, _TRUST_PREFIX + name.casefold(), entry.digest)
        return self.find().agents[name.casefold()]

    # --- inside -----------------------------------------------------------------------

    def _look(
        self,
        found: FoundAgents,
        root: Path,
        folder: Path,
        source: FileSource,
        reserved: Collection[str] = (),
    ) -> None:
        if not folder.is_dir():
            return
        try:
            workspace = Workspace(root)
            names = list(_find_markdown(workspace, os.path.relpath(folder, root)))
        except HoldfastError as error:
            found.problems.setdefault(str(folder), f"{folder}: {error}")
            return
        for relative in names[:MAX_FILES]:
            path = root / relative
            agent, digest, problem = self._read(workspace, relative, path)
            if agent is None:
                found.problems.setdefault(path.stem.casefold(), problem)
                continue
            key = agent.name.casefold()
            if key in found.agents:
                continue
            is_trusted = source == "user" or self._trust.is_trusted(
                found.root, _TRUST_PREFIX + key, digest
            )
            if key in reserved and not is_trusted:
                told = f"it would replace the built-in agent {key}, and no person has trusted it"
                advice = f"read it, then run `holdfast agents trust {key}`, or rename it"
                found.problems.setdefault(key, f"{path}:1: {told}: {advice}")
                continue
            found.agents[key] = AgentFile(
                agent=agent if is_trusted else drop_grants(agent),
                source=source,
                path=path,
                digest=digest,
                is_trusted=is_trusted,
            )

    def _read(
        self, workspace: Workspace, relative: str, path: Path
    ) -> tuple[Agent | None, str, str]:
        try:
            info = workspace.stat(relative)
            known = self._known.get(path)
            if known is not None and known[0] == (info.mtime_ns, info.size):
                return known[1], known[2], known[3]
            data = workspace.read(relative, max_bytes=MAX_BYTES)
        except HoldfastError as error:
            return None, "", f"{path}: {error}"
        agent, faults = parse_agent(data.decode("utf-8", "replace"), path.stem)
        problem = "; ".join(f"{path}:{fault.line or 1}: {fault.text}" for fault in faults)
        self._known[path] = ((info.mtime_ns, info.size), agent, hash_sha256(data), problem)
        return agent, hash_sha256(data), problem


def drop_grants(agent: Agent) -> Agent:
    """Return an agent whose rules allow nothing that changes anything without asking."""
    rules: list[PermissionRule] = []
    listed = agent.allowed_tools
    for rule in agent.permission:
        if rule.action != "allow" or _is_reading_only(rule.permission):
            rules.append(rule)
        elif not set("*?") & set(rule.permission):
            rules.append(msgspec.structs.replace(rule, action="ask"))
        elif not agent.allowed_tools:
            # What a wildcard allowed is still offered, and does what each tool does by itself.
            listed = tuple({one.permission: None for one in agent.permission})
    record = msgspec.structs.replace(
        agent.to_record(), permission=tuple(rules), allowed_tools=listed
    )
    return Agent.from_record(record)


def _is_reading_only(permission: str) -> bool:
    return permission.replace("_", "").replace("-", "").casefold() in _READING


def _find_markdown(workspace: Workspace, folder: str) -> Iterator[str]:
    for entry in workspace.scandir(folder):
        if entry.name.endswith(".md") and not entry.name.startswith("."):
            yield os.path.normpath(f"{folder}/{entry.name}")


def _split_fields(found: Frontmatter, name: str) -> tuple[_Fields | None, list[Fault]]:
    given = {
        key: value for key, value in found.fields.items() if key not in ("tools", "permission")
    }
    known = {key: value for key, value in given.items() if key in _FIELDS}
    faults: list[Fault] = []
    for key, value in known.items():
        try:
            msgspec.convert({"name": name, key: value}, _Fields, strict=False)
        except msgspec.ValidationError as error:
            text = str(error).partition(" - at")[0]
            faults.append(Fault(text=f"`{key}`: {text}", line=found.lines[key]))
    if faults:
        return None, faults
    return msgspec.convert({"name": name, **known}, _Fields, strict=False), []


def _render_tools(value: Value | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return allowed and denied tools; `tools` is a list, a text of names, or `name: true`."""
    if isinstance(value, dict):
        denied = [name for name, on in value.items() if str(on).lower() in ("false", "no", "off")]
        return tuple(name for name in value if name not in denied), tuple(denied)
    if isinstance(value, str):
        return tuple(value.replace(",", " ").split()), ()
    return tuple(str(one) for one in value or ()), ()


def _make_rules(found: Frontmatter) -> tuple[tuple[PermissionRule, ...], list[Fault]]:
    """Read `permission`: a list of rules, or `tool: action`, or `tool: {pattern: action}`."""
    value = found.fields.get("permission", [])
    line = found.lines.get("permission", 2)
    written: list[object] = []
    if isinstance(value, dict):
        for permission, how in value.items():
            patterns = how if isinstance(how, dict) else {"*": how}
            written += [
                {"permission": permission, "pattern": pattern, "action": action}
                for pattern, action in patterns.items()
            ]
    elif isinstance(value, list):
        written = list(value)
    else:
        return (), [Fault(text="`permission` is a list of rules or `tool: action`", line=line)]
    try:
        return tuple(msgspec.convert(written, list[PermissionRule])), []
    except msgspec.ValidationError as error:
        return (), [Fault(text=f"`permission`: {error}", line=line)]


def render_agent(agent: Agent) -> str:
    """Return the text of a file from which `parse_agent` makes the same agent."""
    record = msgspec.to_builtins(agent.to_record())
    lines = ["---", f"name: {_quote(agent.name)}"]
    for key in ("description", "mode", "model", "temperature", "top_p", "steps", "hidden"):
        if key in record:
            lines.append(f"{key}: {_quote(str(record[key]))}")
    if agent.allowed_tools:
        lines.append(f"tools: [{', '.join(_quote(name) for name in agent.allowed_tools)}]")
    if agent.permission:
        lines.append("permission:")
        for rule in agent.permission:
            lines.append(
                f"  - {{permission: {_quote(rule.permission)}, "
                f"pattern: {_quote(rule.pattern)}, action: {rule.action}}}"
            )
    return "\n".join([*lines, "---", "", agent.prompt.strip(), ""])


def _quote(text: str) -> str:
    flat = " ".join(text.split())
    escaped = flat.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
