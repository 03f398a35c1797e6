"""The classes that commands are made of: global options everywhere, lazy loading.

A command module holds `command`, made with `@click.command(cls=Command)` or
`@click.group(cls=Group)`; members of a group get the right class by themselves. Every
command takes the global options at its end too: `holdfast --json config view` and
`holdfast config view --json` are the same call. A command asks for them with
`@pass_invocation`.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast import settings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_WHOLE: Final = 400
FORMATS: Final = ("text", "json", "stream-json")
_COMMAND_SHAPE: Final = re.compile(r"[a-z][a-z0-9-]*")
_SAME_MEANING: Final = tuple(
    frozenset(words.split())
    for words in (
        "add create new register store remember save make",
        "answer approve",
        "cancel stop kill abort",
        "check lint validate test",
        "delete remove rm del forget erase drop",
        "find search query recall grep",
        "get show info inspect view describe cat status",
        "invoke call run exec execute",
        "list ls all index",
        "revert undo rollback",
        "watch tail follow",
    )
)
"""What other programs call the same thing; asked only where a word names no command."""


def repair_text(text: str) -> str:
    """Return what a person typed as text that can be stored, whatever the locale says.

    Python reads bytes that do not fit the locale as lone surrogates. Nearly always they are
    UTF-8; what is not becomes a replacement character.
    """
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@dataclass(kw_only=True)
class Invocation:
    """What the global options of one call say; commands read it, nothing else writes it."""

    output: str = "text"
    is_debug: bool = False
    no_color: bool = False
    overrides: dict[str, object] = field(default_factory=dict)
    logs_events: bool = False
    """Whether nobody watches: the log then tells of runs, from `info` on unless set otherwise."""
    _loaded: settings.LoadedSettings | None = None
    _is_logging: bool = False

    @property
    def is_text(self) -> bool:
        """Whether people read the output, rather than programs."""
        return self.output == "text"

    @property
    def loaded(self) -> settings.LoadedSettings:
        """The settings with their sources, read once per call.

        Raises:
            ConfigError: some source has mistakes; all of them are named.
        """
        if self._loaded is None:
            self._loaded = settings.load_settings(overrides=self.overrides)
        return self._loaded

    @property
    def settings(self) -> settings.Settings:
        """The settings of this call; raises ConfigError like `loaded`.

        The person who asks is about to work, so the log is set up with them. Commands show
        what a run does by themselves: there the log tells of it only where a level is set.
        """
        if not self._is_logging:
            self._is_logging = True
            is_wished = self.loaded.find_source("log.level") != "default"
            if self.logs_events and not is_wished:
                self.overrides["log.level"] = "info"
                self._loaded = None
            importlib.import_module("holdfast.observability").configure_logs(
                self.loaded.settings, has_events=is_wished or self.logs_events
            )
        return self.loaded.settings

    @property
    def place(self) -> str | None:
        """The address of the server to ask (`--server`, HOLDFAST_SERVER); `None` for here."""
        return self.settings.remote.url


pass_invocation = click.make_pass_decorator(Invocation, ensure=True)


def _note_output(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Invocation).output = value


def _note_json(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).output = "json"


def _note_stream(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).output = "stream-json"


def _note_debug(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).is_debug = True


def _note_no_color(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).no_color = True


def _note_state_dir(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Invocation).overrides["storage.state_dir"] = value


def _note_server(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Invocation).overrides["remote.url"] = value


def _note_workspace(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.ensure_object(Invocation).overrides["workspace"] = value


def list_global_options() -> list[click.Option]:
    """Fresh global options; every command takes them."""
    return [
        click.Option(
            ["-o", "--output"],
            type=click.Choice(FORMATS),
            callback=_note_output,
            expose_value=False,
            is_eager=True,
            help="Form of the result.  [default: text]",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            callback=_note_json,
            expose_value=False,
            is_eager=True,
            help="Short for --output json.",
        ),
        click.Option(
            ["--stream-json"],
            is_flag=True,
            callback=_note_stream,
            expose_value=False,
            is_eager=True,
            help="Short for --output stream-json.",
        ),
        click.Option(
            ["--state-dir"],
            metavar="DIR",
            callback=_note_state_dir,
            expose_value=False,
            help="Where Holdfast keeps its records (AGENT_STATE_DIR).",
        ),
        click.Option(
            ["--workspace"],
            metavar="DIR",
            callback=_note_workspace,
            expose_value=False,
            help="Where agents read and write files (AGENT_WORKSPACE).",
        ),
        click.Option(
            ["--server"],
            metavar="URL",
            callback=_note_server,
            expose_value=False,
            help="Ask this Holdfast server instead (HOLDFAST_SERVER).",
        ),
        click.Option(
            ["--no-color"],
            is_flag=True,
            callback=_note_no_color,
            expose_value=False,
            is_eager=True,
            help="Print without colours, as NO_COLOR does.",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            callback=_note_debug,
            expose_value=False,
            is_eager=True,
            help="Print the traceback of an error.",
        ),
    ]


def _count_differences(word: str, other: str) -> int:
    """Return how many letters have to be changed, put in or left out (Levenshtein distance)."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(word, 1):
        before, row[0] = row[0], number
        for place, one in enumerate(other, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (letter != one)),
            )
    return row[-1]


class UnknownCommand(click.UsageError):
    """The word names no command; `hint` names the nearest one."""

    def __init__(self, word: str, group: Group, ctx: click.Context) -> None:
        """Look for the nearest of the group's commands, here or one level below."""
        super().__init__(f"There is no command {word!r}.", ctx)
        path = ctx.command_path
        near = _find_near(word, group, ctx)
        self.hint = (
            f"Did you mean `{path} {near[0]}`?" if near else f"See `{path} --help` for all of them."
        )


def _find_near(word: str, group: Group, ctx: click.Context) -> list[str]:
    """Return the command that was probably meant, if there is one."""
    if word in group.below:
        return [group.below[word]]
    find_near = importlib.import_module("difflib").get_close_matches
    known = group.list_commands(ctx)
    near: list[str] = find_near(word, known, n=2, cutoff=0.5)
    # Of two that are as near, one wrong letter is likelier than one too many.
    near.sort(key=lambda one: (_count_differences(word, one), len(one) != len(word)))
    # A slip of the fingers lies nearer than another word for it; a mere likeness does not.
    if find_near(word, known, n=1, cutoff=0.75):
        return near[:1]
    same = frozenset[str]().union(*(one for one in _SAME_MEANING if word in one))
    if meant := [one for one in known if one in same]:
        return meant[:1]
    return near[:1]


class CliCommand(click.Command):
    """A click command that takes the global options as well."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - click's own signature
        """Add the global options behind the command's own."""
        super().__init__(*args, **kwargs)
        self.global_options = list_global_options()

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own parameters, then the global ones."""
        own = super().get_params(ctx)
        # `--help` stays last, where people look for it.
        return [*own[: len(self.params)], *self.global_options, *own[len(self.params) :]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write own options and global options under a heading each; commands come first."""
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)
        shared = set(map(id, self.global_options))
        own: list[tuple[str, str]] = []
        inherited: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and not isinstance(param, click.Argument):
                (inherited if id(param) in shared else own).append(record)
        for title, records in (("Options", own), ("Global options", inherited)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Group(CliCommand, click.Group):
    """A click group that takes the global options and names the nearest command."""

    command_class = CliCommand
    group_class = type
    below: Mapping[str, str] = MappingProxyType({})
    """Words that name no command of this group, and what is meant by them one level below."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or raise UnknownCommand with the nearest one."""
        word = args[0]
        found = self.get_command(ctx, word)
        if found is None and not ctx.resilient_parsing:
            raise UnknownCommand(word, self, ctx)
        return (word if found else None), found, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, each with its whole first sentence."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, one.get_short_help_str(limit=_WHOLE))
            for name, one in found
            if one is not None and not one.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class LazyGroup(Group):
    """The root group: commands come from a table and are imported when called.

    A first word that cannot be the name of a command (it has a space, a capital, a
    question mark…) is a goal: `holdfast "Describe this folder"` calls `run --plan`, if
    the table has it.
    """

    def __init__(
        self,
        *args: Any,  # noqa: ANN401 - click's own signature
        table: Mapping[str, tuple[str, str]],
        sections: Mapping[str, Sequence[str]] | None = None,
        below: Mapping[str, str] | None = None,
        **kwargs: Any,  # noqa: ANN401 - click's own signature
    ) -> None:
        """Keep the table, the headings of `--help`, and what stands below; imports nothing."""
        super().__init__(*args, **kwargs)
        self.table = table
        self.sections = sections or {}
        self.below = below or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, sorted."""
        return sorted(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command and return the command, or None."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        command: object = importlib.import_module(entry[0]).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{entry[0]}.command is not a click command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; hand a goal to `run`."""
        word = args[0]
        if word not in self.table and "run" in self.table and not _COMMAND_SHAPE.fullmatch(word):
            return "run", self.get_command(ctx, "run"), ["--plan", *args]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, without importing them."""
        named = {name for names in self.sections.values() for name in names}
        rest = [name for name in self.list_commands(ctx) if name not in named]
        for title, names in (*self.sections.items(), ("Commands", rest)):
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, self.table[name][1]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names from the table, without importing them."""
        completion = importlib.import_module("click.shell_completion")
        commands: list[CompletionItem] = [
            completion.CompletionItem(name, help=self.table[name][1])
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]
