"""Where the words of a chat come from: a terminal with history, or any other stream.

At a terminal prompt_toolkit edits messages of several lines and completes while one types; with
`--plain`, or where the terminal is dumb, readline does the same more simply.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import click

from holdfast.cli.chat_files import quote_mention
from holdfast.cli.frame import Invocation, repair_text
from holdfast.settings import process_environment

HISTORY_FILE: Final = "chat_history"
_MOST_LINES: Final = 1_000
_MOST_BYTES: Final = 4 * 1024 * 1024
_PASTE_S: Final = 0.03
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
                os.write(file, f"{repair_text(line)}\n".encode())
            finally:
                os.close(file)


class ChatWords:
    """What completes a message: commands where it begins, files after `@` and `/image`."""

    def __init__(self, commands: Sequence[str], files: Callable[[str], list[str]]) -> None:
        """Complete these."""
        self._commands = commands
        self._files = files

    def complete(self, text: str) -> list[tuple[str, int]]:
        """Return what may stand in place of the last so many characters before the cursor."""
        if text.startswith("/") and not re.search(r"\s", text):
            return [(word, len(text)) for word in self._commands if word.startswith(text)]
        if text.startswith("/image "):
            start = text.removeprefix("/image ").lstrip()
            return [(path, len(start)) for path in self._files(start)] if start else []
        found = re.search(r'(?:^|\s)(@"?([^\s"]*))$', text)
        if found is None:
            return []
        return [(quote_mention(path), len(found[1])) for path in self._files(found[2])]


class ReadlineReader:
    """Reads at a terminal with readline: editing, history, Tab for commands and files."""

    def __init__(self, history: ChatHistory, words: ChatWords) -> None:
        """Take up the history."""
        readline = importlib.import_module("readline")
        readline.clear_history()
        readline.set_auto_history(False)
        for line in history.load():
            readline.add_history(line)
        readline.set_completer_delims(" \t\n")
        readline.set_completer(self._find_completion)
        readline.parse_and_bind("tab: complete")
        self._readline = readline
        self._history = history
        self._words = words

    def read(self, prompt: str) -> str:
        """Ask for a line; what was pasted with it, in the same moment, belongs to it."""
        lines = [input(prompt)]
        while _has_more_input():
            try:
                lines.append(input())
            except EOFError:
                break
        text = "\n".join(lines)
        if text.strip():
            self._readline.add_history(text)
            self._history.add(text)
        return text

    def _find_completion(self, start: str, at: int) -> str | None:
        if not start:
            return None
        before = self._readline.get_line_buffer()[: self._readline.get_endidx()]
        found = [word for word, _ in self._words.complete(before)]
        return found[at] if at < len(found) else None


class PromptToolkitReader:
    """Reads at a terminal with prompt_toolkit: several lines, a menu that completes, a status.

    A paste stays whole. Enter sends; Alt-Enter and a backslash before Enter begin another line;
    Ctrl-G and Ctrl-X Ctrl-E open the editor.
    """

    def __init__(self, history: ChatHistory, words: ChatWords, status: Callable[[], str]) -> None:
        """Take up the history."""
        toolkit = importlib.import_module("prompt_toolkit")
        styles = importlib.import_module("prompt_toolkit.styles")
        self._session = toolkit.PromptSession(
            history=_make_toolkit_history(history),
            completer=_make_toolkit_completer(words),
            complete_in_thread=True,
            complete_while_typing=True,
            key_bindings=_make_key_bindings(),
            multiline=True,
            prompt_continuation="… ",
            enable_open_in_editor=True,
            tempfile_suffix=".md",
            bottom_toolbar=status,
            reserve_space_for_menu=6,
            style=styles.Style.from_dict({"bottom-toolbar": "noreverse #888888"}),
        )

    def read(self, prompt: str) -> str:
        """Ask for a message of one line or several."""
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
    invocation: Invocation,
    history: ChatHistory,
    words: ChatWords,
    status: Callable[[], str],
    *,
    is_plain: bool,
) -> LineReader:
    """Return the best reader for this stdin."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and invocation.is_text):
        return StreamReader()
    is_dumb = process_environment().get("TERM") == "dumb"
    if is_plain or is_dumb or importlib.util.find_spec("prompt_toolkit") is None:
        return ReadlineReader(history, words)
    return PromptToolkitReader(history, words, status)


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
        return repair_text("\n".join(lines))
    lines = []
    while line.endswith("\\"):
        lines.append(line[:-1])
        line = reader.read(more)
    return repair_text("\n".join([*lines, line]).strip())


def ask_line(question: str) -> str:
    """Ask something in the midst of a turn; an empty answer counts as none."""
    return str(click.prompt(question, default="", show_default=False, err=True)).strip()


def _has_more_input() -> bool:
    """Say whether more was typed than the line that was just read: the rest of a paste."""
    return bool(select.select([sys.stdin], [], [], _PASTE_S)[0])


def _make_key_bindings() -> Any:  # noqa: ANN401 - of prompt_toolkit
    bindings = importlib.import_module("prompt_toolkit.key_binding").KeyBindings()

    def begin_line(event: Any) -> None:  # noqa: ANN401 - of prompt_toolkit
        event.current_buffer.insert_text("\n")

    def send(event: Any) -> None:  # noqa: ANN401 - of prompt_toolkit
        buffer = event.current_buffer
        menu = buffer.complete_state
        if menu is not None and menu.current_completion is not None:
            buffer.apply_completion(menu.current_completion)
        elif buffer.document.char_before_cursor == "\\":
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    def edit(event: Any) -> None:  # noqa: ANN401 - of prompt_toolkit
        event.current_buffer.open_in_editor()

    bindings.add("escape", "enter")(begin_line)
    bindings.add("enter")(send)
    # What was typed while the agent worked comes with the line ends of a cooked terminal.
    bindings.add("c-j")(send)
    bindings.add("c-g")(edit)
    return bindings


def _make_toolkit_completer(words: ChatWords) -> Any:  # noqa: ANN401 - of prompt_toolkit
    completion: Any = importlib.import_module("prompt_toolkit.completion")

    class Fitting(completion.Completer):  # type: ignore[misc]
        """The words as prompt_toolkit wants them."""

        def get_completions(self, document: Any, _event: object) -> Iterable[Any]:  # noqa: ANN401
            for word, length in words.complete(document.text_before_cursor):
                yield completion.Completion(word, start_position=-length)

    return Fitting()


def _make_toolkit_history(history: ChatHistory) -> Any:  # noqa: ANN401 - of prompt_toolkit
    base: Any = importlib.import_module("prompt_toolkit.history").History

    class Kept(base):  # type: ignore[misc]
        """The history as prompt_toolkit wants it: newest first."""

        def load_history_strings(self) -> Iterable[str]:
            return reversed(history.load())

        def store_string(self, string: str) -> None:
            history.add(string)

    return Kept()
