"""What a goal asks for, as far as fixed rules can tell."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

from holdfast.providers.lazy_patterns import compile_on_use
from holdfast.providers.offline.arithmetic import Expression, find_expression
from holdfast.providers.offline.plan_request import find_planned_goal

Kind: TypeAlias = Literal[
    "sum", "search", "read", "workspace", "list", "read_all", "plan", "unknown"
]

_PLACE = (
    r"work ?space|project|repo(?:sitory)?|folder|director(?:y|ies)|code ?base|files|source tree"
    r"|package|code|library|here"
)
_ASKS = (
    r"describe|description|summar(?:y|i[sz]e)|explain|overview|list|show|what|which|tell|explore|"
    r"inspect|look|analy[sz]e|understand|examine|survey|read|about|give|scan|map"
)
_CHANGES = compile_on_use(
    r"\b(?:delete|remove|fix|refactor|deploy|implement|rename|install|commit|push|edit|modify|"
    r"change|update|upgrade|rewrite|migrate|run|execute|create|write|add|build|generate|translate|"
    r"test)\b"
)
_MAKES_TEXT = compile_on_use(
    r"\b(?:write|create|give|make|produce|generate|build)\b[\w\s]{0,30}?"
    r"\b(?:summary|overview|description|report|list)\b"
)
_WORD = r"[`\"']?(?P<{name}>[A-Za-z_][\w.:-]{{0,80}})[`\"']?(?:\(\))?"
_KINDS = r"(?:function |class |method |type |variable |constant )?"
_DEFINED = compile_on_use(
    rf"\bwhere(?:'s| is| are)? (?:the )?{_KINDS}{_WORD.format(name='word')} "
    r"(?:defined|declared|implemented)|"
    r"\b(?:find|locate|show)(?: me)? the (?:definition|declaration|implementation) of "
    rf"{_WORD.format(name='word2')}",
    re.I,
)
_TODO = compile_on_use(r"\b(?:todo|fixme|xxx|hack)s?\b", re.I)
_LOOKS_FOR = compile_on_use(
    r"\b(?:search|grep|look)(?: (?:the )?(?:workspace|project|repo(?:sitory)?|code(?:base)?))? for "
    r"(?:the (?:word|text|string) )?(?P<quote>[`\"'])?(?P<what>.{1,80}?)"
    r"(?(quote)(?P=quote)|[?.!]?$)|"
    r"\b(?:where is|who (?:uses|calls)|find (?:all )?(?:uses|usages|occurrences|mentions) of|find) "
    r"[`\"'](?P<word>[^`\"']{1,80})[`\"']",
    re.I,
)
_SHOWS = compile_on_use(
    r"\b(?:read|show|print|display|open|view|look (?:at|into)|summari[sz]e|describe|explain|cat|"
    r"contents? of|what(?:'s| is) (?:in|inside|written in)|what do(?:es)?)\b",
    re.I,
)
_FILE_NAME = compile_on_use(
    r"[\w./-]*[\w-]\.[A-Za-z]\w{0,9}|\.{0,2}/[\w./-]+|(?:[\w.-]+/){2,}[\w.-]+|(?:[\w.-]*/)?\.[A-Za-z][\w-]{2,30}|"
    r"README|Makefile|Justfile|Dockerfile|LICENSE|CHANGELOG",
    re.I,
)
_FOLDER_NAME = compile_on_use(r"(?:[\w.-]+/)+")
_ABBREVIATIONS = {"e.g", "i.e", "a.k.a"}
_QUOTED_FILE = compile_on_use(
    r"\s+(?:me\s+)?(?:the\s+file\s+)?[`\"'](?P<name>[^`\"'\n]{1,200})[`\"']"
)
_MOST_FILES = 5
_MAX_GOAL = 20_000


class GoalIntent(NamedTuple):
    """The kind of goal, with what belongs to the kind."""

    kind: Kind
    expression: Expression | None = None
    pattern: str = ""
    """What to search for, as a regular expression."""
    fallback: str = ""
    """A wider search for when the first finds nothing."""
    subject: str = ""
    """The asked word, folder or file, or the goal of the asked plan."""
    files: tuple[str, ...] = ()
    """The asked files, all of them."""
    also_asks_for_change: bool = False


def read_intent(goal: str) -> GoalIntent:
    """Say what a goal asks for; `unknown` when no rule knows it."""
    text = goal[:_MAX_GOAL].strip()
    lowered = text.lower()
    if lowered.startswith("look around"):
        return GoalIntent("list")
    if lowered.startswith("read the key files:"):
        return GoalIntent("read_all", subject=text)
    expression = find_expression(text)
    if expression is not None:
        return GoalIntent("sum", expression=expression)
    planned = find_planned_goal(text)
    if planned is not None:
        return GoalIntent("plan", subject=planned)
    changes = bool(_CHANGES.search(_MAKES_TEXT.sub(" ", _drop_names(lowered))))
    asks = bool(re.search(rf"\b(?:{_ASKS})\b", lowered)) or bool(_MAKES_TEXT.search(lowered))
    starts_with_change = bool(_CHANGES.match(_MAKES_TEXT.sub("", lowered.removeprefix("please "))))
    if starts_with_change and not _MAKES_TEXT.match(lowered.removeprefix("please ")):
        return GoalIntent("unknown", also_asks_for_change=True)
    searched = _search(text)
    if searched is not None:
        return searched._replace(also_asks_for_change=changes and not _TODO.search(text))
    files = _list_asked_files(text)
    if files and files[0].endswith("/"):
        return GoalIntent("list", subject=files[0].rstrip("/"))
    if files:
        return GoalIntent("read", subject=files[0], files=files, also_asks_for_change=changes)
    if asks and re.search(rf"\b(?:{_PLACE})\b", lowered):
        return GoalIntent("workspace", also_asks_for_change=changes)
    return GoalIntent("unknown", also_asks_for_change=changes)


def _drop_names(text: str) -> str:
    """Blank out quoted words and paths: `run.py` asks for nothing."""
    words = re.sub(r"[`\"'][^`\"']*[`\"']", " ", text).split()
    return " ".join(word for word in words if not re.search(r"[./_]\w", word))


def _list_asked_files(text: str) -> tuple[str, ...]:
    """Return the files that the words right behind a verb of showing name, if they do.

    A name that ends with a slash is a folder; only the first name can be one.
    """
    verb = _SHOWS.search(text)
    if verb is None:
        return ()
    rest = text[verb.end() :]
    named = _QUOTED_FILE.match(rest)
    if named is not None and _FILE_NAME.fullmatch(named["name"].replace(" ", "_")):
        return (named["name"],)
    found: list[str] = []
    for word in rest.split()[: 8 + _MOST_FILES]:
        name = word.strip("`\"'?!,;:()").rstrip(".")
        is_file = _FILE_NAME.fullmatch(name) or (not found and _FOLDER_NAME.fullmatch(name))
        if len(name) <= 200 and is_file and name.lower() not in _ABBREVIATIONS:
            found.append(name)
    first_words = {word.strip("`\"'?!,;:()").rstrip(".") for word in rest.split()[:8]}
    return tuple(dict.fromkeys(found))[:_MOST_FILES] if first_words & set(found) else ()


def _search(text: str) -> GoalIntent | None:
    defined = _DEFINED.search(text)
    if defined is not None:
        word = (defined["word"] or defined["word2"]).rstrip(".:-")
        escaped = re.escape(word.rpartition(".")[2] or word)
        keywords = "def|class|function|fn|func|struct|enum|interface|trait|type|const|let|var"
        definition = rf"\b({keywords})\s+{escaped}\b|^\s*{escaped}\s*(:[^=]+)?="
        return GoalIntent("search", pattern=definition, fallback=rf"\b{escaped}\b", subject=word)
    looked = _LOOKS_FOR.search(text)
    if looked is not None:
        what = (looked["what"] or looked["word"]).strip()
        if what and not _TODO.fullmatch(what):
            return GoalIntent("search", pattern=re.escape(what), subject=what)
    todo = _TODO.search(text)
    if todo is not None and re.search(
        r"\b(?:find|list|show|search|where|which|any|what|are)\b", text, re.I
    ):
        return GoalIntent("search", pattern=r"\b(TODO|FIXME|XXX|HACK)\b", subject="TODO")
    return None
