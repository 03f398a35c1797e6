"""The steps of a workflow while it runs: a line for each, and on a terminal what is under way."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import click
import msgspec

from holdfast.cli.approve import AskInTerminal
from holdfast.cli.frame import Invocation
from holdfast.cli.output import make_printable, paint
from holdfast.journal import Payload
from holdfast.orchestration.workflows import events as facts
from holdfast.tools import ApprovalAnswer, ApprovalRequest

_SHOWN = 100


class StepLines:
    """Prints to stderr: a line per step that ended; on a terminal a spinner with the others.

    With `--output stream-json` every fact is a line of JSON on stdout.
    """

    def __init__(self, invocation: Invocation) -> None:
        """Print as the call wants it."""
        self._invocation = invocation
        self._under_way: dict[str, str] = {}
        self._status: Any = None

    def __enter__(self) -> StepLines:
        """Begin the spinner, if a person is watching."""
        if self._invocation.is_text and sys.stderr.isatty():
            console = importlib.import_module("rich.console").Console(stderr=True)
            self._status = console.status("")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the spinner."""
        if self._status is not None:
            self._status.stop()

    def hear(self, fact: Payload) -> None:
        """Show one fact."""
        if self._invocation.output == "stream-json":
            data = {"type": fact.kind, "data": msgspec.to_builtins(fact)}
            click.echo(msgspec.json.encode(data))
        if not self._invocation.is_text:
            return
        match fact:
            case facts.WorkflowStepStarted(path=path, does=does):
                self._under_way[path] = does
            case facts.StepCompleted(path=path):
                self._format_line("✓", "green", path, self._under_way.pop(path, ""))
            case facts.StepSkipped(path=path):
                self._format_line("-", "bright_black", path, "left out")
            case facts.WorkflowStepFailed(path=path, error=error, then=then):
                self._under_way.pop(path, None)
                mark, colour = ("↻", "yellow") if then == "retry" else ("✗", "red")
                self._format_line(mark, colour, path, str(error.get("message", "")))
        if self._status is not None:
            self._status.update(" ".join(f"{path}…" for path in list(self._under_way)[:5]))

    def _format_line(self, mark: str, colour: str, path: str, text: str) -> None:
        flat = " ".join(text.split())
        line = make_printable(f"{mark} {path}  {flat}".rstrip())[:_SHOWN]
        painted = paint(line, colour, self._invocation, stream=sys.stderr)
        if self._status is None:
            click.echo(painted, err=True)
            return
        # Through the spinner's console, which takes it away for the moment.
        text_of = importlib.import_module("rich.text").Text.from_ansi
        self._status.console.print(text_of(painted), highlight=False)

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Ask the person at the terminal, with the spinner out of the way."""
        with self.move_out_of_the_way():
            return await AskInTerminal().approve(request)

    @contextlib.contextmanager
    def move_out_of_the_way(self) -> Iterator[None]:
        """Let something else be printed meanwhile."""
        if self._status is not None:
            self._status.stop()
        try:
            yield
        finally:
            if self._status is not None:
                self._status.start()
