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
    "diff": {"textconv": "cat"},
    "merge": {"driver": _NO_PROGRAM},
    "trailer": {"command": _NO_PROGRAM, "cmd": _NO_PROGRAM},
    "credential": {"helper": ""},
    "gpg": {"program": _NO_PROGRAM},
}
_DRIVER = re.compile(r"(\w+)\.(.+)\.(\w+)", re.DOTALL)
_SHOWS_DIFFS = frozenset({"diff", "log", "show", "whatchanged", "diff-tree"})
# Local paths and `ext::` run a program that the configuration names; with lazy fetches, by looking.
_PROTOCOLS = "https:http:ssh:git"
_MOST_PLACES = 8

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


def git_places(parsed: ParsedCommand, directory: str) -> list[str] | None:
    """Return the directories in which git may run in a line; `None` if there are too many."""
    places = [directory]
    for one in parsed.commands():
        if one.argv[0] == "cd":
            places += [posixpath.join(place, one.argv[-1]) for place in places]
    found = list(dict.fromkeys(map(posixpath.normpath, places)))
    return found if len(found) <= _MOST_PLACES else None


def harden_git(
    parsed: ParsedCommand, names: Iterable[str], *, is_looking: bool
) -> tuple[Pipeline, ...]:
    """Return the line so that its git runs no program that a repository names.

    `names` are the settings of the repositories that it may meet, as `LIST_SETTINGS` tells them.
    """
    variables = tuple(git_environment(names, is_looking=is_looking).items())
    return tuple(
        replace(
            pipeline,
            commands=tuple(
                _harden(one, variables) if is_git(one) else one for one in pipeline.commands
            ),
        )
        for pipeline in parsed.pipelines
    )


def git_environment(names: Iterable[str] = (), *, is_looking: bool = True) -> Mapping[str, str]:
    """The variables under which git runs no program of a repository with these settings."""
    settings = dict(_SETTINGS)
    for name in names:
        driver = _DRIVER.fullmatch(name)
        if driver is None:
            continue
        kind, own, used = driver.groups()
        for key, value in _DRIVERS.get(kind, {}).items():
            if key == used or kind == "filter":
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
    if argv[0].rpartition("/")[2] == "git":
        argv = (argv[0], "--no-pager", *argv[1:])
        # Options before the subcommand have asked a person, who approved the line as it is.
        if argv[2:3] and argv[2] in _SHOWS_DIFFS:
            argv = (*argv[:3], "--no-ext-diff", "--no-textconv", *_unsubmoduled(argv[2]), *argv[3:])
        elif argv[2:3] == ("status",):
            argv = (*argv[:3], "--ignore-submodules=all", *argv[3:])
    return replace(command, argv=argv, assignments=(*command.assignments, *variables))


def _unsubmoduled(subcommand: str) -> tuple[str, ...]:
    return ("--ignore-submodules=all",) if subcommand == "diff" else ()


__all__ = ["LIST_SETTINGS", "git_environment", "git_places", "harden_git", "has_git"]
__all__ += ["is_git", "is_git_looking"]
