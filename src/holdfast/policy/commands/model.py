"""What a command line says, once it was read: programs, pipes, connectors, redirections."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

RedirectionMode: TypeAlias = Literal["read", "write", "append", "duplicate"]
Connector: TypeAlias = Literal[";", "&&", "||"]


class Redirection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One descriptor of a program, connected to a file or to another descriptor.

    `path` is literal and relative to where the program runs; `source_fd` is only for
    `duplicate` (`2>&1` has `fd` 2 and `source_fd` 1).
    """

    fd: int
    mode: RedirectionMode
    path: str = ""
    source_fd: int = -1


class SimpleCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One program with exactly the arguments that it will get."""

    argv: tuple[str, ...]
    assignments: tuple[tuple[str, str], ...] = ()
    redirections: tuple[Redirection, ...] = ()

    @property
    def text(self) -> str:
        """The program and its arguments in one unambiguous spelling, without the rest."""
        return render_canonical_text(self.argv)

    @property
    def target(self) -> str:
        """What rules are matched against: the text, and the files that it is told to write."""
        written = [
            f" {'>>' if one.mode == 'append' else '>'} {shlex.quote(one.path)}"
            for one in self.redirections
            if one.mode in ("write", "append") and one.path != "/dev/null"
        ]
        return self.text + "".join(written)


class Pipeline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Programs that feed each other, and when to start them.

    `connector` says how it hangs on the pipeline before it: always (`;`), after success
    (`&&`) or after failure (`||`), from left to right as in every shell.
    """

    commands: tuple[SimpleCommand, ...]
    connector: Connector = ";"


class ParsedCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command line, read completely or not at all.

    With a `problem` there are no pipelines: it is outside the closed set that we read,
    and only a person can let it run, as text. `is_refused` means that not even a person
    should, because it is not what it looks like.
    """

    text: str
    pipelines: tuple[Pipeline, ...] = ()
    problem: str = ""
    is_refused: bool = False

    @property
    def is_parsed(self) -> bool:
        """Whether it was read completely, and can be executed without a shell."""
        return not self.problem

    def commands(self) -> Iterator[SimpleCommand]:
        """Every program in the order in which it is written."""
        for pipeline in self.pipelines:
            yield from pipeline.commands

    def targets(self) -> tuple[str, ...]:
        """The texts that command rules are matched against: one per program.

        Files that it writes by redirection stand in its text. A command line that was not
        read has itself as its only target.
        """
        return tuple(one.target for one in self.commands()) if self.is_parsed else (self.text,)

    def paths(self, mode: Literal["read", "write"]) -> tuple[str, ...]:
        """The files that redirections read, or write and append to; `/dev/null` is no file."""
        wanted = ("read",) if mode == "read" else ("write", "append")
        return tuple(
            one.path
            for command in self.commands()
            for one in command.redirections
            if one.mode in wanted and one.path != "/dev/null"
        )


def render_canonical_text(argv: tuple[str, ...]) -> str:
    """Spell an argument list so that it can be read in one way only."""
    return shlex.join(argv)


__all__ = [
    "Connector",
    "ParsedCommand",
    "Pipeline",
    "Redirection",
    "RedirectionMode",
    "SimpleCommand",
    "render_canonical_text",
]
