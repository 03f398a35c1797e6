"""Let git look without running what its configuration names.

A repository names programs for git to start: hooks, filters, a monitor, pagers, external diffs.
An agent that writes files can prepare one, and then a harmless `git status` is any command at all.
So a git that no person has approved is told by the environment, which wins over every file, that
there are none; drivers, which have names of their own, are looked up first and emptied one by one.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from holdfast.policy import ParsedCommand, Pipeline, SimpleCommand

# Programs that are never a good answer to a question that nobody asked.
_NO_PROGRAM = "false"
# What git shows a difference with where the repository names a program, and no option can say no.
_PLAIN_DIFF = 'holdfast_diff() { diff -u "$2" "$5"; true; }; holdfast_diff'
_SETTINGS = {
    "safe.bareRepository": "explicit",
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.editor": _NO_PROGRAM,
    "sequence.editor": _NO_PROGRAM,
    "core.askPass": _NO_PROGRAM,
    "core.sshCommand": "ssh",
    "core.gitProxy": "",
    "core.alternateRefsCommand": _NO_PROGRAM,
    "credential.helper": "",
    "gpg.program": _NO_PROGRAM,
    "gpg.openpgp.program": _NO_PROGRAM,
    "gpg.x509.program": _NO_PROGRAM,
    "gpg.ssh.program": _NO_PROGRAM,
    "gpg.ssh.defaultKeyCommand": _NO_PROGRAM,
    "log.showSignature": "false",
    "diff.ignoreSubmodules": "all",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
    "fetch.recurseSubmodules": "false",
    "push.recurseSubmodules": "no",
    "interactive.diffFilter": "cat",
    "init.templateDir": "",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
# What a driver of any name may run, and the value under which git runs nothing of the repository.
_DRIVERS = {
    "filter": {"clean": "", "smudge": "", "process": "", "required": "false"},
    "diff": {"textconv": "cat", "command": _PLAIN_DIFF},
    "merge": {"driver": _NO_PROGRAM},
    "trailer": {"command": _NO_PROGRAM, "cmd": _NO_PROGRAM},
    "credential": {"helper": ""},
    "gpg": {"program": _NO_PROGRAM},
    # Since 2.54 hooks stand in the configuration too, where core.hooksPath means nothing.
    "hook": {"enabled": "false", "command": "true"},
    "tar": {"command": _NO_PROGRAM},
    "submodule": {"update": "checkout"},
    "difftool": {"cmd": _NO_PROGRAM, "path": _NO_PROGRAM},
    "mergetool": {"cmd": _NO_PROGRAM, "path": _NO_PROGRAM},
    "guitool": {"cmd": _NO_PROGRAM},
    "browser": {"cmd": _NO_PROGRAM, "path": _NO_PROGRAM},
    "man": {"cmd": _NO_PROGRAM, "path": _NO_PROGRAM},
    "lfs": {"path": _NO_PROGRAM, "clean": "", "smudge": ""},
}
_WHOLE = frozenset({"filter", "hook"})
"""Of these every value is set, whichever of them the repository names."""
_DRIVER = re.compile(r"(\w+)\.(.+)\.(\w+)", re.DOTALL)
_SHOWS_DIFFS = frozenset({"diff", "log", "show", "whatchanged", "diff-tree"})
# Local paths and `ext::` run a program that the configuration names; with lazy fetches, by looking.
_PROTOCOLS = "https:http:ssh:git"
_MOST_PLACES = 8
# Options before the subcommand; these take a value in the next word.
_GLOBAL_VALUES = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})
_GLOBAL_VALUES |= {"--super-prefix", "--config-env", "--attr-source"}
_PLACED = re.compile(
    r"(?:(?<![\w/.-])(?:cd|pushd|-C|--git-dir|--work-tree)[ \t=]+|GIT_DIR=|GIT_WORK_TREE=)"
    r"(?:'([^']*)'|\"([^\"$`\\]*)\"|([^\s;|&<>()'\"$`\\]+))"
)

LIST_SETTINGS = ("git", "config", "--includes", "--list", "--name-only", "-z")
"""Lists the names of all settings that hold somewhere; runs nothing."""


def is_git(command: SimpleCommand) -> bool:
    """Say whether a command is git, or starts it."""
    return any(word.rpartition("/")[2] == "git" for word in command.argv)


def has_git(parsed: ParsedCommand) -> bool:
    """Say whether git is anywhere in a line."""
    return any(map(is_git, parsed.commands()))


def is_git_looking(parsed: ParsedCommand) -> bool:
    """Say whether a line is nothing but git that only looks."""
    from holdfast.policy import classify_argv  # noqa: PLC0415 - first use

    return not parsed.paths("write") and all(
        one.argv[0].rpartition("/")[2] == "git" and classify_argv(one.argv).kind == "read-only"
        for one in parsed.commands()
    )


def find_git_places(parsed: ParsedCommand, directory: str) -> list[str] | None:
    """Return the directories in which git may run in a line; `None` if there are too many."""
    places = [directory]
    for one in parsed.commands():
        if one.argv[0] == "cd":
            places += [posixpath.join(place, one.argv[-1]) for place in places]
        if is_git(one):
            for named in _list_named_places(one.argv):
                places += [posixpath.join(place, named) for place in places]
        # A text among the words may be a script: `sh -c 'cd there && git status'`.
        for word in one.argv[1:]:
            if " " in word:
                places += [at for place in places for at in list_script_places(word, place)]
    found = list(dict.fromkeys(map(posixpath.normpath, places)))
    return found if len(found) <= _MOST_PLACES else None


def list_script_places(text: str, directory: str) -> list[str]:
    """Return directories that a script names for git: a guess, since only bash can read it."""
    places = [directory]
    for found in _PLACED.finditer(text):
        named = found[1] or found[2] or found[3] or "."
        places += [posixpath.join(place, named) for place in places[:_MOST_PLACES]]
    return list(dict.fromkeys(map(posixpath.normpath, places)))[:_MOST_PLACES]


def mentions_git(text: str) -> bool:
    """Say whether a script may start git by its name."""
    return re.search(r"\bgit\b", text) is not None


def is_starting_nothing(parsed: ParsedCommand) -> bool:
    """Say whether no program of a line starts another, which could be git."""
    from holdfast.policy import classify_argv  # noqa: PLC0415 - first use

    return all(
        one.argv[0] == "cd" or classify_argv(one.argv).kind == "read-only"
        for one in parsed.commands()
    )


def _list_named_places(argv: tuple[str, ...]) -> list[str]:
    """Return the directories that options of git name, wherever git stands in the words."""
    found: list[str] = []
    for at, word in enumerate(argv):
        name, is_joined, value = word.partition("=")
        if name in ("--git-dir", "--work-tree") and is_joined:
            found.append(value)
        elif word in ("-C", "--git-dir", "--work-tree"):
            found += argv[at + 1 : at + 2]
    # A directory that is named as the repository itself is as good as the one around it.
    return [place for place in found if place]


def _find_subcommand(argv: tuple[str, ...]) -> int:
    """Return where the subcommand of a git line stands; its length if there is none."""
    at = 1
    while at < len(argv) and argv[at].startswith("-"):
        at += 2 if argv[at] in _GLOBAL_VALUES else 1
    return min(at, len(argv))


def harden_git(
    parsed: ParsedCommand, names: Iterable[str], *, is_looking: bool
) -> tuple[Pipeline, ...]:
    """Return the line so that its git runs no program that a repository names.

    `names` are the settings of the repositories that it may meet, as `LIST_SETTINGS` tells them.
    """
    variables = tuple(make_git_environment(names, is_looking=is_looking).items())
    return tuple(
        replace(pipeline, commands=tuple(_harden(one, variables) for one in pipeline.commands))
        for pipeline in parsed.pipelines
    )


def make_git_environment(
    names: Iterable[str] = (), *, is_looking: bool = True
) -> Mapping[str, str]:
    """The variables under which git runs no program of a repository with these settings."""
    settings = dict(_SETTINGS)
    for name in names:
        if name.lower() == "diff.external":
            settings["diff.external"] = _PLAIN_DIFF
        driver = _DRIVER.fullmatch(name)
        if driver is None:
            continue
        kind, own, used = driver.groups()
        for key, value in _DRIVERS.get(kind.lower(), {}).items():
            if key == used.lower() or kind.lower() in _WHOLE:
                settings[f"{kind}.{own}.{key}"] = value
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for at, (name, value) in enumerate(settings.items()):
        variables[f"GIT_CONFIG_KEY_{at}"] = name
        variables[f"GIT_CONFIG_VALUE_{at}"] = value
    return {
        **variables,
        "GIT_ALLOW_PROTOCOL": "none" if is_looking else _PROTOCOLS,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_EDITOR": _NO_PROGRAM,
        "GIT_ASKPASS": _NO_PROGRAM,
    }


def _harden(command: SimpleCommand, variables: tuple[tuple[str, str], ...]) -> SimpleCommand:
    argv = command.argv
    if argv[0] == "cd":
        return command
    if argv[0].rpartition("/")[2] == "git":
        argv = (argv[0], "--no-pager", *argv[1:])
        at = _find_subcommand(argv)
        head, subcommand, rest = argv[: at + 1], argv[at : at + 1], argv[at + 1 :]
        if subcommand and subcommand[0] in _SHOWS_DIFFS:
            submodules = _forbid_submodules(subcommand[0])
            argv = (*head, "--no-ext-diff", "--no-textconv", *submodules, *rest)
        elif subcommand == ("status",):
            argv = (*head, "--ignore-submodules=all", *rest)
    return replace(command, argv=argv, assignments=(*command.assignments, *variables))


def _forbid_submodules(subcommand: str) -> tuple[str, ...]:
    return ("--ignore-submodules=all",) if subcommand == "diff" else ()


__all__ = ["LIST_SETTINGS", "make_git_environment", "find_git_places", "harden_git", "has_git"]
__all__ += ["is_git", "is_git_looking", "is_starting_nothing", "list_script_places", "mentions_git"]
