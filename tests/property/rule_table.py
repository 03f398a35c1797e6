"""The table of `docs/concepts/gate.md` once more, written from the page and from nothing else.

Plain data and plain loops: it shares no code with `holdfast.policy`, so that a difference between
the two is a mistake in one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

STRICT_FIRST = ("deny", "ask", "allow")
KIND_WORDS = {"path": "path", "host": "network", "command": "command"}
QUESTIONS = ("doom_loop", "egress")
READS = ("built-in", "project", "agent", "session", "skills")


@dataclass(frozen=True)
class Rule:
    permission: str
    pattern: str
    action: str


@dataclass(frozen=True)
class Thing:
    """A tool as the table sees it."""

    name: str
    kind: str
    says: str
    effect: str
    scope: str


@dataclass(frozen=True)
class Level:
    rules: tuple[Rule, ...] = ()
    spoken: tuple[Rule, ...] = ()
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    is_person: bool = False
    is_handed: bool = False
    """Whether this agent was handed to the next level in code."""


@dataclass(frozen=True)
class World:
    levels: tuple[Level, ...]
    ceiling: tuple[tuple[Rule, ...], ...] = field(default=())


def verdict(tool: Thing, targets: tuple[str, ...], world: World) -> str:
    answers = []
    for target in targets:
        for one in world.ceiling:
            said = last(one, tool, target)
            answers.append(said.action if said else "allow")
        is_given = tool.scope in ("agent", "session")
        for level in world.levels:
            answers.append(answer(level, tool, target, is_given))
            is_given = is_given and level.is_handed
    return min(answers, key=STRICT_FIRST.index)


def answer(level: Level, tool: Thing, target: str, is_given: bool) -> str:
    agents, sessions = last(level.rules, tool, target), last(level.spoken, tool, target)
    if is_left_out(level, tool):
        return "deny"
    if agents and agents.action == "deny":
        return "deny"
    rule = sessions or agents
    if rule and rule.action in ("deny", "ask"):
        return rule.action
    is_limit = any(limits(one, tool) for one in (*level.rules, *level.spoken))
    if level.is_person:
        return "ask" if not rule and is_limit else "allow"
    if rule:
        return "allow" if tool.says == "allow" or names(rule, tool) else tool.says
    if tool.says == "deny":
        return "deny"
    if is_limit or tool.says == "ask":
        return "ask"
    is_reading = tool.effect == "read" and tool.scope in READS
    return "allow" if is_given or is_reading else "ask"


def is_left_out(level: Level, tool: Thing) -> bool:
    if any(meets_name(one, tool.name) for one in level.denied):
        return True
    if not level.allowed or tool.name in QUESTIONS:
        return False
    return not any(meets_name(one, tool.name) for one in level.allowed)


def limits(rule: Rule, tool: Thing) -> bool:
    if rule.action != "allow" or rule.pattern in ("*", "**"):
        return False
    return names(rule, tool) or (
        has_letters(rule.permission) and meets_name(rule.permission, KIND_WORDS.get(tool.kind, ""))
    )


def names(rule: Rule, tool: Thing) -> bool:
    return has_letters(rule.permission) and meets_name(rule.permission, tool.name)


def has_letters(text: str) -> bool:
    return any(char.isalnum() for char in text)


def last(rules: tuple[Rule, ...], tool: Thing, target: str) -> Rule | None:
    found = None
    for rule in rules:
        is_about = meets_name(rule.permission, tool.name) or meets_name(
            rule.permission, KIND_WORDS.get(tool.kind, "\0")
        )
        if is_about and meets_target(rule.pattern, target, tool.kind):
            found = rule
    return found


def meets_name(pattern: str, name: str) -> bool:
    return bool(name) and star(plain(pattern), plain(name))


def plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def meets_target(pattern: str, target: str, kind: str) -> bool:
    if pattern in ("*", "**"):
        return True
    if kind == "path":
        return glob(pattern.split("/"), target.split("/"))
    if kind == "host":
        if pattern.startswith("*."):
            return target == pattern[2:] or target.endswith(pattern[1:])
        return target == pattern
    if kind == "command" and pattern.endswith(" *"):
        return star(pattern[:-2], target) or star(pattern, target)
    return star(pattern, target)


def star(pattern: str, text: str) -> bool:
    """`*` is any text, `?` one character."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(star(pattern[1:], text[skip:]) for skip in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and star(pattern[1:], text[1:])


def glob(pattern: list[str], path: list[str]) -> bool:
    """`*` stays inside a directory, `**` is any number of them; `a/**` is `a` too."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(glob(pattern[1:], path[skip:]) for skip in range(len(path) + 1))
    if not path:
        return False
    return star(pattern[0], path[0]) and glob(pattern[1:], path[1:])
