"""`holdfast tools`: what agents can use, what they used, and using it by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from holdfast.canonical import JsonObject
from holdfast.cli.approve import AskInTerminal
from holdfast.cli.event_loop import run_async
from holdfast.cli.exits import ExitCode
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.loop import describe_going_on, say_how_to_answer
from holdfast.cli.output import emit, make_printable, say
from holdfast.cli.pairs import read_pairs
from holdfast.client import AsyncClient
from holdfast.errors import AlreadyExists, UsageError, make_error_from_dict
from holdfast.policy import PolicyViolation
from holdfast.runtime import ToolCallResult, normalize_name
from holdfast.sync import Client
from holdfast.tools import (
    AutoConfirm,
    LocalToolManager,
    PermissionRefused,
    Tool,
    ToolExecution,
    ToolRegistry,
    choose_default_action,
    describe,
    read_manifest,
)

_STATES = ("pending", "running", "completed", "error")
_SHORT = 60


@click.group("tools", cls=Group)
def command() -> None:
    """List, show, run, install or verify tools."""


@command.command("list")
@click.option("--tag", default="", help="Only tools with this tag.")
@click.option("--plugins", is_flag=True, help="Also tools of installed packages.")
@pass_invocation
def list_tools(invocation: Invocation, tag: str, plugins: bool) -> None:
    """List all tools with their effects."""
    registry = _open_registry(invocation, plugins)
    emit(
        [
            {
                "name": tool.name,
                "version": tool.version,
                "effect": tool.effect,
                "scope": registry.find_scope(tool.name),
                "tags": list(tool.tags),
                "purpose": tool.description.partition("\n")[0],
            }
            for tool in registry
            if not tag or tag in tool.tags
        ],
        columns=["name", "version", "effect", "scope", "purpose"],
    )


@command.command("show")
@click.argument("name")
@click.option("--plugins", is_flag=True, help="Also tools of installed packages.")
@pass_invocation
def show(invocation: Invocation, name: str, plugins: bool) -> None:
    """Show everything about the tool NAME, or NAME@VERSION."""
    registry = _open_registry(invocation, plugins)
    tool = registry.get(name)
    # What really holds where no rule speaks: built-in tools with an effect ask.
    described = {
        **describe(tool),
        "permission": choose_default_action(tool, registry.find_scope(tool.name)),
    }
    if invocation.is_text:
        for key in ("parameters", "output"):
            described[key] = json.dumps(described[key], indent=2, ensure_ascii=False)
    emit(described)


@command.command("schema")
@click.argument("name", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["json-schema", "openapi"]),
    default="json-schema",
    show_default=True,
    help="Form of the document.",
)
@click.option("--plugins", is_flag=True, help="Also tools of installed packages.")
@pass_invocation
def schema(invocation: Invocation, name: str | None, form: str, plugins: bool) -> None:
    """Print the schemas of all tools, or of the tool NAME, as JSON."""
    registry = _open_registry(invocation, plugins)
    if name:
        registry = ToolRegistry([registry.get(name)])
    document = registry.openapi() if form == "openapi" else registry.json_schema()
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


@command.command("run")
@click.argument("name", default="")
@click.argument("pairs", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--args", "arguments", default="{}", metavar="JSON", help="Arguments as an object.")
@click.option("--session", default="", metavar="ID", help="Call it in this session.")
@click.option("--run-id", default="", metavar="ID", help="Name the run; the same name resumes it.")
@click.option("--auto-confirm", is_flag=True, help="Answer yes to what asks; denies stay denied.")
@click.option("--plugins", is_flag=True, help="Also tools of installed packages.")
@pass_invocation
def run(
    invocation: Invocation,
    name: str,
    pairs: tuple[str, ...],
    arguments: str,
    session: str,
    run_id: str,
    auto_confirm: bool,
    plugins: bool,
) -> None:
    """Call the tool NAME, as an agent would: through the gate, in a session, recorded.

    Give its arguments one by one: holdfast tools run grep pattern=def path=src limit=5.
    Where the tool wants a text, VALUE is that text; a number, true, false, a list or an object
    is JSON. A list can also be given item by item: ignore=a ignore=b. Or give all of them as
    one JSON object with --args; holdfast tools show NAME says what there is.

    On a terminal, a call that needs consent asks for it; elsewhere it is refused. One that was
    interrupted or had to wait goes on with --run-id alone.
    """
    values = read_object(arguments)
    if not name and not run_id:
        raise UsageError(detail="Say which tool: holdfast tools run NAME.")
    if plugins:
        invocation.overrides["plugins.enabled"] = ["*"]
    if pairs:
        values = _with_pairs(values, pairs, _open_registry(invocation, plugins=False).get(name))

    async def call(client: AsyncClient) -> ToolCallResult:
        return await client.tools.call(name, values, session_id=session, run_id=run_id)

    call_by_hand(invocation, call, auto_confirm=auto_confirm)


def call_by_hand(
    invocation: Invocation,
    call: Callable[[AsyncClient], Awaitable[ToolCallResult]],
    *,
    auto_confirm: bool,
) -> None:
    """Make a call, print what became of it, and end with the exit code that says it.

    The person at the terminal answers what it asks, or no approver, or always yes.
    """
    called, was_refused = run_async(_run_call(invocation, call, auto_confirm))
    part = called.part
    if not invocation.is_text:
        emit({"session_id": called.run.session_id, "run_id": called.run.id, **_simplify(part)})
    elif part.state != "pending":
        click.echo(make_printable(part.output or part.error))
    if called.run.status == "failed":
        raise make_error_from_dict(called.run.error)
    if part.state == "pending":
        sys.exit(ExitCode.WAITING)
    if part.state == "error":
        sys.exit(ExitCode.DENIED if was_refused else ExitCode.FAILED)


async def _run_call(
    invocation: Invocation,
    call: Callable[[AsyncClient], Awaitable[ToolCallResult]],
    auto_confirm: bool,
) -> tuple[ToolCallResult, bool]:
    """Return what came of the call, and whether rules or a person refused it."""
    async with AsyncClient(invocation.place, settings=invocation.settings) as client:
        if auto_confirm:
            client.approver = AutoConfirm()
        elif sys.stdin.isatty() and invocation.is_text:
            client.approver = client.attendant = AskInTerminal()
        called = await call(client)
        if called.part.state == "pending" and not called.run.has_ended:
            await say_how_to_answer(client, {called.run.id})
            say(f"Then go on: {describe_going_on(called.run)}", err=True)
        journal = await client.storage.journal()
        # Rules and people refuse a call, and a tool what leads out of the workspace.
        after = called.run.queued_at
        kinds = frozenset({PermissionRefused.kind, PolicyViolation.kind})
        facts = await journal.read(called.run.session_id, after=after, kinds=kinds)
        return called, any(_is_refusal(fact.decode(), called.part.call_id) for fact in facts)


def _is_refusal(fact: object, call_id: str) -> bool:
    if isinstance(fact, PolicyViolation) and fact.source == "sandbox":
        return False  # what the machine cannot do was not refused
    return isinstance(fact, PermissionRefused | PolicyViolation) and fact.call_id == call_id


@command.command("history")
@click.option("--session", default="", metavar="ID", help="Only this session.")
@click.option("--tool", default="", metavar="NAME", help="Only calls of this tool.")
@click.option("--state", type=click.Choice(_STATES), help="Only calls in this state.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@pass_invocation
def history(invocation: Invocation, session: str, tool: str, state: str | None, limit: int) -> None:
    """Show what tools were called, newest first, and what came of it.

    Without --session, the sessions that were used last are looked through.
    """
    found: list[ToolExecution] = []
    with Client(invocation.place, settings=invocation.settings) as client:
        sessions = [session] if session else [s.id for s in client.list_sessions().items]
        for each in sessions:
            found += client.get_execution_history(
                each,
                limit,
                tool=tool or None,
                state=state,  # type: ignore[arg-type] # click has checked it
            )
    found.sort(key=lambda one: one.time_start or 0, reverse=True)
    rows = [_make_row(one) for one in found[:limit]]
    if not invocation.is_text:
        emit([{**_simplify(one), "duration_s": one.duration_s} for one in found[:limit]])
        return
    emit(rows, columns=["time", "tool", "state", "seconds", "arguments", "session", "id"])


@command.command("output")
@click.argument("session")
@click.argument("handle")
@pass_invocation
def output(invocation: Invocation, session: str, handle: str) -> None:
    """Print the whole of an output that was too long to show.

    HANDLE stands in the shortened text, where something was left out.
    """
    with Client(invocation.place, settings=invocation.settings) as client:
        data = client.tools.output(session, handle)
    click.echo(data, nl=False)


@command.command("install")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Replace an installed bundle of the same name.")
@pass_invocation
def install(invocation: Invocation, path: Path, replace: bool) -> None:
    """Install the tool bundle in the folder PATH, and pin it by a hash of its files.

    Its program runs in the sandbox, with the permissions that are shown here and no others.
    """
    manifest = read_manifest(path, path.name)
    taken = _open_registry(invocation, plugins=False).find(manifest.name)
    if taken is not None and "bundle" not in taken.tags:
        raise AlreadyExists(kind="tool", value=taken.name)
    pin = _open_bundles(invocation).install(path, replace=replace)
    emit({**_simplify(pin), "permissions": manifest.permissions.explain()})


@command.command("remove")
@click.argument("name")
@pass_invocation
def remove(invocation: Invocation, name: str) -> None:
    """Remove the installed tool bundle NAME."""
    _open_bundles(invocation).remove(name)
    say(f"Removed {name}.", err=True)


@command.command("verify")
@click.argument("name", required=False)
@pass_invocation
def verify(invocation: Invocation, name: str | None) -> None:
    """Compare all installed tool bundles, or NAME, with what was installed.

    Ends with exit code 1 if one differs.
    """
    found = _open_bundles(invocation).verify(name or "")
    emit([_simplify(one) for one in found], columns=["name", "version", "sha256", "problem"])
    if any(one.problem for one in found):
        sys.exit(ExitCode.FAILED)


def _open_registry(invocation: Invocation, plugins: bool) -> ToolRegistry:
    client = AsyncClient(
        invocation.place, settings=invocation.settings
    )  # opens nothing before its first call
    registry = run_async(client.tools.registry()).child(scope="plugin")
    enabled = invocation.settings.plugins.enabled
    if plugins or "*" in enabled:
        registry.load_entry_points()
    elif enabled:
        registry.load_entry_points(packages=[normalize_name(name) for name in enabled])
    return registry


def _open_bundles(invocation: Invocation) -> LocalToolManager:
    return LocalToolManager(invocation.settings.tools.dir)


def read_object(text: str, option: str = "--args") -> JsonObject:
    """Return the JSON object that an option holds; raises UsageError."""
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise UsageError(detail=f"{option} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(detail=f'{option} is a JSON object, as in {{"path": "a.txt"}}.')
    return value


def _with_pairs(values: JsonObject, pairs: tuple[str, ...], tool: Tool) -> JsonObject:
    """Add what was given one by one; wrong arguments are told before anything is recorded."""
    more = read_pairs(pairs, tool.parameters)
    for name in sorted(more.keys() & values.keys()):
        raise UsageError(detail=f"The argument {name} is given twice, in --args too.")
    values = {**values, **more}
    tool.validate(values)
    return values


def _make_row(one: ToolExecution) -> JsonObject:
    begun = datetime.fromtimestamp(one.time_start, UTC) if one.time_start else None
    return {
        "time": begun.strftime("%Y-%m-%d %H:%M:%S") if begun else "",
        "tool": one.tool,
        "state": one.state,
        "seconds": f"{one.duration_s:.3f}" if one.duration_s is not None else "",
        "arguments": json.dumps(one.args, ensure_ascii=False)[:_SHORT],
        "session": one.session_id,
        "id": one.id,
    }


def _simplify(value: msgspec.Struct) -> JsonObject:
    built: JsonObject = msgspec.to_builtins(value)
    return built
