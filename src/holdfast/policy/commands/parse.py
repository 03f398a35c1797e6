"""Parse a command line to programs, pipes and connectors, or say that we cannot.

The set of things that we read is closed: simple commands, `|`, `;`, `&&`, `||`,
redirections to literal files, quoted strings without expansion. Whatever else the grammar
finds makes the whole line `unparsed`. Since the result is executed as it is, without a
shell, a difference between this reading and bash's cannot let anything through: what is
judged and what runs are the same object.
"""

from __future__ import annotations

import functools
import re

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from holdfast.policy.commands.appearance import find_objection, format_refusal
from holdfast.policy.commands.model import (
    Connector,
    ParsedCommand,
    Pipeline,
    Redirection,
    RedirectionMode,
    SimpleCommand,
)
from holdfast.policy.commands.words import NotLiteral, format_literal

MOST_COMMANDS = 50

# Variables that change how a program prints, and nothing that it loads or runs.
SAFE_VARIABLES = frozenset(
    "CARGO_TERM_COLOR CI CLICOLOR COLUMNS FORCE_COLOR LANG LANGUAGE LINES NODE_ENV NO_COLOR "
    "PY_COLORS RUST_BACKTRACE SOURCE_DATE_EPOCH TERM TZ".split()
)
_SAFE_VARIABLE = re.compile(r"LC_[A-Z]+")
# Not programs but parts of a shell: without one they mean nothing, or something else.
# `cd` is the one that the sandbox knows.
_BUILTINS = frozenset(
    ". : alias bg bind break builtin caller command compgen complete compopt continue coproc "
    "declare dirs disown enable eval exec exit export fc fg getopts hash help history jobs let "
    "local logout mapfile popd pushd readarray readonly return select set shift shopt source "
    "suspend time times trap type typeset ulimit umask unalias unset wait".split()
)
_PROGRAM = re.compile(r"[A-Za-z0-9_./+-]+")
_REDIRECTIONS: dict[str, tuple[RedirectionMode, int]] = {
    "<": ("read", 0),
    ">": ("write", 1),
    ">|": ("write", 1),
    ">>": ("append", 1),
}
_DIGITS_BEFORE = re.compile(r"(^|[\s;|&])\d+$")
_BLANK = re.compile(r"[ \t]*")


class _Unparsed(Exception):
    """Something outside the closed set; `str()` says what."""


@functools.cache
def _make_parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


@functools.lru_cache(maxsize=1_024)
def parse_command(text: str) -> ParsedCommand:
    """Read a command line; never raises for what it says.

    The result either holds everything that the line says, or a `problem`.
    """
    refused = format_refusal(text)
    if refused:
        return ParsedCommand(text=text, problem=refused, is_refused=True)
    line = text.strip(" \t\n")
    problem = find_objection(line) or ("it has several lines" if "\n" in line else "")
    if not line:
        problem = "it is empty"
    if problem:
        return ParsedCommand(text=text, problem=problem)
    try:
        return ParsedCommand(text=text, pipelines=_Reading(line).pipelines())
    except (_Unparsed, NotLiteral) as error:
        return ParsedCommand(text=text, problem=str(error))


class _Reading:
    """One parse: collects pipelines, and which bytes were understood."""

    def __init__(self, line: str) -> None:
        self._source = line.encode()
        self._found: list[tuple[Connector, list[SimpleCommand]]] = []
        self._seen: list[tuple[int, int]] = []

    def pipelines(self) -> tuple[Pipeline, ...]:
        root = _make_parser().parse(self._source).root_node
        if root.has_error or root.type != "program":
            raise _Unparsed("it is not a complete command")
        self._split_statements(root)
        self._check_coverage()
        if not self._found:
            raise _Unparsed("it has no command")
        if sum(len(commands) for _, commands in self._found) > MOST_COMMANDS:
            raise _Unparsed(f"it has more than {MOST_COMMANDS} commands")
        return tuple(
            Pipeline(commands=tuple(commands), connector=connector)
            for connector, commands in self._found
        )

    def _split_statements(self, root: Node) -> None:
        for child in root.children:
            if child.type in (";", "comment"):
                self._mark(child)
            else:
                self._read_statement(child, ";")

    def _read_statement(self, node: Node, connector: Connector) -> None:
        if node.type == "list":
            self._list(node, connector)
        elif node.type == "redirected_statement":
            self._read_redirected(node, connector)
        else:
            self._found.append((connector, self._run_pipeline(node)))

    def _list(self, node: Node, connector: Connector) -> None:
        for child in node.children:
            if child.type in ("&&", "||"):
                self._mark(child)
                connector = "&&" if child.type == "&&" else "||"
            else:
                self._read_statement(child, connector)

    def _read_redirected(self, node: Node, connector: Connector) -> None:
        """The grammar hangs a redirection on the whole list; it belongs to its last command."""
        body, *further = node.children
        if body.type == "file_redirect":
            raise _Unparsed("it redirects without a command")
        self._read_statement(body, connector)
        last = self._found[-1][1]
        for child in further:
            last[-1] = _redirect(last[-1], self._read_redirection(child))

    def _run_pipeline(self, node: Node) -> list[SimpleCommand]:
        if node.type == "command":
            return [self._read_command(node)]
        if node.type == "redirected_statement":
            before = len(self._found)
            self._read_redirected(node, ";")
            (found,) = self._found[before:]
            del self._found[before:]
            return found[1]
        if node.type != "pipeline":
            raise _Unparsed(f"it has a {node.type.replace('_', ' ')}")
        commands: list[SimpleCommand] = []
        for child in node.children:
            if child.type == "|":
                self._mark(child)
            elif child.type == "|&":
                raise _Unparsed("it pipes errors with |&")
            else:
                commands += self._run_pipeline(child)
        return commands

    def _read_command(self, node: Node) -> SimpleCommand:
        argv: list[str] = []
        assignments: list[tuple[str, str]] = []
        redirections: list[Redirection] = []
        end = -1
        for child in node.children:
            if child.start_byte == end and child.type != "file_redirect":
                raise _Unparsed("it has words that touch each other")
            end = child.end_byte
            if child.type == "command_name":
                (name,) = child.children
                self._mark(name)
                argv.append(_make_program(format_literal(name)))
            elif child.type == "variable_assignment":
                assignments.append(self._read_assignment(child))
            elif child.type == "file_redirect":
                redirections += self._read_redirection(child)
            elif child.type == "herestring_redirect":
                raise _Unparsed("it has a here string")
            else:
                self._mark(child)
                argv.append(format_literal(child))
        return SimpleCommand(
            argv=tuple(argv), assignments=tuple(assignments), redirections=tuple(redirections)
        )

    def _read_assignment(self, node: Node) -> tuple[str, str]:
        self._mark(node)
        children = node.children
        if len(children) not in (2, 3) or [children[0].type, children[1].type] != [
            "variable_name",
            "=",
        ]:
            raise _Unparsed("it has an assignment that is not plain")
        name = (children[0].text or b"").decode()
        if not is_safe_variable(name):
            raise _Unparsed(f"it sets the variable {name}, which is not on the safe list")
        return name, format_literal(children[2]) if len(children) == 3 else ""

    def _read_redirection(self, node: Node) -> list[Redirection]:
        if _DIGITS_BEFORE.search(self._source[: node.start_byte].decode()):
            raise _Unparsed("it redirects a descriptor that was read as a word")
        self._mark(node)
        children = list(node.children)
        fd = -1
        if children and children[0].type == "file_descriptor":
            # What names it is not always a number: `x-1>` and `{name}>` are read as one too.
            named = (children.pop(0).text or b"").decode()
            if not (named.isascii() and named.isdigit() and len(named) < 4):
                raise _Unparsed("it redirects a descriptor that is no plain number")
            fd = int(named)
        if len(children) != 2:
            raise _Unparsed("it has a redirection that is not plain")
        operator, target = children[0].type, format_literal(children[1])
        return _read_redirections(operator, fd, target)

    def _mark(self, node: Node) -> None:
        self._seen.append((node.start_byte, node.end_byte))

    def _check_coverage(self) -> None:
        """Every byte is either understood or blank, so nothing slipped past the reading."""
        ends = [0, *(stop for _, stop in sorted(self._seen))]
        starts = [*(start for start, _ in sorted(self._seen)), len(self._source)]
        for end, start in zip(ends, starts, strict=True):
            if start < end or not _BLANK.fullmatch(self._source[end:start].decode()):
                raise _Unparsed("a part of it was not understood")


def _make_program(name: str) -> str:
    if not _PROGRAM.fullmatch(name):
        raise _Unparsed("the name of its program is unusual")
    if name in _BUILTINS:
        raise _Unparsed(f"{name} is a part of the shell")
    return name


def _read_redirections(operator: str, fd: int, target: str) -> list[Redirection]:
    if operator == "&>" and fd == -1:
        first = Redirection(fd=1, mode="write", path=_read_path(target))
        return [first, Redirection(fd=2, mode="duplicate", source_fd=1)]
    if operator == ">&":
        if target not in ("1", "2") or fd not in (-1, 1, 2):
            raise _Unparsed("it connects unusual descriptors")
        return [
            Redirection(fd=1 if fd == -1 else fd, mode="duplicate", source_fd=int(target)),
        ]
    if operator not in _REDIRECTIONS:
        raise _Unparsed(f"it redirects with {operator}")
    mode, usual = _REDIRECTIONS[operator]
    fd = usual if fd == -1 else fd
    if fd > 2 or (mode == "read") != (fd == 0):
        raise _Unparsed("it connects unusual descriptors")
    return [Redirection(fd=fd, mode=mode, path=_read_path(target))]


def _read_path(target: str) -> str:
    if not target:
        raise _Unparsed("it redirects to an empty path")
    return target


def _redirect(command: SimpleCommand, further: list[Redirection]) -> SimpleCommand:
    return SimpleCommand(
        argv=command.argv,
        assignments=command.assignments,
        redirections=(*command.redirections, *further),
    )


def is_safe_variable(name: str) -> bool:
    """Say whether a variable changes only how programs print."""
    return name in SAFE_VARIABLES or _SAFE_VARIABLE.fullmatch(name) is not None


__all__ = ["MOST_COMMANDS", "SAFE_VARIABLES", "is_safe_variable", "parse_command"]
