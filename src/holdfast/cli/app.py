"""The root command and `main`, the one place where errors become exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NoReturn

import click

from holdfast._version import __version__
from holdfast.cli.commands import BELOW, COMMANDS, SECTIONS
from holdfast.cli.frame import FORMATS, Invocation, LazyGroup, repair_text
from holdfast.cli.interrupts import INTERRUPTS, flush_output

__all__ = ["RootGroup", "main", "root"]


class RootGroup(LazyGroup):
    """A lazy group whose `main` prints every error in one style and never a bare traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,  # noqa: ANN401 - click's own signature
    ) -> NoReturn:
        """Run one call and end the process with its exit code."""
        given = sys.argv[1:] if args is None else args
        words = _with_run([_repair_word(word) for word in given])
        invocation = Invocation(output=_read_wished_output(words), is_debug="--debug" in words)
        extra.setdefault("obj", invocation)
        try:
            result = super().main(
                words, prog_name or "holdfast", complete_var, standalone_mode=False, **extra
            )
            sys.exit(result if isinstance(result, int) else 0)
        except (click.Abort, Exception) as error:  # noqa: BLE001 - a door: all is told and mapped
            sys.exit(_import_failures().report(error, invocation))

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401 - click's own signature
    ) -> click.Context:
        """Parse the words; `--help` and `--version` print here."""
        with _end_quietly():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command."""
        with _end_quietly():
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


@contextmanager
def _end_quietly() -> Iterator[None]:
    """End without a word and without failure when no person reads our output any more."""
    try:
        yield
    except BrokenPipeError as error:
        # Otherwise click ends the process itself, with code 1.
        if not _import_failures().is_reader_gone():
            raise
        _import_failures().silence_stdout()
        raise click.exceptions.Exit(0) from error


def _repair_word(word: str) -> str:
    """Return an argument as text; the name of a file that is there stays as the system has it."""
    return word if word.isascii() or os.path.lexists(word) else repair_text(word)


def _import_failures() -> ModuleType:
    """The module that tells errors; most calls never need it."""
    return importlib.import_module("holdfast.cli.failures")


_WITH_VALUE = ("-o", "--output", "--state-dir", "--workspace", "--server")


_OF_RUN = (
    "--resume", "--model", "--agent", "--run-id", "--auto-confirm", "--park", "--parallel",
    "--max-attempts", "--max-cost", "--max-tokens", "--max-time",
)  # fmt: skip


def _with_run(words: list[str]) -> list[str]:
    """`holdfast --resume ID` is `holdfast run --plan --resume ID`: put the command in."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at].partition("=")[0] in _OF_RUN:
            return [*words[:at], "run", "--plan", *words[at:]]
        at += 2 if words[at] in _WITH_VALUE else 1
    return words


def _read_wished_output(words: list[str]) -> str:
    """The form of output as far as it can be told before parsing, for parsing errors."""
    if "--json" in words:
        return "json"
    if "--stream-json" in words:
        return "stream-json"
    for form in FORMATS:
        if f"--output={form}" in words or f"-o{form}" in words:
            return form
    for flag, form in zip(words, words[1:], strict=False):
        if flag in {"-o", "--output"} and form in FORMATS:
            return form
    return "text"


@click.version_option(__version__, prog_name="holdfast", message="%(prog)s %(version)s")
def _stat_root() -> None:
    """Run agents whose every step is kept and whose every action passes one gate.

    Give a goal in quotes, as in `holdfast "Describe this workspace"`, or a command. `chat` is
    where most begin; `COMMAND --help` explains each. `--resume ID` goes on with a run.
    """


root = click.command(
    "holdfast",
    cls=RootGroup,
    table=COMMANDS,
    sections=SECTIONS,
    below=BELOW,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)(_stat_root)


def _open_streams() -> None:
    """Put nothing in the place of a standard stream that the caller has closed.

    Else the next file that is opened takes its number: the event loop ends the process when it
    closes such a file, and what a program below us prints would land in it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest number that is free: this one.
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))


def main() -> NoReturn:
    """Run the command line with the arguments of this process, and end it."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            # A terminal that cannot show a character gets an escape, not a crash.
            stream.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdin, "reconfigure"):
        # What comes in is UTF-8 where the locale knows nothing better; what is none is shown so.
        is_known = sys.stdin.encoding.lower() not in ("ascii", "us-ascii", "ansi_x3.4-1968")
        sys.stdin.reconfigure(encoding=None if is_known else "utf-8", errors="replace")
    INTERRUPTS.install()
    try:
        root.main()
    except SystemExit as ended:
        if INTERRUPTS.is_ending:
            # The work has ended; a thread that still waits for something must not keep us.
            flush_output()
            INTERRUPTS.leave(ended.code if isinstance(ended.code, int) else 1)
        raise
