"""`holdfast mcp`: servers whose tools agents may use."""

from __future__ import annotations

import sys

import click
import msgspec

from holdfast.canonical import JsonObject
from holdfast.cli.exits import ExitCode
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client
from holdfast.cli.tools import call_by_hand, read_object
from holdfast.client import AsyncClient
from holdfast.errors import NotFound, UsageError
from holdfast.mcp import OfferedTool
from holdfast.runtime import ToolCallResult
from holdfast.settings import (
    McpEndpoint,
    Place,
    add_endpoint,
    check_endpoint,
    check_names,
    endpoint_file,
    remove_endpoint,
)

_HEALTH = ("name", "status", "latency_ms", "authenticated", "throttled", "invocations")
_BOXES = ("read-only", "read-only-network", "workspace-write", "network", "full")


@click.group("mcp", cls=Group)
def command() -> None:
    """List, check, add, call or trust MCP servers."""


@command.command("list")
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the configured servers; none of them is asked."""
    with open_client(invocation) as client:
        found = client.mcp.endpoints()
    emit(
        [_plain(one) for one in found],
        columns=["name", "transport", "enabled", "trusted", "where", "source"],
    )


@command.command("health")
@click.argument("name", required=False)
@pass_invocation
def health(invocation: Invocation, name: str | None) -> None:
    """Ask all servers, or NAME, how they are.

    Ends with exit code 1 if one that may be used does not answer.
    """
    with open_client(invocation) as client:
        found = [one for one in client.mcp.health() if name in (None, one.name)]
    if name and not found:
        raise NotFound(kind="MCP server", value=name)
    emit([_plain(one) for one in found], columns=[*_HEALTH, "tools", "last_error"])
    for one in found:
        if one.held_back:
            held = ", ".join(one.held_back)
            say(f"{one.name} holds back: {held}. See `holdfast mcp tools {one.name}`.", err=True)
    if any(one.status == "failed" for one in found):
        sys.exit(ExitCode.FAILED)


@command.command("tools")
@click.argument("name")
@pass_invocation
def tools(invocation: Invocation, name: str) -> None:
    """List what the server NAME offers now, and whether it is what was accepted."""
    with open_client(invocation) as client:
        offered, left_out = client.mcp.tools(name)
    _show(invocation, offered)
    for one in left_out:
        say(f"Left out: {one.tool!r}: {one.because}.", err=True, color="yellow")


@command.command("accept")
@click.argument("name")
@click.argument("tool", nargs=-1)
@pass_invocation
def accept(invocation: Invocation, name: str, tool: tuple[str, ...]) -> None:
    """Accept what the server NAME offers now, or each TOOL that is named.

    Tools that are new, or described otherwise than before, are held back until then. Read them
    first: `holdfast mcp tools NAME`.
    """
    with open_client(invocation) as client:
        _show(invocation, client.mcp.accept(name, tool))


@command.command("trust")
@click.argument("name")
@click.option("--revoke", is_flag=True, help="Take the word back.")
@pass_invocation
def trust(invocation: Invocation, name: str, revoke: bool) -> None:
    """Vouch for the server NAME of the project, as it is configured now.

    A project's file can name any program and any address. When it changes, the server has to
    be trusted again.
    """
    with open_client(invocation) as client:
        emit(_plain(client.mcp.trust(name, revoke=revoke)))


@command.command("invoke")
@click.argument("endpoint")
@click.argument("tool")
@click.option("--payload", default="{}", metavar="JSON", help="Arguments of the call.")
@click.option("--session", default="", metavar="ID", help="Call it in this session.")
@click.option("--run-id", default="", metavar="ID", help="Name the run; the same name resumes it.")
@click.option("--auto-confirm", is_flag=True, help="Answer yes to what asks; denies stay denied.")
@pass_invocation
def invoke(
    invocation: Invocation,
    endpoint: str,
    tool: str,
    payload: str,
    session: str,
    run_id: str,
    auto_confirm: bool,
) -> None:
    """Call TOOL of the server ENDPOINT, as an agent would: through the gate, recorded.

    On a terminal, a call that needs consent asks for it; elsewhere it is refused.
    """
    values = read_object(payload, "--payload")

    async def call(client: AsyncClient) -> ToolCallResult:
        return await client.mcp.invoke(endpoint, tool, values, session_id=session, run_id=run_id)

    call_by_hand(invocation, call, auto_confirm=auto_confirm)


@command.command("add")
@click.argument("name")
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", metavar="URL", help="Address of a server that speaks streamable HTTP.")
@click.option("--auth-token-env", metavar="VARIABLE", help="Variable that holds its token.")
@click.option("--rate-limit", type=click.IntRange(1), metavar="N", help="Calls per minute.")
@click.option("--sandbox", type=click.Choice(_BOXES), help="What its program may do.")
@click.option("--readable", multiple=True, metavar="DIR", help="Directory that it may read.")
@click.option("--writable", multiple=True, metavar="DIR", help="Directory that it may write.")
@click.option("--tool", "wanted", multiple=True, metavar="GLOB", help="Only such tools of it.")
@click.option("--project", is_flag=True, help="Write holdfast.toml rather than your own file.")
@pass_invocation
def add(invocation: Invocation, /, name: str, program: tuple[str, ...], **options: object) -> None:
    """Add the server NAME: a PROGRAM with its arguments, after --, or an address with --url.

    Example: holdfast mcp add files --readable /opt/mcp -- /opt/mcp/bin/files-server --root .
    """
    url, is_project = options["url"], options["project"]
    if bool(url) == bool(program):
        raise UsageError(detail="Give --url, or a program after --, and not both.")
    said: JsonObject = {"transport": "http" if url else "stdio"}
    said |= {"url": url} if url else {"command": program[0], "args": list(program[1:])}
    said |= {
        key: list(given) if isinstance(given := options[option], tuple) else given
        for key, option in (
            ("auth_token_env", "auth_token_env"),
            ("rate_limit_per_minute", "rate_limit"),
            ("sandbox", "sandbox"),
            ("readable", "readable"),
            ("writable", "writable"),
            ("tools", "wanted"),
        )
        if options[option]
    }
    checked = check_endpoint(name, said)
    if is_project and checked.sandbox == "full":
        raise UsageError(detail="A project cannot say `--sandbox full`; leave --project away.")
    _check_others(invocation, name, checked)
    place: Place = "project" if is_project else "user"
    path = endpoint_file(place)
    add_endpoint(path, name, said)
    emit({"name": name, "file": str(path), **said})
    if is_project:
        say(f"It is used once it is trusted: holdfast mcp trust {name}", err=True)


@command.command("remove")
@click.argument("name")
@click.option("--project", is_flag=True, help="Take it out of holdfast.toml instead.")
@pass_invocation
def remove(invocation: Invocation, name: str, project: bool) -> None:
    """Remove the server NAME from your own file, and forget what was accepted of it."""
    path = endpoint_file("project" if project else "user")
    remove_endpoint(path, name)
    with open_client(invocation) as client:
        client.mcp.forget(name)
    say(f"Removed {name} from {path}.", err=True)


def _check_others(invocation: Invocation, name: str, checked: McpEndpoint) -> None:
    try:
        check_names({**invocation.settings.mcp_endpoints, name: checked})
    except ValueError as error:
        raise UsageError(detail=f"The MCP server cannot be added: {error}.") from error


def _show(invocation: Invocation, offered: list[OfferedTool]) -> None:
    rows = [_plain(one) for one in offered]
    if invocation.is_text:
        for row in rows:
            row["purpose"] = str(row["description"]).partition("\n")[0]
    emit(rows, columns=["tool", "name", "effect", "verdict", "purpose"])


def _plain(value: msgspec.Struct) -> JsonObject:
    built: JsonObject = msgspec.to_builtins(value)
    return built
