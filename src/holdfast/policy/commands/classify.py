"""Say what a program would do, from its name and options alone.

The table `programs.toml` is closed: an unknown program, and an unknown option of a known
one, are `unknown`. Nothing here is a boundary (a program can do what its documentation
does not say); it decides who has to be asked. The boundary is the sandbox.
"""

from __future__ import annotations

import functools
import re
import tomllib
from importlib import resources
from typing import Literal, TypeAlias

import msgspec

from holdfast.policy.commands.model import ParsedCommand
from holdfast.policy.commands.options import Reading, read_options
from holdfast.policy.commands.scripts import does_awk_only_print, does_sed_only_print

CommandKind: TypeAlias = Literal["read-only", "writes", "network", "runs-programs", "unknown"]

# From harmless to unpredictable; a command line is as bad as its worst program.
SEVERITY: dict[CommandKind, int] = {
    "read-only": 0,
    "writes": 1,
    "network": 2,
    "runs-programs": 3,
    "unknown": 4,
}
_KINDS: tuple[CommandKind, ...] = ("read-only", "writes", "network", "runs-programs")
_SYSTEM_DIRECTORIES = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")
_VERSIONED = re.compile(r"(python|perl|ruby|lua|node|php|gcc|clang|pip)[\d.]+")


NOWHERE = -1


class Objection(msgspec.Struct, frozen=True, kw_only=True):
    """An option or argument that makes a program do something worse than it usually does.

    `place` is the word that says so, counted from the program, or `NOWHERE` if something is
    missing rather than there.
    """

    kind: CommandKind
    because: str
    place: int = NOWHERE


class Classification(msgspec.Struct, frozen=True, kw_only=True):
    """What a program would do, and the reason in words.

    `is_by_option` means that an option or an argument made it so, not the program itself;
    `objections` are all of them, also those that something worse outweighs.
    """

    kind: CommandKind
    because: str
    is_by_option: bool = False
    objections: tuple[Objection, ...] = ()


class ProgramRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `programs.toml`; the file says what the fields mean."""

    kind: CommandKind = "read-only"
    same_as: str = ""
    flags: str = ""
    more_flags: str = ""
    values: str = ""
    long: tuple[str, ...] = ()
    more_long: tuple[str, ...] = ()
    long_values: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    word_values: tuple[str, ...] = ()
    risky: dict[str, CommandKind] = {}
    positionals: int = 1_000_000
    positionals_if: tuple[str, ...] = ()
    minimum: int = 0
    extra: CommandKind = "unknown"
    number: bool = False
    old_style: bool = False
    is_open: bool = False
    remote: tuple[str, ...] = ()
    script: Literal["", "sed", "awk"] = ""
    script_options: tuple[str, ...] = ()
    first_of: tuple[str, ...] = ()
    first_required: bool = False
    first_starts_with: str = ""
    needs_one_of: tuple[str, ...] = ()


class _Subcommands(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    flags: str = ""
    long: tuple[str, ...] = ()
    values: str = ""
    takes: tuple[str, ...] = ()
    risky: dict[str, CommandKind] = {}
    writes: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    runs_programs: tuple[str, ...] = ()

    def as_rule(self) -> ProgramRule:
        return ProgramRule(flags=self.flags, long=self.long, values=self.values, risky=self.risky)

    def find_place_in(self, arguments: tuple[str, ...]) -> int:
        """Where the subcommand stands, behind options and what they take."""
        at = 0
        while at < len(arguments) and arguments[at].startswith("-"):
            at += 2 if arguments[at] in self.takes else 1
        return min(at, len(arguments))

    def classify_kind(self, name: str) -> CommandKind:
        if name in self.writes:
            return "writes"
        if name in self.network:
            return "network"
        return "runs-programs" if name in self.runs_programs else "unknown"


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    kinds: dict[str, str]
    rules: dict[str, ProgramRule]
    subcommands: dict[str, _Subcommands]


@functools.cache
def _read_table() -> tuple[dict[str, CommandKind], dict[str, ProgramRule], dict[str, _Subcommands]]:
    text = resources.files(__package__).joinpath("programs.toml").read_text("utf-8")
    table = msgspec.convert(tomllib.loads(text), _Table)
    names = {name: kind for kind in _KINDS for name in table.kinds[kind].split()}
    rules = dict(table.rules)
    for name, rule in table.rules.items():
        if rule.same_as:
            base = table.rules[rule.same_as]
            rules[name] = msgspec.structs.replace(
                base,
                flags=base.flags + rule.more_flags,
                long=base.long + rule.more_long,
                first_of=rule.first_of,
            )
    return names, rules, table.subcommands


def classify_command(parsed: ParsedCommand) -> Classification:
    """Say what a whole command line would do: the worst of its programs and redirections."""
    if not parsed.is_parsed:
        return Classification(kind="unknown", because=parsed.problem)
    found = [classify_argv(one.argv) for one in parsed.commands()]
    found += [
        Classification(kind="writes", because=f"it writes {path}") for path in parsed.paths("write")
    ]
    return max(found, key=lambda one: SEVERITY[one.kind])


@functools.lru_cache(maxsize=4_096)
def classify_argv(argv: tuple[str, ...]) -> Classification:
    """Say what one program would do with these arguments."""
    names, rules, subcommands = _read_table()
    name = _find_known_name(argv[0])
    if not name:
        return _report_unknown(f"{argv[0]} is not a program of the system")
    if argv[1:] == ("--version",) and (name in names or name in rules):
        return Classification(kind="read-only", because=f"{name} only says its version")
    if name in subcommands:
        return _classify_subcommand(name, argv[1:], subcommands[name])
    if name in rules:
        return _judge(name, rules[name], argv[1:])
    kind = names.get(name)
    if kind is None:
        return _report_unknown(f"{name} is not a program that the table knows")
    return Classification(kind=kind, because=f"{name} is listed as {kind}")


def depends_on_options(program: str) -> bool:
    """Say whether some options make a program do something worse, as the table has it."""
    _, rules, subcommands = _read_table()
    name = _find_known_name(program)
    return not name or name in rules or name in subcommands


def _find_known_name(program: str) -> str:
    """The name that the table uses, or nothing for a file that any caller may have put there."""
    for directory in _SYSTEM_DIRECTORIES:
        if program.startswith(directory):
            program = program[len(directory) :]
            break
    if "/" in program:
        return ""
    versioned = _VERSIONED.fullmatch(program)
    return versioned.group(1) if versioned else program


def _classify_subcommand(
    name: str, arguments: tuple[str, ...], known: _Subcommands
) -> Classification:
    if arguments in (("--version",), ("version",)):
        return Classification(kind="read-only", because=f"{name} only says its version")
    first = known.find_place_in(arguments)
    if first == len(arguments):
        before = _judge(name, known.as_rule(), arguments)
        return before if before.objections else _report_unknown(f"{name} without a subcommand")
    before = _judge(name, known.as_rule(), arguments[:first])
    if before.kind != "read-only":
        return before
    full_name = f"{name} {arguments[first]}"
    _, rules, _ = _read_table()
    if full_name in rules:
        return _judge(full_name, rules[full_name], arguments[first + 1 :], skipped=first + 1)
    kind = known.classify_kind(arguments[first])
    if kind == "unknown":
        # It may be an alias, or any program of that name: a rule for `git` does not mean it.
        because = f"{full_name} is not a command that the table knows"
        odd = Objection(kind="unknown", because=because, place=first + 1)
        return Classification(kind="unknown", because=because, objections=(odd,))
    return Classification(kind=kind, because=f"{full_name} is listed as {kind}")


def _judge(
    name: str, rule: ProgramRule, arguments: tuple[str, ...], *, skipped: int = 0
) -> Classification:
    """Judge arguments by a rule; `skipped` words stood between the program and them."""
    reading = read_options(rule, arguments)
    found = [
        Objection(
            kind="unknown",
            because=f"the option {one.name} of {name} is not known",
            place=one.place,
        )
        for one in reading.unknown
    ]
    for one in reading.risky:
        kind = rule.risky[one.name]
        because = f"{one.name} of {name} is listed as {kind}"
        found.append(Objection(kind=kind, because=because, place=one.place))
    for one in reading.values:
        if one.name in rule.remote and ":" in one.value:
            because = f"{one.value} is on another machine"
            found.append(Objection(kind="network", because=because, place=one.place))
    found += _list_positional_objections(name, rule, reading)
    if rule.script:
        found += _list_script_objections(name, rule, reading)
    placed = tuple(
        one if one.place == NOWHERE else msgspec.structs.replace(one, place=one.place + skipped + 1)
        for one in found
    )
    worst = max(placed, key=lambda one: SEVERITY[one.kind], default=None)
    if worst is None or SEVERITY[worst.kind] < SEVERITY[rule.kind]:
        because = f"{name} with options that are known"
        return Classification(kind=rule.kind, because=because, objections=placed)
    return Classification(
        kind=worst.kind, because=worst.because, is_by_option=True, objections=placed
    )


def _list_positional_objections(name: str, rule: ProgramRule, reading: Reading) -> list[Objection]:
    plain = reading.positionals
    found: list[tuple[str, int]] = []
    most = rule.positionals
    if rule.positionals_if and any(one in reading.options for one in rule.positionals_if):
        most = 1_000_000
    found += [
        (f"{one.name!r} is more than it needs for looking", one.place) for one in plain[most:]
    ]
    if len(plain) < rule.minimum:
        found.append(("it has too few arguments", NOWHERE))
    if rule.first_of and plain and plain[0].name not in rule.first_of:
        because = f"{plain[0].name!r} is not one of {', '.join(rule.first_of)}"
        found.append((because, plain[0].place))
    if rule.first_required and not plain:
        found.append(("it does more than look without an argument", NOWHERE))
    start = rule.first_starts_with
    if start:
        odd = [one for one in plain if not one.name.startswith(start)]
        found += [(f"{one.name!r} does not start with {start}", one.place) for one in odd]
    if rule.needs_one_of and not any(one in reading.options for one in rule.needs_one_of):
        found.append((f"it needs one of {', '.join(rule.needs_one_of)} to only look", NOWHERE))
    return [
        Objection(kind=rule.extra, because=f"{name}: {because}", place=place)
        for because, place in found
    ]


def _list_script_objections(name: str, rule: ProgramRule, reading: Reading) -> list[Objection]:
    given = [(one.value, one.place) for one in reading.values if one.name in rule.script_options]
    scripts = given or [(one.name, one.place) for one in reading.positionals[:1]]
    check = does_sed_only_print if rule.script == "sed" else does_awk_only_print
    because = f"the script of {name} may do more than print"
    return [
        Objection(kind="unknown", because=because, place=place)
        for script, place in scripts
        if not check(script)
    ]


def _report_unknown(because: str) -> Classification:
    return Classification(kind="unknown", because=because)


__all__ = [
    "NOWHERE",
    "SEVERITY",
    "Classification",
    "CommandKind",
    "Objection",
    "ProgramRule",
    "classify_argv",
    "classify_command",
    "depends_on_options",
]
