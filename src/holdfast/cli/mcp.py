"""`holdfast mcp`: servers whose tools agents may use."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import sys
import webbrowser
from pathlib import Path
from typing import get_args

import click
import msgspec

from holdfast.canonical import JsonObject
from holdfast.cli.exits import ExitCode
from holdfast.cli.frame import Group, Invocation, pass_invocation
from holdfast.cli.mcp_connect import command as connect
from holdfast.cli.output import emit, say
from holdfast.cli.sessions import open_client
from holdfast.cli.tools import call_by_hand, read_object
from holdfast.client import AsyncClient
from holdfast.errors import NotFound, UsageError
from holdfast.mcp import Needs, OfferedTool, find_needs
from holdfast.runtime import ToolCallResult
from holdfast.settings import (
    McpEndpoint,
    McpSandbox,
    Place,
    add_endpoint,
    check_endpoint,
    check_names,
    find_endpoint_file,
    remove_endpoint,
)

_FETCHING_S = 180.0
_HEALTH = ("name", "status", "latency_ms", "authenticated", "throttled", "invocations")
_BOXES = get_args(McpSandbox)


@click.group("mcp", cls=Group)
def command() -> None:
    """List, check, add, call or trust MCP servers; be one yourself."""


command.add_command(connect)


@command.command("list")
@pass_invocation
def list_(invocation: Invocation) -> None:
    """List the configured servers; none of them is asked."""
    with open_client(invocation) as client:
        found = client.mcp.endpoints()
    emit(
        [_simplify(one) for one in found],
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
    emit([_simplify(one) for one in found], columns=[*_HEALTH, "tools", "last_error"])
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


@command.command("resources")
@click.argument("name")
@pass_invocation
def resources(invocation: Invocation, name: str) -> None:
    """List what can be read from the server NAME; `mcp invoke NAME read_resource` reads one."""
    with open_client(invocation) as client:
        found = client.mcp.list_resources(name)
    emit([_simplify(one) for one in found], columns=["uri", "name", "media_type", "is_template"])


@command.command("prompts")
@click.argument("name")
@pass_invocation
def prompts(invocation: Invocation, name: str) -> None:
    """List the prompts of the server NAME; `mcp invoke NAME get_prompt` fills one in."""
    with open_client(invocation) as client:
        found = client.mcp.list_prompts(name)
    emit([_simplify(one) for one in found], columns=["name", "description", "arguments"])


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
        emit(_simplify(client.mcp.trust(name, revoke=revoke)))


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
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="Host that it may reach.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Variable; ${NAME} is looked up.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header for --url.")
@click.option("--timeout", type=float, metavar="S", help="How long one call may take.")
@click.option("--connect-timeout", type=float, metavar="S", help="How long it may take to start.")
@click.option("--yes", is_flag=True, help="Grant what it was found to need, unasked.")
@click.option("--tool", "wanted", multiple=True, metavar="GLOB", help="Only such tools of it.")
@click.option("--project", is_flag=True, help="Write holdfast.toml rather than your own file.")
@pass_invocation
def add(invocation: Invocation, /, name: str, program: tuple[str, ...], **options: object) -> None:
    """Add the server NAME: a PROGRAM with its arguments, after --, or an address with --url.

    A program that is installed outside the system directories, and one that npx or uvx fetches,
    needs places to read and hosts to reach. They are found out and shown; at a terminal you are
    asked whether to grant them, elsewhere --yes does. A host is reached through a proxy, which
    lets nothing else pass; see `holdfast mcp grant` and `revoke`.

    \b
    holdfast mcp add time -- uvx mcp-server-time
    holdfast mcp add files -- npx @modelcontextprotocol/server-filesystem .
    holdfast mcp add tracker --url https://tracker.example/mcp --header 'X-Key=${TRACKER_KEY}'
    """
    url, is_project = options["url"], options["project"]
    if bool(url) == bool(program):
        example = f"holdfast mcp add {name} -- uvx mcp-server-{name}"
        detail = f"Give --url, or a program after --, and not both, as in: {example}"
        raise UsageError(detail=detail)
    said: JsonObject = {"transport": "http" if url else "stdio"}
    said |= {"url": url} if url else {"command": program[0], "args": list(program[1:])}
    if options["hosts"]:
        said["sandbox"] = "read-only-filtered"
    said |= {
        key: list(given) if isinstance(given := options[option], tuple) else given
        for key, option in (
            ("auth_token_env", "auth_token_env"),
            ("rate_limit_per_minute", "rate_limit"),
            ("sandbox", "sandbox"),
            ("readable", "readable"),
            ("writable", "writable"),
            ("hosts", "hosts"),
            ("timeout_s", "timeout"),
            ("connect_timeout_s", "connect_timeout"),
            ("tools", "wanted"),
        )
        if options[option]
    }
    for key in ("env", "headers"):
        if pairs := options[key]:
            said[key] = _read_pairs(f"--{key.removesuffix('s')}", pairs)
    if program:
        said = _with_needs(invocation, name, said, is_granted=bool(options["yes"]))
    checked = check_endpoint(name, said)
    if is_project and checked.sandbox == "full":
        raise UsageError(detail="A project cannot say `--sandbox full`; leave --project away.")
    _check_others(invocation, name, checked)
    place: Place = "project" if is_project else "user"
    path = find_endpoint_file(place)
    add_endpoint(path, name, said)
    emit({"name": name, "file": str(path), **said})
    if is_project:
        say(f"It is used once it is trusted: holdfast mcp trust {name}", err=True)
    if importlib.util.find_spec("mcp") is None:
        say("It needs what is not installed yet: pip install 'holdfast[mcp]'", err=True)
    else:
        say(f"See what it offers: holdfast mcp tools {name}", err=True)


@command.command("remove")
@click.argument("name")
@click.option("--project", is_flag=True, help="Take it out of holdfast.toml instead.")
@pass_invocation
def remove(invocation: Invocation, name: str, project: bool) -> None:
    """Remove the server NAME from your own file, and forget what was accepted of it."""
    path = find_endpoint_file("project" if project else "user")
    remove_endpoint(path, name)
    with open_client(invocation) as client:
        client.mcp.forget(name)
    say(f"Removed {name} from {path}.", err=True)


@command.command("grant")
@click.argument("name")
@click.argument("host", nargs=-1, required=True)
@pass_invocation
def grant(invocation: Invocation, name: str, host: tuple[str, ...]) -> None:
    """Let the program of the server NAME reach each HOST: a.example, *.b.example, c.example:8443.

    It is remembered, and holds from the program's next request on. What network.yaml does not
    allow stays closed.
    """
    with open_client(invocation) as client:
        emit(_simplify(client.mcp.grant(name, host)))


@command.command("revoke")
@click.argument("name")
@click.argument("host", nargs=-1)
@pass_invocation
def revoke(invocation: Invocation, name: str, host: tuple[str, ...]) -> None:
    """Close each HOST, or all of them, to the program of the server NAME, at once."""
    with open_client(invocation) as client:
        emit(_simplify(client.mcp.grant(name, host, revoke=True)))


@command.command("login")
@click.argument("name")
@click.option("--no-browser", is_flag=True, help="Only print the address of the page.")
@pass_invocation
def login(invocation: Invocation, name: str, no_browser: bool) -> None:
    """Log in at the server NAME by OAuth, in a browser on this machine.

    Tokens are kept in the state directory, readable for you only, refreshed when they end, and
    sent to this server and no other. `holdfast mcp logout NAME` forgets them.
    """

    async def visit(url: str) -> None:
        say(f"Log in at {name} here:\n{url}", err=True)
        if not no_browser:
            await asyncio.to_thread(webbrowser.open, url)

    with open_client(invocation) as client:
        emit(_simplify(client.mcp.log_in(name, visit)))


@command.command("logout")
@click.argument("name")
@pass_invocation
def logout(invocation: Invocation, name: str) -> None:
    """Forget the login at the server NAME."""
    with open_client(invocation) as client:
        was_known = client.mcp.log_out(name)
    emit({"name": name, "was_logged_in": was_known})


@command.command("serve")
@click.argument("target", required=False, metavar="[MODULE:NAME]")
@click.option("--tool", "patterns", multiple=True, metavar="GLOB", help="Offer such tools too.")
@pass_invocation
def serve(invocation: Invocation, target: str | None, patterns: tuple[str, ...]) -> None:
    """Be an MCP server on standard input and output: each agent is a tool of it.

    Clients start this command themselves; `holdfast mcp connect` configures them. Agents of
    MODULE:NAME are offered besides those of the project. Tools that you registered are offered,
    built-in ones only where --tool names them.
    """
    from holdfast.server import load_agents, serve_stdio  # noqa: PLC0415 - an optional extra

    settings = invocation.settings
    agents = load_agents(target, directory=settings.workspace) if target else ()
    asyncio.run(serve_stdio(settings, agents=agents, tool_patterns=patterns))


def _read_pairs(option: str, given: object) -> dict[str, str]:
    assert isinstance(given, tuple)
    pairs = [str(one).partition("=") for one in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise UsageError(detail=f"{option} wants NAME=VALUE, and {name!r} is none.")
    return {name: value for name, _, value in pairs}


def _with_needs(
    invocation: Invocation, name: str, said: JsonObject, *, is_granted: bool
) -> JsonObject:
    """Add what the program needs, if a person grants it; what was said by hand stands."""
    if said.get("sandbox") == "full":
        return said
    program = [str(said["command"]), *map(str, said["args"])]
    if program[0].startswith(".") or not (shutil.which(program[0]) or "/" not in program[0]):
        return said  # a program of the workspace, wherever that is when the server is used
    needs = find_needs(name, program, cache_dir=str(invocation.settings.storage.state_dir))
    said = {**said, "command": needs.command, "args": list(needs.args)}
    if not needs.is_more:
        return said
    _show_needs(name, needs)
    if not is_granted and not (
        sys.stdin.isatty() and click.confirm("Grant it that?", default=False, err=True)
    ):
        say("Nothing of it is granted; --yes does, or --readable, --writable, --host.", err=True)
        return said
    extra: JsonObject = {"readable": [*said.get("readable", ()), *needs.readable]}
    if needs.cache:
        Path(needs.cache).mkdir(parents=True, exist_ok=True, mode=0o700)
        extra["writable"] = [*said.get("writable", ()), needs.cache]
        extra["env"] = {**needs.env, **said.get("env", {})}
        extra["hosts"] = list(dict.fromkeys((*said.get("hosts", ()), *needs.hosts)))
        extra["connect_timeout_s"] = said.get("connect_timeout_s", _FETCHING_S)
        extra["sandbox"] = said.get("sandbox", needs.sandbox)
    return {**said, **{key: value for key, value in extra.items() if value}}


def _show_needs(name: str, needs: Needs) -> None:
    say(f"The program of {name} needs", err=True)
    for path in needs.readable:
        say(f"  to read   {path}", err=True)
    if needs.cache:
        say(f"  to write  {needs.cache} (packages that it fetches)", err=True)
    for host in needs.hosts:
        say(f"  to reach  {host} (through the proxy; network.yaml has to allow it)", err=True)
    if needs.unknown:
        say(f"  not known: {needs.unknown}", err=True)


def _check_others(invocation: Invocation, name: str, checked: McpEndpoint) -> None:
    try:
        check_names({**invocation.settings.mcp_endpoints, name: checked})
    except ValueError as error:
        raise UsageError(detail=f"The MCP server cannot be added: {error}.") from error


def _show(invocation: Invocation, offered: list[OfferedTool]) -> None:
    rows = [_simplify(one) for one in offered]
    if invocation.is_text:
        for row in rows:
            row["purpose"] = str(row["description"]).partition("\n")[0]
    emit(rows, columns=["tool", "name", "effect", "verdict", "purpose"])


def _simplify(value: msgspec.Struct) -> JsonObject:
    built: JsonObject = msgspec.to_builtins(value)
    return built
