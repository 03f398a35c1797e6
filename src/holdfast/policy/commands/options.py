"""Read the options of a program as its rule describes them; what is left over is told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

import msgspec


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
    @property
    def is_open(self) -> bool: ...  # noqa: D102


class FoundOption(msgspec.Struct, frozen=True, kw_only=True):
    """One option or plain argument: its name, its value if it has one, and where it stood."""

    name: str
    place: int
    value: str = ""


class Reading(msgspec.Struct):
    """What was found: options, their values, plain arguments, and what is not known."""

    options: set[str] = msgspec.field(default_factory=set)
    values: list[FoundOption] = msgspec.field(default_factory=list)
    positionals: list[FoundOption] = msgspec.field(default_factory=list)
    risky: list[FoundOption] = msgspec.field(default_factory=list)
    unknown: list[FoundOption] = msgspec.field(default_factory=list)


def read_options(rule: OptionRule, arguments: tuple[str, ...]) -> Reading:
    """Sort arguments into options and plain ones."""
    reader = _Reader(rule, arguments)
    reader.read()
    return reader.found


class _Reader:
    def __init__(self, rule: OptionRule, arguments: tuple[str, ...]) -> None:
        self._rule = rule
        self._todo = list(enumerate(arguments))[::-1]
        self._place = 0
        self.found = Reading()

    def read(self) -> None:
        if self._rule.old_style and self._todo and not self._todo[-1][1].startswith("-"):
            self._read_bundle()
        while self._todo:
            self._place, token = self._todo.pop()
            if token == "--" and not self._is_by_words:
                self.found.positionals += [
                    FoundOption(name=text, place=place) for place, text in self._todo[::-1]
                ]
                self._todo = []
            elif token == "-" or not token.startswith("-"):
                self.found.positionals.append(FoundOption(name=token, place=self._place))
            elif self._is_by_words:
                self._clean_word(token)
            elif token.startswith("--"):
                self._read_long(token)
            elif self._rule.number and re.fullmatch(r"-\d+", token):
                self.found.options.add(token)
            else:
                self._shorten(token)

    @property
    def _is_by_words(self) -> bool:
        return bool(self._rule.words)

    def _read_bundle(self) -> None:
        """`tar xfI a b`: letters without a dash; those with values take the next words in turn."""
        self._place, letters = self._todo.pop()
        for letter in letters:
            option = f"-{letter}"
            self.found.options.add(option)
            if option in self._rule.risky:
                self._add_risk(option)
            elif letter in self._rule.values:
                self._take_value(option)
            elif letter not in self._rule.flags:
                self._refuse_unknown(option)

    def _clean_word(self, token: str) -> None:
        name, equals, value = token.partition("=")
        if token in self._rule.risky:
            self._add_risk(token)
        elif equals and name in self._rule.risky:
            self._add_risk(name, value)
        elif token in self._rule.word_values:
            self._take_value(token)
        elif token in self._rule.words:
            self.found.options.add(token)
        else:
            self._refuse_unknown(token)

    def _read_long(self, token: str) -> None:
        name, equals, value = token[2:].partition("=")
        option = f"--{name}"
        self.found.options.add(option)
        if option in self._rule.risky:
            self._add_risk(option, value)
        elif equals and name in self._rule.long_values:
            self.found.values.append(FoundOption(name=option, place=self._place, value=value))
        elif not equals and name in self._rule.long:
            return
        elif not equals and name in self._rule.long_values:
            self._take_value(option)
        elif risk := self._abbreviate(option):
            self._add_risk(risk, value)
        else:
            self._refuse_unknown(option)

    def _abbreviate(self, option: str) -> str:
        """The risky option that an abbreviation may mean, where not every option is known.

        Where all are known an abbreviation is an option that we do not know.
        """
        if not self._rule.is_open:
            return ""
        return next((risk for risk in self._rule.risky if risk.startswith(option)), "")

    def _shorten(self, token: str) -> None:
        if token in self._rule.risky:  # a word with one dash, as in `zip -TT`
            self._add_risk(token)
            return
        for at, letter in enumerate(token[1:], start=1):
            option = f"-{letter}"
            self.found.options.add(option)
            if option in self._rule.risky:
                self._add_risk(option, token[at + 1 :])
                return
            if letter in self._rule.values:
                if token[at + 1 :]:
                    given = FoundOption(name=option, place=self._place, value=token[at + 1 :])
                    self.found.values.append(given)
                else:
                    self._take_value(option)
                return
            if letter not in self._rule.flags and not self._rule.is_open:
                self._refuse_unknown(option)
                return

    def _take_value(self, option: str) -> None:
        if self._todo:
            self._place, value = self._todo.pop()
            self.found.values.append(FoundOption(name=option, place=self._place, value=value))
        else:
            self.found.unknown.append(FoundOption(name=option, place=self._place))

    def _add_risk(self, option: str, value: str = "") -> None:
        self.found.risky.append(FoundOption(name=option, place=self._place, value=value))

    def _refuse_unknown(self, option: str) -> None:
        if not self._rule.is_open:
            self.found.unknown.append(FoundOption(name=option, place=self._place))


__all__ = ["FoundOption", "OptionRule", "Reading", "read_options"]
