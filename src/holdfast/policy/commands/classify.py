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
from holdfast.policy.commands.scripts import awk_prints_only, sed_prints_only

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


class Classification(msgspec.Struct, frozen=True, kw_only=True):
    """What a program would do, and the reason in words.

    `is_by_option` means that an option or an argument made it so, not the program itself.
    """

    kind: CommandKind
    because: str
    is_by_option: bool = False


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
    risky: dict[str, CommandKind] = {}
    writes: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    runs_programs: tuple[str, ...] = ()

    def as_rule(self) -> Rule:
        return Rule(flags=self.flags, long=self.long, values=self.values, risky=self.risky)

    def kind_of(self, name: str) -> CommandKind:
        if name in self.writes:
            return "writes"
        if name in self.network:
            return "network"
        return "runs-programs" if name in self.runs_programs else "unknown"


class _Table(msgspec.Struct, frozen=True, kw_only=True):
    kinds: dict[str, str]
    rules: dict[str, Rule]
    subcommands: dict[str, _Subcommands]


@functools.cache
def _table() -> tuple[dict[str, CommandKind], dict[str, Rule], dict[str, _Subcommands]]:
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


def classify_argv(argv: tuple[str, ...]) -> Classification:
    """Say what one program would do with these arguments."""
    names, rules, subcommands = _table()
    name = _known_name(argv[0])
    if not name:
        return _unknown(f"{argv[0]} is not a program of the system")
    if argv[1:] == ("--version",) and (name in names or name in rules):
        return Classification(kind="read-only", because=f"{name} only says its version")
    if name in subcommands:
        return _classify_subcommand(name, argv[1:], subcommands[name])
    if name in rules:
        return _judge(name, rules[name], argv[1:])
    kind = names.get(name)
    if kind is None:
        return _unknown(f"{name} is not a program that the table knows")
    return Classification(kind=kind, because=f"{name} is listed as {kind}")


def _known_name(program: str) -> str:
    """The name that the table uses, or nothing for a file that anybody may have put there."""
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
    first = next((at for at, one in enumerate(arguments) if not one.startswith("-")), None)
    if first is None:
        return _unknown(f"{name} without a subcommand")
    before = _judge(name, known.as_rule(), arguments[:first])
    if before.kind != "read-only":
        return before
    full_name = f"{name} {arguments[first]}"
    _, rules, _ = _table()
    if full_name in rules:
        return _judge(full_name, rules[full_name], arguments[first + 1 :])
    kind = known.kind_of(arguments[first])
    if kind == "unknown":
        return _unknown(f"{full_name} is not a command that the table knows")
    return Classification(kind=kind, because=f"{full_name} is listed as {kind}")


def _judge(name: str, rule: Rule, arguments: tuple[str, ...]) -> Classification:
    reading = read_options(rule, arguments)
    found = [Classification(kind=rule.kind, because=f"{name} with options that are known")]
    for option in reading.unknown:
        found.append(_by_option("unknown", f"the option {option} of {name} is not known"))
    for option in reading.risky:
        kind = rule.risky[option]
        found.append(_by_option(kind, f"{option} of {name} is listed as {kind}"))
    for because in _positional_objections(rule, reading):
        found.append(_by_option(rule.extra, f"{name}: {because}"))
    if rule.script and not _script_prints_only(rule, reading):
        found.append(_by_option("unknown", f"the script of {name} may do more than print"))
    return max(found, key=lambda one: SEVERITY[one.kind])


def _positional_objections(rule: Rule, reading: Reading) -> list[str]:
    plain = reading.positionals
    found = []
    most = rule.positionals
    if rule.positionals_if and any(one in reading.options for one in rule.positionals_if):
        most = 1_000_000
    if len(plain) > most:
        found.append("it has more arguments than it needs for looking")
    if len(plain) < rule.minimum:
        found.append("it has too few arguments")
    if rule.first_of and plain and plain[0] not in rule.first_of:
        found.append(f"{plain[0]!r} is not one of {', '.join(rule.first_of)}")
    if rule.first_required and not plain:
        found.append("it does more than look without an argument")
    if rule.first_starts_with and any(not one.startswith(rule.first_starts_with) for one in plain):
        found.append(f"an argument does not start with {rule.first_starts_with}")
    if rule.needs_one_of and not any(one in reading.options for one in rule.needs_one_of):
        found.append(f"it needs one of {', '.join(rule.needs_one_of)} to only look")
    return found


def _script_prints_only(rule: Rule, reading: Reading) -> bool:
    scripts = [
        value for option, value in reading.option_values if option in rule.script_options
    ] or list(reading.positionals[:1])
    check = sed_prints_only if rule.script == "sed" else awk_prints_only
    return all(check(script) for script in scripts)


def _by_option(kind: CommandKind, because: str) -> Classification:
    return Classification(kind=kind, because=because, is_by_option=True)


def _unknown(because: str) -> Classification:
    return Classification(kind="unknown", because=because)


__all__ = ["SEVERITY", "Classification", "CommandKind", "Rule", "classify_argv", "classify_command"]
