"""`holdfast agents`: who can do the work."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click
import msgspec

from holdfast.agents import (
    MAX_BYTES,
    Agent,
    AgentEntry,
    AgentRegistry,
    AgentWarning,
    parse_agent,
)
from holdfast.cli.event_loop import run_async
from holdfast.cli.exits import ExitCode
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.client import AsyncClient
from holdfast.errors import ConfigError, FileError, NotFound
from holdfast.sessions import PermissionRule

_T = TypeVar("_T")


@click.group("agents", cls=Group)
def command() -> None:
    """List, show, add or remove agents."""


@command.command("list")
@click.option("--all", "is_all", is_flag=True, help="Hidden ones too.")
@click.option("--plugins", is_flag=True, help="Also agents of installed packages.")
@pass_invocation
def list_agents(invocation: Invocation, is_all: bool, plugins: bool) -> None:
    """List all agents and where they come from."""

    async def work(registry: AgentRegistry) -> tuple[tuple[AgentEntry, ...], tuple[str, ...]]:
        if plugins:
            registry.load_entry_points()
        return await registry.entries(), await registry.problems()

    entries, problems = _run(invocation, work)
    rows = [_make_row(entry) for entry in entries if is_all or not entry.agent.hidden]
    emit(rows, columns=["name", "mode", "source", "trusted", "model", "description"])
    for problem in problems:
        say(problem, err=True, color="yellow")


@command.command("show")
@click.argument("name")
@pass_invocation
def show(invocation: Invocation, name: str) -> None:
    """Show everything about the agent NAME: its prompt and its rights."""

    async def work(registry: AgentRegistry) -> AgentEntry:
        await registry.require(name)
        return next(
            e for e in await registry.entries() if e.agent.name.casefold() == name.casefold()
        )

    entry = _run(invocation, work)
    agent = entry.agent
    record = msgspec.to_builtins(agent.to_record())
    record |= {**_make_row(entry), "prompt": agent.prompt, "rules": _format_lines(agent.rules)}
    if invocation.is_text:
        # What the lists of tools say stands in rows of their own.
        record["rules"] = ", ".join(_format_lines(agent.permission))
        record.pop("permission", None)
    emit(record)


@command.command("check")
@click.argument("name", required=False, default="")
@pass_invocation
def check(invocation: Invocation, name: str) -> None:
    """Warn of rules without effect, of the agent NAME or of all agents, and of broken files.

    `* * allow` in front of `read *.csv allow` allows every read: the pattern limits nothing.
    """

    async def work() -> list[AgentWarning]:
        async with AsyncClient(settings=invocation.settings) as client:
            return await client.agents.check(name)

    found = run_async(work())
    if invocation.is_text and not found:
        say("Every file can be used, and every rule has an effect.")
        return
    emit([msgspec.to_builtins(one) for one in found], columns=["agent", "text", "because"])
    if any(one.text == "its file" for one in found):
        sys.exit(ExitCode.FAILED)


@command.command("add")
@click.argument("name", required=False)
@click.option("--file", "path", type=click.Path(path_type=Path), help="Markdown file of the agent.")
@click.option("--description", default="", help="What it is for.")
@click.option("--prompt", default="", help="Its instructions.")
@click.option("--model", default="", metavar="NAME", help="Model, as in openai:gpt-5.2.")
@click.option("--tool", "tools", multiple=True, metavar="NAME", help="A tool it may use; repeat.")
@pass_invocation
def add(
    invocation: Invocation,
    name: str | None,
    path: Path | None,
    description: str,
    prompt: str,
    model: str,
    tools: tuple[str, ...],
) -> None:
    """Register the agent NAME, from options or from a Markdown file.

    It is kept in the state directory and wins over files of the same name.
    """
    if path is not None:
        agent = _from_file(path, name)
    elif name:
        agent = Agent(
            name, description=description, prompt=prompt, model=model, allowed_tools=tools
        )
    else:
        raise click.UsageError("Give the NAME of the agent, or --file.")

    async def work(registry: AgentRegistry) -> None:
        await registry.register_agent(agent)

    _run(invocation, work)
    if invocation.is_text:
        say(f"Added the agent {agent.name}.")
    else:
        emit({"added": agent.name})


@command.command("remove")
@click.argument("name")
@pass_invocation
def remove(invocation: Invocation, name: str) -> None:
    """Remove a registered agent; built-in ones and files stay."""

    async def work(registry: AgentRegistry) -> None:
        if not await registry.remove_agent(name):
            raise NotFound(kind="registered agent", value=name)

    _run(invocation, work)
    if invocation.is_text:
        say(f"Removed the agent {name}.")
    else:
        emit({"removed": name})


@command.command("trust")
@click.argument("name")
@pass_invocation
def trust(invocation: Invocation, name: str) -> None:
    """Vouch for the project's agent file NAME, as it is now.

    Until then it can take rights away but gives none: what it allows is asked for.
    """

    async def work(registry: AgentRegistry) -> AgentEntry:
        return await registry.trust(name)

    emit(_make_row(_run(invocation, work)))


def _run(invocation: Invocation, work: Callable[[AgentRegistry], Awaitable[_T]]) -> _T:
    async def whole() -> _T:
        async with AsyncClient(invocation.place, settings=invocation.settings) as client:
            return await work(await client.agents.registry())

    return run_async(whole())


def _format_lines(rules: Sequence[PermissionRule]) -> list[str]:
    return [f"{rule.permission} {rule.pattern} {rule.action}" for rule in rules]


def _make_row(entry: AgentEntry) -> dict[str, object]:
    agent = entry.agent
    return {
        "name": agent.name,
        "mode": agent.mode,
        "source": entry.source,
        "trusted": entry.is_trusted,
        "model": str(agent.model) or None,
        "description": agent.description,
        "file": entry.path,
    }


def _from_file(path: Path, name: str | None) -> Agent:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise FileError(path=str(path), detail=error.strerror or "unreadable") from error
    if len(data) > MAX_BYTES:
        raise FileError(path=str(path), detail=f"it is larger than {MAX_BYTES} bytes")
    agent, faults = parse_agent(data.decode("utf-8", "replace"), name or path.stem)
    if agent is None:
        lines = [f"{path}:{fault.line or 1}: {fault.text}" for fault in faults]
        raise ConfigError(detail="\n".join(lines), mistakes=lines)
    return agent
