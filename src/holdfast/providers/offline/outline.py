"""The steps towards a goal, from its words and from what tools have shown of the workspace.

The frame of each kind of work is fixed; what fills it is the goal as it was written, and files
and commands that are really there. Nothing is guessed: what is not known is left to the step
that finds it out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.canonical import JsonObject
from holdfast.providers.lazy_patterns import compile_on_use
from holdfast.providers.offline.facts import quote
from holdfast.providers.offline.instance import PlanStep
from holdfast.providers.offline.listing import Listing
from holdfast.providers.offline.works import ANYTHING, WORKS

_MOST_PARTS = 8
_MOST_FILES = 5
_MOST_SHOWN = 3
_MAX_TITLE = 80
_MAX_GOAL = 2_000
_FILE = compile_on_use(
    r"(?<![\w./-])[\w./-]*[\w-]\.[A-Za-z]\w{0,9}(?![\w/])|\b(?:(?i:readme|changelog)|LICENSE)\b"
)
_BARE = {"README": "README.md", "LICENSE": "LICENSE", "CHANGELOG": "CHANGELOG.md"}
_VERB = (
    r"(?:add|build|change|clean|configure|create|delete|deploy|document|fix|implement|improve|"
    r"install|mak|make|migrat|migrate|mov|move|publish|refactor|releas|release|remov|remove|renam|"
    r"rename|replac|replace|rewrit|rewrite|run|set|split|test|updat|update|upgrad|upgrade|writ|"
    r"write)(?:ing)?\b"
)
_BETWEEN_PARTS = compile_on_use(
    rf"\s*\n\s*(?:[-*•]|\d{{1,3}}[.)])?\s*|\s*;\s*|,?\s+(?:and\s+)?then\s+|"
    rf",?\s+and\s+(?={_VERB})|,\s+(?={_VERB})|[.!?]\s+(?:then\s+)?(?={_VERB})",
    re.IGNORECASE,
)
_IDENTIFIER = compile_on_use(
    r"`([A-Za-z_][\w.]{2,60})`|\b([A-Za-z]{1,60}_\w{1,60}|[A-Z]\w{0,30}[a-z]\w{0,30}[A-Z]\w{0,30})\b"
)
_EMPTY_WORDS = set(
    "about add adding after all also and any before build code could create each every file files "
    "first from have into just like make making more must need needs new one other over please "
    "project repo repository should small some something step steps support that the their them "
    "then there these they this those update using want what when where which will with without "
    "workspace would write writing your".split()
)
_MAKES = compile_on_use(r"\b(?:add|creat|writ|mak|generat)(?:e|ing)?\b", re.I)
_PLACES = compile_on_use(
    r"\b(?:code|project|repo(?:sitory)?|workspace|package|module|files?|api)\b", re.I
)


class Seen(NamedTuple):
    """What tools have shown of the workspace."""

    listing: Listing = Listing((), (), False)
    commands: tuple[tuple[str, str], ...] = ()
    """Commands that check the project, each with the file that names it."""
    hits: tuple[str, ...] = ()
    """Files in which a search has found a name of the goal."""


def split_parts(goal: str) -> list[str]:
    """Return what the goal consists of: its lines, or the tasks that `and` or `then` joins."""
    found = [part.strip(" -*•\t") for part in _BETWEEN_PARTS.split(goal[:_MAX_GOAL])]
    return [part for part in found if re.search(r"\w", part)][:_MOST_PARTS]


def is_known_work(goal: str) -> bool:
    """Say whether the goal is work that the outline has steps of its own for."""
    return any(work.words.search(goal[:_MAX_GOAL]) for work in WORKS)


def needs_look(goal: str) -> bool:
    """Say whether the goal is about files, so that looking at them helps the plan."""
    return is_known_work(goal) or bool(_PLACES.search(goal) or _FILE.search(goal[:_MAX_GOAL]))


def list_names_in(goal: str) -> list[str]:
    """Return the names of code that the goal speaks of, at most three."""
    found = [one or other for one, other in _IDENTIFIER.findall(goal[:_MAX_GOAL])]
    return list(dict.fromkeys(name for name in found if not _FILE.fullmatch(name)))[:3]


def outline(goal: str, seen: Seen) -> tuple[PlanStep, ...]:
    """Return the steps towards a goal, each with what it makes and how it is checked.

    There is always at least one. Equal goals and sights give equal steps; every file that a
    step names is either listed or named by the goal.
    """
    parts = split_parts(goal) or [quote(goal, _MAX_TITLE) or "No goal was given"]
    steps: list[PlanStep] = []
    if seen.listing.files and needs_look(goal):
        steps.append(_plan_first_look(goal, seen))
    for part in parts:
        steps += _plan_parts(part, seen, is_one_of_many=len(parts) > 1)
    steps.append(_plan_last_check(seen))
    return tuple(steps)


def _plan_parts(part: str, seen: Seen, *, is_one_of_many: bool) -> list[PlanStep]:
    templates = next((work.steps for work in WORKS if work.words.search(part)), ANYTHING)
    target = _find_target(part, seen.listing)
    near = _list_related(part, seen)
    title = _format_sentence(quote(part, _MAX_TITLE))
    filled = {
        "goal": quote(part, _MAX_GOAL),
        "title": title,
        "where": f" (begin with {_format_spans(near)})" if near else "",
        "target": f"`{target}`" if target else "the changed or new files",
    }
    steps = []
    for template in templates:
        named = template.title.format(**filled)
        if is_one_of_many and named != title:
            named = f"{named}: {quote(part, _MAX_TITLE // 2)}"
        evidence: tuple[JsonObject, ...] = ()
        check = template.check
        if template.makes_target and target:
            evidence = ({"kind": "file_exists", "path": target},)
            check = f"`{target}` exists, and {check}"
        steps.append(
            PlanStep(
                named,
                template.detail.format(**filled),
                makes=template.makes.format(**filled),
                check=check,
                evidence=evidence,
            )
        )
    return steps


def _plan_first_look(goal: str, seen: Seen) -> PlanStep:
    known = set(seen.listing.files)
    asked = [path for path in _list_named_files(goal, seen.listing) if path in known]
    telling = [path for _, path in seen.commands if path in known]
    first = list(dict.fromkeys([*asked, *_list_related(goal, seen), *telling]))[:_MOST_SHOWN]
    if not first:
        first = sorted(known, key=lambda path: (path.count("/"), path))[:_MOST_SHOWN]
    there = ""
    if asked and _MAKES.search(goal):
        there = f" {_format_spans(asked)} is there already: say whether it is changed or replaced."
    return PlanStep(
        "Look at what is there",
        f"Read {_format_spans(first)} and what they lead to.{there}",
        "read",
        tuple(first),
        makes="a list of what the goal touches, and of what is missing",
        check=f"the answer names {_format_spans(first)}",
    )


def _plan_last_check(seen: Seen) -> PlanStep:
    if not seen.commands:
        return PlanStep(
            "Check the whole",
            "Go through what each step was to make, and use the result as its user would.",
            makes="a note of what was tried and what came out",
            check="nothing that a step was to make is missing, or the note says what is",
        )
    commands = [command for command, _ in seen.commands]
    sources = list(dict.fromkeys(path for _, path in seen.commands))
    return PlanStep(
        "Run the checks of the project",
        f"Run {_format_spans(commands)}, which {_format_spans(sources)} speaks of.",
        makes="the output of each command",
        check=" and ".join(f"`{command}` ends with 0" for command in commands),
        evidence=tuple({"kind": "command", "command": command} for command in commands),
    )


def _list_named_files(goal: str, listing: Listing) -> list[str]:
    """The files that a goal names; a bare README stands for the one that is there."""
    found = []
    for match in _FILE.finditer(goal[:_MAX_GOAL]):
        name = match[0].removeprefix("./")
        stem = name.upper()
        there = [path for path in listing.files if path.upper().split(".")[0] == stem]
        found.append(there[0] if there else _BARE.get(stem, name))
    return list(dict.fromkeys(found))


def _find_target(part: str, listing: Listing) -> str:
    """The file that a part is to make, when it names exactly one inside the workspace."""
    named = [
        path
        for path in _list_named_files(part, listing)
        if not path.startswith(("/", "~")) and ".." not in path.split("/")
    ]
    return named[0] if len(named) == 1 else ""


def _list_related(goal: str, seen: Seen) -> list[str]:
    """Listed files that the goal names, that a search has found, or whose names fit its words."""
    words = {
        word.removesuffix("s")
        for word in re.findall(r"[^\W\d_]{4,40}", goal[:_MAX_GOAL].lower())
        if word not in _EMPTY_WORDS
    }
    named = set(_list_named_files(goal, seen.listing))
    scores = {}
    for path in seen.listing.files:
        lowered = path.lower()
        score = 10 * (path in named) + 5 * (path in seen.hits)
        score += sum(word in lowered for word in words)
        if score:
            scores[path] = score
    return sorted(scores, key=lambda path: (-scores[path], path.count("/"), path))[:_MOST_FILES]


def _format_spans(texts: Sequence[str]) -> str:
    return ", ".join(f"`{quote(text.replace('`', ''), 200)}`" for text in texts)


def _format_sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
