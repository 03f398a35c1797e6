"""Show a run while it happens: the answer as it arrives, each call in one line."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterable
from typing import Any, Final, Protocol

import click
import msgspec

from holdfast.agents import AgentResult, ChildPiece
from holdfast.canonical import JsonObject
from holdfast.cli.call_view import Line, describe_after, describe_before, is_shown_before
from holdfast.cli.frame import Invocation
from holdfast.cli.output import has_color, make_printable, say
from holdfast.messages import ToolPart
from holdfast.providers import Delta, Finished, Restarted, TextDelta
from holdfast.tools import ApprovalRequest

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")


class TextPrinter(Protocol):
    """Where the pieces of an answer go."""

    def feed(self, text: str) -> None:
        """Show a piece."""
        ...

    def close(self) -> None:
        """Finish the line, so that others may print."""
        ...

    def drop(self) -> None:
        """The answer begins anew: take back what can be taken back, and close."""
        ...


class HeldText:
    """Prints an answer when it is whole: unwatched, half of one is only in the way."""

    def __init__(self) -> None:
        """Hold nothing yet."""
        self._held: list[str] = []

    def feed(self, text: str) -> None:
        """Keep a piece."""
        self._held.append(text)

    def close(self) -> None:
        """Print what came since the last time."""
        text = "".join(self._held)
        self._held.clear()
        if text:
            click.echo(text, nl=not text.endswith("\n"))

    def drop(self) -> None:
        """Forget what was not printed yet."""
        self._held.clear()


class PlainText:
    """Prints pieces as they are."""

    def __init__(self) -> None:
        """Begin on a fresh line."""
        self._is_line_open = False

    def feed(self, text: str) -> None:
        """Print a piece."""
        click.echo(text, nl=False)
        self._is_line_open = not text.endswith("\n") if text else self._is_line_open

    def close(self) -> None:
        """End an open line."""
        if self._is_line_open:
            click.echo()
            self._is_line_open = False

    def drop(self) -> None:
        """End the line; what was seen was seen."""
        self.close()


class MarkdownText:
    """Draws Markdown block by block; the block that is still growing is redrawn in place.

    Lines break between words; without colours what is bold is bold still.
    """

    def __init__(self, console: Any) -> None:  # noqa: ANN401 - of rich, which is loaded late
        """Draw on a console of rich."""
        self._console = console
        self._markdown = importlib.import_module("rich.markdown").Markdown
        self._live: Any = None
        self._open = ""

    def feed(self, text: str) -> None:
        """Draw what has become whole, and what is there of the rest."""
        self._open += text
        while (end := block_end(self._open)) > 0:
            block, self._open = self._open[:end], self._open[end:]
            self._print(block)
        if self._open.strip():
            self._grow()

    def close(self) -> None:
        """Draw the rest for good."""
        rest, self._open = self._open, ""
        self._print(rest)

    def drop(self) -> None:
        """Draw the rest; what was seen was seen."""
        self.close()

    def _grow(self) -> None:
        if self._live is None:
            live = importlib.import_module("rich.live").Live
            self._live = live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        self._live.update(self._markdown(take_tail(self._open)), refresh=True)

    def _print(self, block: str) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if block.strip():
            self._console.print(self._markdown(block))


def _choose_printer(invocation: Invocation, *, is_drawn: bool) -> TextPrinter:
    """Return what prints answers here: drawn only where the cursor can be moved."""
    if not sys.stdout.isatty():
        return HeldText()
    if is_drawn:
        is_plain = not has_color(invocation, sys.stdout)
        console = importlib.import_module("rich.console").Console(
            file=sys.stdout, no_color=is_plain
        )
        if not console.is_dumb_terminal:
            return MarkdownText(console)
    return PlainText()


def block_end(text: str) -> int:
    """Return where the first whole block of Markdown ends, 0 while there is none.

    A block ends with an empty line; inside a code fence an empty line ends nothing.
    """
    place, fence, has_words = 0, "", False
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            return 0
        place += len(line)
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
                return place
        elif mark:
            fence = mark[1]
        elif line.strip():
            has_words = True
        elif has_words:
            return place
    return 0


def take_tail(block: str) -> str:
    """Return what of a growing block fits on the screen: its end, in the fence that it has."""
    lines = block.splitlines()
    most = max(5, shutil.get_terminal_size().lines - 3)
    if len(lines) <= most:
        return block
    mark = _FENCE.match(lines[0])
    return "\n".join([*([lines[0]] if mark else []), *lines[-most + 1 :]])


class Screen:
    """What people see of a run; programs get JSON lines instead."""

    def __init__(
        self, invocation: Invocation, *, has_markdown: bool = False, is_chat: bool = False
    ) -> None:
        """Show on this terminal, or print for this program.

        A chat says itself when calls are to be announced, and wants no ids.
        """
        self._invocation = invocation
        is_drawn = has_markdown and invocation.is_text
        self._text = _choose_printer(invocation, is_drawn=is_drawn)
        self._is_chat = is_chat
        self._has_shown_text = False
        self._announced: list[tuple[str, ToolPart]] = []
        self._asked: list[tuple[str, JsonObject]] = []
        """Calls that were put before the person, maybe before the answer that made them came."""
        self._previews: list[str] = []
        """Diffs that the person has just consented to."""
        self._is_below_calls = False
        self.context_tokens = 0
        """How much of its context the model used with its last answer."""

    def hear(self, heard: Delta | ToolPart | ChildPiece) -> None:
        """Show the pieces of the answer as they arrive, and each call before and after it runs.

        Of what others do for the agent, people see the calls, under the path of who made them.
        """
        path = ""
        if isinstance(heard, ChildPiece):
            path, heard = heard.path, heard.item
        if self._invocation.output == "stream-json":
            shown = {"type": type(heard).__name__, "data": msgspec.to_builtins(heard)}
            click.echo(msgspec.json.encode({**shown, "path": path} if path else shown))
        if isinstance(heard, Finished) and not path and heard.message.usage is not None:
            self.context_tokens = heard.message.usage.total
        if not self._invocation.is_text:
            return
        if isinstance(heard, ToolPart):
            self.announce()
            self.close()
            self._show_calls(self._shorten_known(heard, describe_after(heard, path)))
        elif isinstance(heard, Finished):
            self._note_calls(heard.message.tool_calls, path)
        elif path:
            return
        elif isinstance(heard, TextDelta):
            self._show(heard.text)
        elif isinstance(heard, Restarted):
            self._text.drop()
            self._has_shown_text = False
            say(f"(the answer begins anew: {heard.reason})", err=True, color="yellow")

    def _note_calls(self, calls: tuple[ToolPart, ...], path: str) -> None:
        self.close()
        self._announced += [(path, one) for one in calls if is_shown_before(one)]
        if not self._is_chat:
            self.announce()

    def announce(self, *, but: ApprovalRequest | None = None) -> None:
        """Show what is about to run and was not shown yet, except for a call that asks.

        That is shown by who asks, more exactly: with what it would really change.
        """
        if but is not None:
            self._asked.append((but.tool, but.arguments))
            self._previews.append(but.preview.strip())
            self._is_below_calls = True
        waiting, self._announced = self._announced, []
        for path, part in waiting:
            # Not by its id: the run gives a call one of its own.
            if (part.tool, part.input) in self._asked:
                self._asked.remove((part.tool, part.input))
                continue
            self.close()
            self._show_calls(describe_before(part, path))

    def _show_calls(self, lines: Iterable[Line]) -> None:
        show_lines(lines)
        self._is_below_calls = True

    def _shorten_known(self, part: ToolPart, lines: list[Line]) -> list[Line]:
        """Return how a call ended; a diff that was consented to a moment ago is not repeated."""
        diff = str(part.metadata.get("diff", "")).strip()
        if not diff or diff not in self._previews:
            return lines
        self._previews.remove(diff)
        return lines[:1]

    def _show(self, text: str) -> None:
        if self._is_below_calls and text.strip():
            # An answer stands by itself, not as if it were the last line of an output.
            if self._is_chat and sys.stdout.isatty():
                say("", err=True)
            self._is_below_calls = False
        self._text.feed(make_printable(text))
        self._has_shown_text = self._has_shown_text or bool(text)

    def close(self) -> None:
        """Finish the line, so that others may print."""
        self._text.close()

    def tell(self, result: AgentResult) -> None:
        """Say how it went: status, time, tokens, cost.

        The answer of a run that had ended before did not arrive in pieces: it comes first.
        """
        self._announced.clear()
        self._asked.clear()
        self._previews.clear()
        if self._invocation.is_text and not self._has_shown_text:
            self._show(result.response)
        self.close()
        self._has_shown_text = False
        used = result.tokens_used
        cost = f", ${result.cost_usd:.4f}" if result.cost_usd else ""
        said = f"{result.status} in {result.duration:.1f} s, {used.total:,} tokens{cost}."
        if not self._is_chat:
            said += f" Session {result.session_id}, run {result.run_id}."
        say(said, err=True, color="bright_black")


def show_lines(lines: Iterable[Line]) -> None:
    """Print lines in their colours to stderr, where all but the answer goes."""
    for text, colour in lines:
        say(text, err=True, color=colour)
