"""Write the generated reference pages: configuration, command line, operations, errors, tools.

python scripts/reference.py           write docs/reference/*.md
python scripts/reference.py --check   only say which pages are out of date
"""

from __future__ import annotations

import inspect
import re
import runpy
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import click
import msgspec
from pydantic_core import PydanticUndefined

from holdfast.cli.app import root
from holdfast.cli.docs import explain_error, list_error_classes
from holdfast.cli.exits import ExitCode
from holdfast.client import AsyncClient
from holdfast.client.handles import RunHandle
from holdfast.client.surface import FLAT, ClientSurface
from holdfast.operations import LocalFunction, list_local_functions, list_operations
from holdfast.operations.table import NAMESPACES
from holdfast.server.openapi import make_document
from holdfast.settings import CONFIG_VARIABLE, Key, McpEndpoint, list_keys, list_sections

PAGES = Path(__file__).resolve().parent.parent / "docs" / "reference"
_NOTE = "<!-- Written by scripts/reference.py; change the source, then run it. -->\n"
_EXIT_MEANINGS = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "failed",
    ExitCode.USAGE: "the call was wrong: unknown command or option, something that does not exist",
    ExitCode.CONFIGURATION: "the settings are wrong, or an optional part is not installed",
    ExitCode.AUTHENTICATION: "a key is missing or was refused",
    ExitCode.WAITING: "waiting for a person; the command that answers is printed",
    ExitCode.DENIED: "denied by a policy or a person",
    ExitCode.BUDGET: "the budget is exhausted",
    ExitCode.INTERRUPTED: "interrupted with Ctrl-C; what was under way is recorded as cancelled",
}


def configuration() -> str:
    """The page of all settings."""
    lines = [_NOTE, "# Configuration", "", inspect.cleandoc(_CONFIGURATION_INTRO), ""]
    for section in ["", *list_sections()]:
        keys = [key for key in list_keys().values() if key.name.rpartition(".")[0] == section]
        if not keys:
            continue
        title = f"[{section}]" if section else "Outside of sections"
        about = inspect.getdoc(list_sections()[section]) if section else "What all others rest on."
        lines += [f"## {title}", "", str(about), ""]
        lines += ["| key | variable | value | default | meaning |", "|---|---|---|---|---|"]
        lines += [_key_row(key) for key in keys]
        lines.append("")
    lines += ["## [mcp_endpoints.NAME]", "", str(inspect.getdoc(McpEndpoint)), ""]
    lines += ["| key | default | meaning |", "|---|---|---|"]
    for name, info in McpEndpoint.model_fields.items():
        default = info.default
        if default is PydanticUndefined:
            shown = "needed"
        elif isinstance(default, bool):
            shown = f"`{str(default).lower()}`"
        elif isinstance(default, tuple):
            shown = f"`{list(default)}`".replace("'", '"')
        else:
            shown = f"`{default}`" if default else "not set"
        lines.append(f"| `{name}` | {shown} | {info.description} |")
    return "\n".join([*lines, ""])


_CONFIGURATION_INTRO = f"""
Every setting can be given in several places. The strongest one decides, here from weak to
strong:

1. the default,
2. your own file `$XDG_CONFIG_HOME/holdfast/config.toml` (`~/.config/holdfast/config.toml`),
3. the project's `holdfast.toml`, searched from the working directory up to the root of the
   repository (outside a repository: in the working directory only), or the file that
   `{CONFIG_VARIABLE}` names,
4. the overlay `holdfast.<env>.toml` beside it, if `HOLDFAST_ENV` is `dev`, `staging` or `prod`,
5. `.env`, searched like the project file,
6. the secrets file, for keys only,
7. the environment,
8. options of the command line and arguments in Python.

`holdfast config view` shows each value and where it came from; `holdfast config validate`
names every mistake in every source at once and ends with 3.

- Unknown keys in files and unknown `HOLDFAST_…` variables are refused, with the nearest known
  one; other variables are ignored, and so is an empty variable.
- Keys for models come from variables or the secrets file, never from a TOML file. The secrets
  file must have mode 0600.
- `NAME_FILE` in the environment names a file that holds the value of `NAME`, as Docker and
  Kubernetes mount secrets: `OPENAI_API_KEY_FILE=/run/secrets/openai`. It works for every key
  below and for those of other providers and MCP servers; the path is absolute, the file has one
  line, and setting both is refused. Tools and programs of agents cannot see such a file. The
  password of a Postgres is no part of an address: `PGPASSWORD`, or `PGPASSFILE` in libpq's form.
- A key from your environment is not sent to a foreign base URL that only a project file or
  `.env` names: a cloned repository could steal it. Set the URL in the environment or in your
  own file if you trust it. Loopback, private addresses and the vendor's own host are fine.
- Switches are `true`, `false`, `1`, `0`, `yes`, `no`, `on` or `off`; durations are seconds or
  a number with `s`, `m`, `h`, `d` or `w`; `none` means without limit.
- Relative paths start at the file that names them, or at the working directory; `~` is your
  home directory.
- A file may have at most 64 KiB.

```toml
# holdfast.toml
[model]
name = "gpt-4o-mini"
openai_base_url = "http://127.0.0.1:1234/v1"

[storage]
durability = "power"

[storage.retention]
session_ttl_s = "90d"
```
"""


def _key_row(key: Key) -> str:
    default = key.info.default
    if default is PydanticUndefined or key.is_path:
        shown = "see meaning"
    elif default is None or default == "":
        shown = "none" if key.name.startswith("storage.retention") else "not set"
    else:
        shown = f"`{str(default).lower() if isinstance(default, bool) else default}`"
    place = "" if key.is_allowed_in_files else " Not in TOML files."
    cells = [f"`{key.name}`", f"`{key.variable}`", _kind(key), shown, key.description + place]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _kind(key: Key) -> str:
    if key.is_secret:
        return "key"
    if key.is_path:
        return "path"
    if key.name == "mcp_endpoints":
        return "tables by name, see below"
    annotation: object = key.info.annotation
    choices = list(_choices(annotation))
    if choices:
        return ", ".join(f"`{choice}`" for choice in choices)
    real = "duration" if key.name.endswith("_s") else "number"
    for wanted, name in ((bool, "switch"), (int, "number"), (float, real), (str, "text")):
        if _mentions(annotation, wanted):
            return "URL" if key.name.endswith("_url") else name
    raise ValueError(f"no word for the type of {key.name}")


def _choices(annotation: object) -> Iterator[str]:
    if typing.get_origin(annotation) is Literal:
        yield from map(str, typing.get_args(annotation))
        return
    for part in typing.get_args(annotation):
        yield from _choices(part)


def _mentions(annotation: object, wanted: type) -> bool:
    return annotation is wanted or any(
        _mentions(part, wanted) for part in typing.get_args(annotation)
    )


def command_line() -> str:
    """The page of all commands."""
    lines = [_NOTE, "# Command line", ""]
    lines += [
        "`holdfast`, `python -m holdfast` and `python -m agent` are the same program. The global",
        "options may stand before or after the command. Results go to stdout, everything else to",
        "stderr; with `--json` errors are one JSON object on stderr. Colours appear on a terminal",
        "only, and not with `NO_COLOR` or `--no-color`. No command asks a question without a",
        "terminal. Ctrl-C: see [stop a run](../howto/stop-a-run.md).",
        "",
        "## Exit codes",
        "",
        "| code | meaning |",
        "|---|---|",
        *(f"| {int(code)} | {_EXIT_MEANINGS[code]} |" for code in ExitCode),
        "",
    ]
    for path, text in _helps(root, None, "holdfast"):
        lines += [f"## {path}", "", "```text", text.rstrip(), "```", ""]
    return "\n".join(lines)


def _helps(
    command: click.Command, parent: click.Context | None, name: str
) -> Iterator[tuple[str, str]]:
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=88,
        help_option_names=root.context_settings["help_option_names"],
    )
    text = command.get_help(context)
    if parent is not None:
        parts = text.split("\n\n")
        text = "\n\n".join(part for part in parts if not part.startswith("Global options:"))
    yield context.command_path, text
    if isinstance(command, click.Group):
        for member in command.list_commands(context):
            found = command.get_command(context, member)
            if found is not None and not found.hidden:
                yield from _helps(found, context, member)


def errors() -> str:
    """The page of all errors."""
    lines = [_NOTE, "# Errors", ""]
    lines += [
        "Every error has a code that never changes; `holdfast docs CODE` explains it offline. "
        "`{…}` stands for what the error names.",
        "",
    ]
    for cls in list_error_classes():
        told = explain_error(cls)
        lines += [
            f"## {cls.code}",
            "",
            inspect.cleandoc(cls.__doc__ or ""),
            "",
            f"- Class: `{told['class']}`, a kind of `{told['kind_of']}`",
            f"- Says: `{told['says']}`",
            f"- What to do: {told['next_step'] or 'see the message.'}",
            f"- Worth trying again unchanged: {'yes' if told['is_retryable'] else 'no'}",
            f"- Exit code: {told['exit_code']}",
            "",
        ]
    return "\n".join(lines)


def _tool_pages() -> dict[str, str]:
    """The pages of the built-in tools; scripts are no package, so they are found by path."""
    found = runpy.run_path(str(Path(__file__).with_name("tool_pages.py")))
    made: dict[str, str] = found["tool_pages"]()
    return made


def client() -> str:
    """The page of the clients: every namespace with its methods, handles, then the flat names."""
    opened = AsyncClient("nowhere")  # opens nothing before its first call
    namespaces = list(NAMESPACES)
    lines = [_NOTE, "# Clients", "", inspect.cleandoc(_CLIENT_INTRO), ""]
    lines += ["| namespace | what it is about |", "|---|---|"]
    lines += [
        f"| [`client.{name}`](#client{name}) | {_first_line(type(getattr(opened, name)))} |"
        for name in namespaces
    ]
    lines.append("")
    for name in namespaces:
        lines += _namespace(name, getattr(opened, name))
    lines += [*inspect.cleandoc(_HANDLE_INTRO).splitlines(), ""]
    lines += ["| method | what it does |", "|---|---|"]
    lines += [
        f"| `run.{name}({_handle_parameters(member)})` | {_first_line(member)} |"
        for name, member in vars(RunHandle).items()
        if not name.startswith("_")
    ]
    lines += ["", *inspect.cleandoc(_SET_INTRO).splitlines(), ""]
    lines += ["| attribute | can be set | what it is |", "|---|---|---|"]
    lines += [
        f"| `client.{name}` | {'yes' if member.fset else 'no'} | {_first_line(member)} |"
        for name, member in vars(ClientSurface).items()
        if isinstance(member, property) and name not in namespaces
    ]
    lines += ["", *inspect.cleandoc(_FLAT_INTRO).splitlines(), "", "| name | is |", "|---|---|"]
    lines += [f"| `client.{name}` | `client.{home}` |" for name, home in FLAT.items()]
    return "\n".join([*lines, ""])


def _namespace(name: str, surface: object) -> list[str]:
    """One namespace: its operations, then what cannot travel."""
    lines = [f"## client.{name}", "", inspect.getdoc(surface) or "", ""]
    remote = ["| method | scope | what it does |", "|---|---|---|"]
    local = ["| method, local | what it does | elsewhere |", "|---|---|---|"]
    for attribute, member in vars(type(surface)).items():
        if attribute.startswith("_"):
            continue
        method = getattr(surface, attribute)
        operation = getattr(member, "operation", member)
        call = f"`{attribute}({', '.join(_parameters(method))})`"
        if isinstance(operation, LocalFunction):
            local.append(f"| {call} | {_first_line(method)} | {operation.instead} |")
        else:
            remote.append(f"| {call} | `{operation.scope}` | {_first_line(method)} |")
    for table in (remote, local):
        if len(table) > 2:
            lines += [*table, ""]
    return lines


def _handle_parameters(member: object) -> str:
    operation = member._operation  # type: ignore[attr-defined]
    given = list(_parameters(operation.function))
    return ", ".join(given[3:])  # without the runtime, the caller and the run


_CLIENT_INTRO = """
`AsyncClient` and `Client` have the same namespaces; the methods of `Client` need no `await`,
may be called from any thread, and also inside a running event loop (which they block
meanwhile). A call from the loop that serves the client could never return and raises
`WouldDeadlock`. A method that yields is an (async) iterator.

Each method is an operation of one table (`holdfast.operations`), and needs a scope; locally the
caller is the owner of the state directory and has them all. What takes or gives Python objects
is *local*: it cannot travel to a runtime on another machine, and its table says what to do there
instead. How this is built: [the architecture](../concepts/architecture.md).
"""

_HANDLE_INTRO = """
## Handles

`run = await client.runs.start(…)` returns a handle with `run.id` and `run.session_id`; the run
goes on whether or not anybody holds it. See
[start a run, and follow it](../howto/start-and-follow-a-run.md).
"""

_SET_INTRO = """
## What holds for all runs of a client
"""

_FLAT_INTRO = """
## Names without a namespace

The names that people know from elsewhere, each a forward to the same method.
"""


_OPERATIONS_INTRO = """
Everything that can be asked of Holdfast from outside, as one table: the clients, the command
line and whatever speaks over a network are made from it. A request is a JSON object with the
fields below; an answer is JSON of the type that is named, `stream of` means one after the other.
Errors travel as `code`, `message`, `hint`, `is_retryable` and `context`, see [errors](errors.md).

A caller needs the scope that stands here. `runs:*` means every scope of a kind, `*` all.
`runs:write:helper` is limited to the agent `helper`, and suffices where *per agent* is noted. A
field with a scope of its own needs that one too when it is given. Nobody but the owner of the
state directory may answer in another one's name (`by`).
"""

_LOCAL_INTRO = """
## What stays in its process

These take or give Python objects; where the runtime is on another machine, do what stands beside.
"""

_ROLES_INTRO = """
## Scopes and roles

A role is a set of scopes. What a role usually has, each with all of the one before:

| role | scopes |
|---|---|
| viewer | every `…:read` but `audit:read` and `storage:read` |
| operator | `runs:`, `sessions:`, `memory:`, `artifacts:write`, `tools:call`, `approvals:answer` |
| developer | `agents:write`, `triggers:write`, `storage:read` |
| admin | `*` |
"""


def operations() -> str:
    """The page of all operations: scope, request and response."""
    lines = [_NOTE, "# Operations", "", inspect.cleandoc(_OPERATIONS_INTRO), ""]
    found = list_operations()
    for namespace in NAMESPACES:
        own = [one for name, one in found.items() if name.partition(".")[0] == namespace]
        lines += [f"## {namespace}", "", "| operation | scope | request | response |"]
        lines.append("|---|---|---|---|")
        lines += [_operation_row(one) for one in own]
        lines.append("")
    lines += [*inspect.cleandoc(_ROLES_INTRO).splitlines(), ""]
    lines += [*inspect.cleandoc(_LOCAL_INTRO).splitlines(), ""]
    lines += ["| function | elsewhere |", "|---|---|"]
    lines += [f"| `{name}` | {one.instead} |" for name, one in list_local_functions().items()]
    for name, one in found.items():
        for field, advice in one.local_parts.items():
            told = "; ".join(dict.fromkeys(part.instead for part in advice))
            lines.append(f"| `{name}`, objects as `{field}` | {told} |")
    return "\n".join([*lines, ""])


def _operation_row(one: typing.Any) -> str:  # noqa: ANN401 - an operation of either kind
    limited = ", *per agent*" if one.rights.agents is not None else ""
    fields = []
    for field in msgspec.structs.fields(one.request):
        also = one.rights.also.get(field.name)
        shown = f"`{field.name}{'' if field.required else '?'}: {_type_text(field.type)}`"
        fields.append(f"{shown} (`{also}`)" if also else shown)
    answer = ("stream of " if one.is_stream else "") + f"`{_type_text(one.response)}`"
    cells = [f"`{one.name}`", f"`{one.scope}`{limited}", "<br>".join(fields), answer]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type_text(hint: object) -> str:
    """A type in few words: names without their modules."""
    if hint is None or hint is type(None):
        return "None"
    if typing.get_origin(hint) is typing.Annotated:
        return _type_text(typing.get_args(hint)[0])
    text = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)
    return text.replace("dict[str, Any]", "object").replace("'", '"')


def _first_line(method: object) -> str:
    return (inspect.getdoc(method) or "").splitlines()[0]


def _parameters(method: Callable[..., object]) -> Iterator[str]:
    is_keyword = False
    for parameter in inspect.signature(method).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            is_keyword = True
            yield "*"
        default = parameter.default
        if default is parameter.empty:
            yield parameter.name
        else:
            is_short = isinstance(default, str | int | float | tuple | None)
            shown = repr(default).replace("'", '"') if is_short else "…"
            yield f"{parameter.name}={shown}"


def pages() -> dict[str, str]:
    """Every generated page by file name."""
    return {
        "configuration.md": configuration(),
        "cli.md": command_line(),
        "client.md": client(),
        "operations.md": operations(),
        "errors.md": errors(),
        "openapi.json": make_document().decode(),
        **_tool_pages(),
    }


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check compare them; 1 if a page is out of date."""
    is_stale = False
    for name, text in pages().items():
        path = PAGES / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        is_stale = True
        if "--check" in arguments:
            sys.stdout.write(f"{name} is out of date: run scripts/reference.py\n")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {name}\n")
    return int(is_stale and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
