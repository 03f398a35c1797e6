"""Where the words of a chat come from: a terminal with history, or any other stream.

With the extra `chat` (prompt_toolkit) the line is edited in colour and slash commands are
completed while one types; without it, or with `--plain`, readline does the same more simply.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import click

from holdfast.cli.frame import Invocation

HISTORY_FILE: Final = "chat_history"
_MOST_LINES: Final = 1_000
_MOST_BYTES: Final = 4 * 1024 * 1024
_FENCE: Final = '"""'


class LineReader(Protocol):
    """Can ask for one line."""

    def read(self, prompt: str) -> str:
        """Return a line without its end; raises EOFError, and KeyboardInterrupt on Ctrl-C."""
        ...


class ChatHistory:
    """What was typed, kept for the next chat; secrets that the redactor knows are left out."""

    def __init__(self, path: Path, redact: Callable[[str], str]) -> None:
        """Keep it in this file; nothing is created before the first line."""
        self._path = path
        self._redact = redact

    def load(self) -> list[str]:
        """Return what was typed, oldest first; a file that cannot be read holds nothing."""
        try:
            with self._path.open("rb") as file:
                data = file.read(_MOST_BYTES)
        except OSError:
            return []
        lines = data.decode(errors="replace").splitlines()
        return [line.replace("\\n", "\n").replace("\\\\", "\\") for line in lines[-_MOST_LINES:]]

    def add(self, text: str) -> None:
        """Keep one input; where that is impossible the chat goes on without."""
        line = self._redact(text).replace("\\", "\\\\").replace("\n", "\\n")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._path, flags, 0o600)
            try:
                os.write(file, f"{line}\n".encode())
            finally:
                os.close(file)


class ReadlineReader:
    """Reads at a terminal with readline: editing, history, Tab for slash commands."""

    def __init__(self, history: ChatHistory, words: Sequence[str]) -> None:
        """Take up the history."""
        readline = importlib.import_module("readline")
        readline.clear_history()
        readline.set_auto_history(False)
        for line in history.load():
            readline.add_history(line)
        readline.set_completer_delims(" \t\n")
        readline.set_completer(lambda start, at: _find_completion(words, start, at))
        readline.parse_and_bind("tab: complete")
        self._readline = readline
        self._history = history

    def read(self, prompt: str) -> str:
        """Ask for a line."""
        line = input(prompt)
        if line.strip():
            self._readline.add_history(line)
            self._history.add(line)
        return line


class PromptToolkitReader:
    """Reads at a terminal with prompt_toolkit; Alt-Enter begins another line."""

    def __init__(self, history: ChatHistory, words: Sequence[str]) -> None:
        """Take up the history."""
        toolkit = importlib.import_module("prompt_toolkit")
        bindings = importlib.import_module("prompt_toolkit.key_binding").KeyBindings()
        complete = importlib.import_module("prompt_toolkit.completion").WordCompleter

        def begin_line(event: Any) -> None:  # noqa: ANN401 - of prompt_toolkit
            event.current_buffer.insert_text("\n")

        bindings.add("escape", "enter")(begin_line)
        self._session = toolkit.PromptSession(
            history=_make_toolkit_history(history),
            completer=complete(list(words), sentence=True),
            key_bindings=bindings,
        )

    def read(self, prompt: str) -> str:
        """Ask for a line, or several."""
        return str(self._session.prompt(prompt))


class StreamReader:
    """Reads lines from whatever stdin is; says nothing."""

    def read(self, prompt: str) -> str:
        """Return the next line."""
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


def open_reader(
    invocation: Invocation, history: ChatHistory, words: Sequence[str], *, is_plain: bool
) -> LineReader:
    """Return the best reader for this stdin."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and invocation.is_text):
        return StreamReader()
    if not is_plain and importlib.util.find_spec("prompt_toolkit") is not None:
        return PromptToolkitReader(history, words)
    return ReadlineReader(history, words)


def read_message(reader: LineReader, prompt: str) -> str:
    r"""Return one message.

    A line that ends with a backslash goes on in the next; a line `\"\"\"` begins a text that
    goes on until the next such line.
    """
    more = "… "
    line = reader.read(prompt)
    if line.strip() == _FENCE:
        lines = []
        while (line := reader.read(more)).strip() != _FENCE:
            lines.append(line)
        return "\n".join(lines)
    lines = []
    while line.endswith("\\"):
        lines.append(line[:-1])
        line = reader.read(more)
    return "\n".join([*lines, line]).strip()


def ask_line(question: str) -> str:
    """Ask something in the midst of a turn; an empty answer counts as none."""
    return str(click.prompt(question, default="", show_default=False, err=True)).strip()


def _find_completion(words: Iterable[str], start: str, at: int) -> str | None:
    found = [word for word in words if start and word.startswith(start)]
    return found[at] if at < len(found) else None


def _make_toolkit_history(history: ChatHistory) -> Any:  # noqa: ANN401 - of prompt_toolkit
    base: Any = importlib.import_module("prompt_toolkit.history").History

    class Kept(base):  # type: ignore[misc]
        """The history as prompt_toolkit wants it: newest first."""

        def load_history_strings(self) -> Iterable[str]:
            return reversed(history.load())

        def store_string(self, string: str) -> None:
            history.add(string)

    return Kept()
