"""Read configuration files safely: TOML, `.env` and the secrets file.

Files are opened without waiting (a pipe in their place is refused), are at most 64 KiB
of UTF-8 (TOML: in lines of at most 4,096 characters), and everything wrong with them is
told with its line.
"""

from __future__ import annotations

import functools
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

MAX_BYTES: Final = 64 * 1024
MAX_LINE: Final = 4096

_WRITTEN_KEY: Final = r"[A-Za-z0-9_.\-\"' \t]+"
_AT_LINE: Final = r" \(at line (\d+), column \d+\)$"
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}


class Mistake(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, and where; never contains a secret."""

    source: str
    text: str

    def __str__(self) -> str:
        """`source: text`, one line."""
        return f"{self.source}: {self.text}"


class UnreadableFile(Exception):
    """A configuration file that cannot be read; caught by the loader, never let out."""

    def __init__(self, text: str, line: int | None = None) -> None:
        """Keep what is wrong, and the line if it is known."""
        super().__init__(text)
        self.text = text
        self.line = line


class TomlFile(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed TOML file with the line of each dotted key, where it could be found."""

    values: dict[str, Any]
    lines: dict[str, int]


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """One `NAME=value` line."""

    name: str
    value: str
    line: int


def read_text(path: Path, *, is_private: bool = False) -> str | None:
    """The text of a file, or None if there is none.

    Raises:
        UnreadableFile: not a regular file, too large, not UTF-8, not permitted, or, for
            a private file, readable by others or owned by another user.
    """
    try:
        # Non-blocking, so that a pipe in place of the file cannot hang the start.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "the path is not valid"
        raise UnreadableFile(f"cannot be opened: {reason}") from None
    try:
        # Asked of the open file, not of its name, so that it cannot be swapped in between.
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise UnreadableFile("is not a regular file")
        if is_private:
            _check_private(about)
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise UnreadableFile(f"is larger than {MAX_BYTES // 1024} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UnreadableFile("is not UTF-8 text", line) from None


def _check_private(about: os.stat_result) -> None:
    if stat.S_IMODE(about.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(about.st_mode):04o}"
        raise UnreadableFile(f"has mode {mode}, so others could read it; run chmod 0600 on it")
    if about.st_uid not in {os.geteuid(), 0}:
        raise UnreadableFile("belongs to another user")


def parse_toml(text: str) -> TomlFile:
    """Parse TOML; raises UnreadableFile with the line of the first syntax error."""
    import tomllib  # noqa: PLC0415 - 5 ms, and many starts find no TOML file

    for number, written in enumerate(text.split("\n"), start=1):
        # The parser's time and memory grow with the square of a key's length.
        if len(written) > MAX_LINE:
            raise UnreadableFile(f"has a line of more than {MAX_LINE} characters", number)
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        found = re.search(_AT_LINE, message)
        line = int(found[1]) if found else None
        raise UnreadableFile(f"is not valid TOML: {re.sub(_AT_LINE, '', message)}", line) from None
    except (RecursionError, ValueError):
        raise UnreadableFile("is not usable TOML: a value is too deep or too long") from None
    return TomlFile(values=values, lines=dict(_locate(text)))


def _locate(text: str) -> Iterator[tuple[str, int]]:
    """Where each dotted key stands, as far as line-wise reading can tell.

    A line inside a multi-line string may look like a key; such a key is not in the
    parsed values, so nothing asks for it.
    """
    section = ""
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), start=1):
        bare = line.strip()
        is_header = bare.startswith("[") and not bare.startswith("[[")
        written, mark, _ = bare[1:].partition("]") if is_header else bare.partition("=")
        if not mark or not re.fullmatch(_WRITTEN_KEY, written):
            continue
        key = _split_dotted(written)
        if is_header:
            section = key
        elif section:
            key = f"{section}.{key}"
        if key not in seen:
            seen.add(key)
            yield key, number


def _split_dotted(written: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in written.split("."))


@functools.cache
def _name() -> re.Pattern[str]:
    return re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=[ \t]*")


def parse_variables(text: str) -> tuple[list[Variable], list[tuple[int, str]]]:
    """The `NAME=value` lines of a file, and what is wrong with the other lines.

    Understands comments, `export`, single quotes (literal) and double quotes (with
    escapes), both over several lines. Nothing is expanded.
    """
    found: list[Variable] = []
    wrong: list[tuple[int, str]] = []
    place = 0
    while place < len(text):
        line = text.count("\n", 0, place) + 1
        end = _find_line_end(text, place)
        stripped = text[place:end].strip()
        name = _name().match(text, place, end)
        if not stripped or stripped.startswith("#"):
            place = end + 1
        elif name is None:
            wrong.append((line, "is not a NAME=value line"))
            place = end + 1
        else:
            try:
                value, place = _read_value(text, name.end())
            except UnreadableFile as error:
                wrong.append((line, f"{name[1]} {error.text}"))
                place = end + 1
            else:
                found.append(Variable(name=name[1], value=value, line=line))
    return found, wrong


def _find_line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _read_value(text: str, start: int) -> tuple[str, int]:
    """The value that starts here, and where the next line begins."""
    quote = text[start : start + 1]
    if quote not in {'"', "'"}:
        end = _find_line_end(text, start)
        return re.split(r"\s#|^#", text[start:end], maxsplit=1)[0].strip(), end + 1
    parts: list[str] = []
    place = start + 1
    while place < len(text) and text[place] != quote:
        if text[place] == "\\" and quote == '"' and place + 1 < len(text):
            parts.append(_ESCAPES.get(text[place + 1], "\\" + text[place + 1]))
            place += 2
        else:
            parts.append(text[place])
            place += 1
    if place >= len(text):
        raise UnreadableFile("has a quote that is never closed")
    end = _find_line_end(text, place)
    rest = text[place + 1 : end].strip()
    if rest and not rest.startswith("#"):
        raise UnreadableFile("has text behind the closing quote")
    return "".join(parts), end + 1
