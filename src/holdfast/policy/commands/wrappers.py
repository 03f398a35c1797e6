"""Which command another one starts: for rules that allow.

`timeout 5 rm x` is `rm x`. A rule that allows `timeout *` says nothing about `rm`; what is
started is judged by itself. Reading is strict, the other way round from `inside.py`: what
`wrappers.toml` does not describe cannot be read, and then nothing is allowed without a person.
"""

from __future__ import annotations

import functools
import re
import tomllib
from importlib import resources

import msgspec

from holdfast.policy.commands.classify import depends_on_options
from holdfast.policy.commands.inside import WRAPPERS
from holdfast.policy.commands.parse import is_safe_variable, parse_command

FROM_ELSEWHERE = "{}"
"""Stands for arguments that nobody can see in the command."""

_MOST_WRAPPERS = 8
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=.*", re.DOTALL)
_SHELLS = frozenset("ash bash csh dash fish ksh rbash sh tcsh zsh".split())
# What starts commands by a language or a service of its own, and is not for reading here.
_UNREADABLE = WRAPPERS - _SHELLS | frozenset(
    "bwrap caffeinate cgexec choom chpst chronic cpulimit cross-env daemonize dbus-launch "
    "dbus-run-session env-cmd envdir envuidgid faketime firejail gosu hyperfine ifne logsave "
    "multitime nodemon numactl perf pexec pgrphack proxychains proxychains4 retry rlwrap rsh "
    "runcon s6-setuidgid sem setlock setuidgid softlimit su-exec systemd-inhibit torify torsocks "
    "trickle tsocks tsp valgrind xvfb-run".split()
)


class WrapperRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `wrappers.toml`; the file says what the fields mean."""

    flags: str = ""
    values: str = ""
    long: tuple[str, ...] = ()
    long_values: tuple[str, ...] = ()
    before: int = 0
    is_env: bool = False
    is_text: bool = False
    text: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    adds: bool = False
    replaces: tuple[str, ...] = ()
    number: bool = False
    subcommands: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()


class StartedCommand(msgspec.Struct, frozen=True):
    """A command that another one starts, and at which word of it; without words, unreadable.

    One that `is_foreign` is not the program of that name that other rules speak of.
    """

    place: int
    argv: tuple[str, ...] = ()
    is_foreign: bool = False


@functools.lru_cache(maxsize=2_048)
def started_by(argv: tuple[str, ...]) -> tuple[StartedCommand, ...]:
    """Return the commands that a command starts as its arguments; most start none."""
    name = argv[0].rpartition("/")[2]
    rule = _load_rules().get(name)
    if rule is None:
        is_wrapper = name in _UNREADABLE and len(argv) > 1
        return (StartedCommand(1),) if is_wrapper else ()
    started = _read(rule, argv)
    if started and _count_wrappers(argv) > _MOST_WRAPPERS:
        return (StartedCommand(1),)
    if not started and FROM_ELSEWHERE in argv[1:]:
        return (StartedCommand(1),)  # what comes from elsewhere may be a command
    return started


def _read(rule: WrapperRule, argv: tuple[str, ...]) -> tuple[StartedCommand, ...]:
    if rule.starts:
        return tuple(_find_behind_words(argv, rule))
    if not rule.subcommands and not rule.foreign:
        return _Reader(rule, argv).read(1)
    return _read_behind_subcommand(rule, argv)


def _read_behind_subcommand(rule: WrapperRule, argv: tuple[str, ...]) -> tuple[StartedCommand, ...]:
    named = [tuple(one.split()) for one in rule.subcommands]
    foreign = [tuple(one.split()) for one in rule.foreign]
    for words in (*named, *foreign):
        end = 1 + len(words)
        if argv[1:end] == words:
            if words in named:
                return _Reader(rule, argv).read(end)
            return (StartedCommand(end, argv[end:], is_foreign=True),) if argv[end:] else ()
        # Behind options that are not read here it may stand anywhere.
        places = range(2, len(argv))
        if argv[1:2] and argv[1].startswith("-"):
            if any(argv[at : at + len(words)] == words for at in places):
                return (StartedCommand(1),)
    return ()


class _Reader:
    """Reads options of a wrapper up to the first word that is none."""

    def __init__(self, rule: WrapperRule, argv: tuple[str, ...]) -> None:
        self._rule = rule
        self._argv = argv
        self._text: tuple[int, str] | None = None
        self._replaced: list[str] = []

    def read(self, place: int) -> tuple[StartedCommand, ...]:
        found = self._skip_options(place)
        if found is None:
            return (StartedCommand(place),)
        place = self._skip_assignments(found + self._rule.before)
        if self._text is not None:
            return _find_in_text(*self._text)
        if place >= len(self._argv):
            return ()
        if self._rule.is_text:
            return _find_in_text(place, " ".join(self._argv[place:]))
        return (self._make_command(place),)

    def _make_command(self, place: int) -> StartedCommand:
        argv = self._argv[place:]
        is_odd = argv[0].startswith("-") or "=" in argv[0] or FROM_ELSEWHERE in argv[0]
        if is_odd or any(one in argv[0] for one in self._replaced):
            return StartedCommand(place)
        if not self._rule.adds:
            return StartedCommand(place, argv)
        # An option that comes from elsewhere would not be seen.
        if depends_on_options(argv[0]):
            return StartedCommand(place)
        return StartedCommand(place, (*argv, FROM_ELSEWHERE))

    def _skip_options(self, place: int) -> int | None:
        """Where the options end; `None` if one is not known."""
        while place < len(self._argv):
            word = self._argv[place]
            if word == "--":
                return place + 1
            if word == "-" or not word.startswith("-"):
                return place
            taken = self._read_long(place) if word.startswith("--") else self._read_short(place)
            if not taken:
                return None
            place += taken
        return place

    def _read_long(self, place: int) -> int:
        name, equals, value = self._argv[place][2:].partition("=")
        if name in self._rule.long and not equals:
            return 1
        if name not in self._rule.long_values:
            return 0
        return self._read_value(f"--{name}", place, value, is_given=bool(equals))

    def _read_short(self, place: int) -> int:
        word = self._argv[place]
        if self._rule.number and re.fullmatch(r"-\d+", word):
            return 1
        for at, letter in enumerate(word[1:], start=1):
            if letter in self._rule.values:
                return self._read_value(
                    f"-{letter}", place, word[at + 1 :], is_given=at + 1 < len(word)
                )
            if letter not in self._rule.flags:
                return 0
        return 1

    def _read_value(self, option: str, place: int, value: str, *, is_given: bool) -> int:
        if not is_given:
            place += 1
            if place >= len(self._argv):
                return 0
            value = self._argv[place]
        if option in self._rule.text:
            self._text = (place, value)
        if option in self._rule.replaces:
            self._replaced.append(value)
        return 1 if is_given else 2

    def _skip_assignments(self, place: int) -> int:
        while self._rule.is_env and place < len(self._argv):
            found = _ASSIGNMENT.fullmatch(self._argv[place])
            if found is None or not is_safe_variable(found[1]):
                break  # what is left is no name of a program, and cannot be read
            place += 1
        return place


def _find_behind_words(argv: tuple[str, ...], rule: WrapperRule) -> list[StartedCommand]:
    found = []
    for at, word in enumerate(argv[1:], start=1):
        if word in rule.starts:
            rest = argv[at + 1 :]
            end = rest.index(";") if ";" in rest else len(rest)
            inner = rest[:end]
            is_readable = bool(inner) and FROM_ELSEWHERE not in inner[0]
            found.append(StartedCommand(at + 1, inner if is_readable else ()))
        elif word.partition("=")[0] in rule.starts:
            found.append(StartedCommand(at))
    return found


def _find_in_text(place: int, text: str) -> tuple[StartedCommand, ...]:
    """What a shell would start that is given a text; nothing else may be in it."""
    parsed = parse_command(text)
    commands = tuple(parsed.commands())
    if not parsed.is_parsed or any(one.redirections for one in commands):
        return (StartedCommand(place),)
    return tuple(StartedCommand(place, one.argv) for one in commands)


def _count_wrappers(argv: tuple[str, ...]) -> int:
    words = re.findall(r"[\w.-]+", " ".join(argv))
    return sum(word in _load_rules() for word in words)


def list_wrappers() -> frozenset[str]:
    """Return the names of programs that start whatever their arguments say, in any order."""
    own = {
        name
        for name, rule in _load_rules().items()
        if not (rule.starts or rule.subcommands or rule.foreign)
    }
    return frozenset(own | _UNREADABLE) - {"find", "fd", "fdfind"}


@functools.cache
def _load_rules() -> dict[str, WrapperRule]:
    text = resources.files(__package__).joinpath("wrappers.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, WrapperRule])


__all__ = ["FROM_ELSEWHERE", "StartedCommand", "WrapperRule", "list_wrappers", "started_by"]
