"""Read the options of a program as its rule describes them; what is left over is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class OptionRule(Protocol):
    """The part of a rule that says which options exist."""

    @property
    def flags(self) -> str: ...  # noqa: D102
    @property
    def values(self) -> str: ...  # noqa: D102
    @property
    def long(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def long_values(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def words(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def word_values(self) -> tuple[str, ...]: ...  # noqa: D102
    @property
    def risky(self) -> Mapping[str, object]: ...  # noqa: D102
    @property
    def number(self) -> bool: ...  # noqa: D102
    @property
    def old_style(self) -> bool: ...  # noqa: D102


@dataclass
class Reading:
    """What was found: options, their values, plain arguments, and what nobody knows."""

    options: set[str] = field(default_factory=set)
    option_values: list[tuple[str, str]] = field(default_factory=list)
    positionals: list[str] = field(default_factory=list)
    risky: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def read_options(rule: OptionRule, arguments: tuple[str, ...]) -> Reading:
    """Sort arguments into options and plain ones."""
    reader = _Reader(rule, arguments)
    reader.read()
    return reader.found


class _Reader:
    def __init__(self, rule: OptionRule, arguments: tuple[str, ...]) -> None:
        self._rule = rule
        self._todo = list(arguments)[::-1]
        self.found = Reading()

    def read(self) -> None:
        if self._rule.old_style and self._todo and not self._todo[-1].startswith("-"):
            self._todo[-1] = "-" + self._todo[-1]  # `tar xf` means `tar -xf`
        while self._todo:
            token = self._todo.pop()
            if token == "--" and not self._is_by_words:
                self.found.positionals += self._todo[::-1]
                self._todo = []
            elif token == "-" or not token.startswith("-"):
                self.found.positionals.append(token)
            elif self._is_by_words:
                self._word(token)
            elif token.startswith("--"):
                self._long(token)
            elif self._rule.number and re.fullmatch(r"-\d+", token):
                self.found.options.add(token)
            else:
                self._short(token)

    @property
    def _is_by_words(self) -> bool:
        return bool(self._rule.words)

    def _word(self, token: str) -> None:
        if token in self._rule.risky:
            self.found.risky.append(token)
        elif token in self._rule.word_values:
            self._take_value(token)
        elif token in self._rule.words:
            self.found.options.add(token)
        else:
            self.found.unknown.append(token)

    def _long(self, token: str) -> None:
        name, equals, value = token[2:].partition("=")
        option = f"--{name}"
        self.found.options.add(option)
        if option in self._rule.risky:
            self.found.risky.append(option)
        elif equals and name in self._rule.long_values:
            self.found.option_values.append((option, value))
        elif not equals and name in self._rule.long:
            return
        elif not equals and name in self._rule.long_values:
            self._take_value(option)
        else:
            self.found.unknown.append(option)

    def _short(self, token: str) -> None:
        if token in self._rule.risky:  # a word with one dash, as in `zip -TT`
            self.found.risky.append(token)
            return
        for at, letter in enumerate(token[1:], start=1):
            option = f"-{letter}"
            self.found.options.add(option)
            if option in self._rule.risky:
                self.found.risky.append(option)
                return
            if letter in self._rule.values:
                if token[at + 1 :]:
                    self.found.option_values.append((option, token[at + 1 :]))
                else:
                    self._take_value(option)
                return
            if letter not in self._rule.flags:
                self.found.unknown.append(option)
                return

    def _take_value(self, option: str) -> None:
        if self._todo:
            self.found.option_values.append((option, self._todo.pop()))
        else:
            self.found.unknown.append(option)


__all__ = ["OptionRule", "Reading", "read_options"]
