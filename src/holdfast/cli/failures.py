"""What a failed call prints, and its exit code.

People read four lines on stderr: what happened, why, what to do next, and the stable
code. With `--json` it is one JSON object on stderr. A traceback is printed only with
`--debug`.
"""

from __future__ import annotations

import errno
import json
import os
import select
import sys
import traceback

import click

from holdfast.cli.exits import ExitCode, choose_exit_code
from holdfast.cli.frame import Invocation, UnknownCommand
from holdfast.cli.output import make_printable, paint
from holdfast.errors import FileError, HoldfastError, MissingExtra
from holdfast.redaction import Redactor
from holdfast.settings import process_environment

_NOT_OURS = (errno.ENAMETOOLONG, errno.ENOSPC)
"""What goes wrong outside: with a path that was given, or where the output goes."""


def report(error: BaseException, invocation: Invocation) -> int:
    """Print the error as the call wants it and return the exit code."""
    if isinstance(error, click.Abort):
        return _report_interrupt(invocation)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return ExitCode.USAGE
    redactor = _make_redactor()
    if invocation.is_debug:
        trace = "".join(traceback.format_exception(error))
        click.echo(redactor.text(trace), err=True, nl=False)
    facts, code = _collect_facts(error)
    facts = {key: redactor.value(value) for key, value in facts.items()}
    if invocation.is_text:
        _print_text(error, facts, invocation, redactor)
    else:
        click.echo(json.dumps({"error": facts}), err=True)
    return code


def _make_redactor() -> Redactor:
    """Knows the secrets of the environment; settings may be the very thing that failed."""
    redactor = Redactor()
    redactor.register_environment(process_environment())
    return redactor


def _report_interrupt(invocation: Invocation) -> int:
    """Say that the person stopped the call."""
    if invocation.is_text:
        click.echo("Interrupted.", err=True)
    else:
        facts = {"code": "interrupted", "message": "Interrupted.", "hint": ""}
        click.echo(json.dumps({"error": facts}), err=True)
    return ExitCode.INTERRUPTED


def _collect_facts(error: BaseException) -> tuple[dict[str, object], int]:
    if isinstance(error, OSError) and error.errno in _NOT_OURS:
        path = str(error.filename or "the output")
        error = FileError(path=path if len(path) < 80 else f"{path[:60]}…", detail=error.strerror)
    if isinstance(error, HoldfastError):
        return error.to_dict(), choose_exit_code(error)
    if isinstance(error, click.UsageError):
        facts: dict[str, object] = {
            "code": "usage.invalid",
            "message": error.format_message(),
            "hint": _format_usage_hint(error),
        }
        return facts, ExitCode.USAGE
    if isinstance(error, click.ClickException):
        return (
            {"code": "usage.invalid", "message": error.format_message(), "hint": ""},
            error.exit_code,
        )
    text = f"Holdfast failed unexpectedly: {type(error).__name__}: {str(error)[:500]}"
    hint = "Run the command again with --debug and report the traceback."
    return {"code": "internal", "message": text, "hint": hint}, ExitCode.FAILED


def _format_usage_hint(error: click.UsageError) -> str:
    if isinstance(error, UnknownCommand):
        return error.hint
    path = error.ctx.command_path if error.ctx else "holdfast"
    return f"See `{path} --help`."


def _print_text(
    error: BaseException, facts: dict[str, object], invocation: Invocation, redactor: Redactor
) -> None:
    lines = [(paint("error:", "red", invocation, stream=sys.stderr), str(facts["message"]))]
    cause = error.__cause__
    is_said = _is_said(error, cause)
    if cause is not None and isinstance(error, HoldfastError) and not is_said:
        why = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
        why = redactor.text(why)[:500]
        lines.append((paint("why:  ", "yellow", invocation, stream=sys.stderr), why))
    if facts["hint"]:
        lines.append((paint("next: ", "green", invocation, stream=sys.stderr), str(facts["hint"])))
    code = str(facts["code"])
    more = f" (explained by: holdfast docs {code})" if isinstance(error, HoldfastError) else ""
    lines.append((paint("code: ", "cyan", invocation, stream=sys.stderr), code + more))
    for label, text in lines:
        click.echo(f"{label} {make_printable(text)}", err=True)


def _is_said(error: BaseException, cause: BaseException | None) -> bool:
    """Say whether the error itself tells its cause already, in words for people."""
    if isinstance(error, MissingExtra):
        return True
    if isinstance(cause, OSError):
        return cause.strerror is not None and cause.strerror in str(error)
    return isinstance(cause, ValueError) and type(cause).__name__ == "ValidationError"


def is_reader_gone() -> bool:
    """Whether the program that reads our output has closed its end."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    waiting = select.poll()
    waiting.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in waiting.poll(0))


def silence_stdout() -> None:
    """Send what is still buffered nowhere, so that Python ends without a complaint."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
