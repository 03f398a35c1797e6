"""Every decision of the gate is the one that the table in `docs/concepts/gate.md` gives. (4.1, 4.2)

The reference in `rule_table.py` is written from the page. Here agents, tools, rules, sessions
and parents are made by chance, judged by both, and compared.
"""

from __future__ import annotations

import functools
import random
from typing import Any

import pytest
import rule_table as table

from holdfast.agents import Agent, UnlimitedAgent
from holdfast.policy import Rights, RuleSet, could_ever
from holdfast.policy.explanation import explain
from holdfast.sessions import PermissionRule
from holdfast.tools import Gate, Target, Tool

CASES = 20_000
KINDS = {
    "path": ("a.csv", "b.txt", "data/x.csv", "data/sub/y.txt"),
    "command": ("git status", "git push origin", "ls -l"),
    "host": ("example.org", "api.example.org", "other.net"),
    "text": ("rome", "oslo"),
    "agent": ("general", "explore"),
    "none": ("*",),
}
PATTERNS = {
    "path": ("*", "*", "**", "*.csv", "**/*.csv", "data/**", "a.csv", "data/*"),
    "command": ("*", "*", "git *", "git status *", "ls -l"),
    "host": ("*", "*", "example.org", "*.example.org"),
    "text": ("*", "*", "rome", "r*"),
    "agent": ("*", "*", "gen*"),
    "none": ("*", "*", "x"),
}
NAMES = ("read", "refund", "web_fetch", "mcp__shop__pay", "doom_loop")
PERMISSIONS = (
    *NAMES, "*", "*", "**", "?*", "Refund", "webfetch", "mcp_*", "re*", "path", "network",
    "command", "pat*",
)  # fmt: skip
ACTIONS = ("allow", "allow", "ask", "deny")
SCOPES = ("built-in", "project", "agent", "session", "mcp", "bundle", "skills", "elsewhere")


def make_rules(chance: random.Random, kind: str, most: int) -> tuple[table.Rule, ...]:
    return tuple(
        table.Rule(
            chance.choice(PERMISSIONS), chance.choice(PATTERNS[kind]), chance.choice(ACTIONS)
        )
        for _ in range(chance.randint(0, most))
    )


def make_level(chance: random.Random, kind: str, *, is_first: bool) -> table.Level:
    spoken = make_rules(chance, kind, 2) if chance.random() < 0.4 else ()
    is_handed = chance.random() < 0.5
    if not is_first and chance.random() < 0.2:
        return table.Level(spoken=spoken, is_person=True, is_handed=is_handed)
    listed = chance.random() < 0.3
    denied = chance.random() < 0.15
    return table.Level(
        rules=make_rules(chance, kind, 4),
        spoken=spoken,
        allowed=tuple(chance.choices(PERMISSIONS[:11], k=2)) if listed else (),
        denied=(chance.choice(NAMES[:-1]),) if denied else (),
        is_handed=is_handed,
    )


def make_world(seed: int) -> tuple[table.Thing, tuple[str, ...], table.World]:
    chance = random.Random(seed)
    kind = chance.choice(tuple(KINDS))
    tool = table.Thing(
        name=chance.choice(NAMES[:-1]),
        kind=kind,
        says=chance.choice(("allow", "allow", "ask", "deny")),
        effect=chance.choice(("read", "unsafe")),
        scope=chance.choice(SCOPES),
    )
    targets = tuple(chance.choices(KINDS[kind], k=chance.choice((1, 1, 2))))
    levels = tuple(
        make_level(chance, kind, is_first=place == 0) for place in range(chance.randint(1, 3))
    )
    ceiling = tuple(make_rules(chance, kind, 2) for _ in range(chance.choice((0, 0, 1, 2))))
    return tool, targets, table.World(levels=levels, ceiling=ceiling)


def as_set(rules: tuple[table.Rule, ...]) -> RuleSet:
    return RuleSet(rules=tuple(as_rule(rule) for rule in rules))


def as_rule(rule: table.Rule) -> PermissionRule:
    action: Any = rule.action
    return PermissionRule(permission=rule.permission, pattern=rule.pattern, action=action)


def as_rights(levels: tuple[table.Level, ...]) -> Rights:
    rights: Rights | None = None
    for level in reversed(levels):
        agent: Agent = (
            UnlimitedAgent("p")
            if level.is_person
            else Agent(
                "a",
                permission=[as_rule(rule) for rule in level.rules],
                allowed_tools=level.allowed,
                denied_tools=level.denied,
            )
        )
        rights = Rights(
            agent=agent.rule_set,
            session=as_set(level.spoken),
            parent=rights,
            is_handed=level.is_handed,
        )
    assert rights is not None
    return rights


@functools.cache
def make_tool(name: str, kind: Any, **options: Any) -> Tool:
    def function() -> str:
        """Do something."""
        return ""

    target = Target(kind=kind, resolve=lambda _values, _workspace: ())
    return Tool.from_function(function, name=name, target=target, **options)


@pytest.mark.parametrize("part", range(4))
def test_every_decision_is_the_one_of_the_table(part: int) -> None:
    seen = {"allow": 0, "ask": 0, "deny": 0}
    size = CASES // 4
    for seed in range(part * size, (part + 1) * size):
        thing, targets, world = make_world(seed)
        tool = make_tool(thing.name, thing.kind, permission=thing.says, effect=thing.effect)
        rights = as_rights(world.levels)
        ceiling = RuleSet(also=tuple(map(as_set, world.ceiling)))
        gate = Gate(ceiling=ceiling, rights=rights)
        request = gate.describe(tool, targets, thing.scope)
        expected = table.verdict(thing, targets, world)
        decided = gate.decide(request)
        assert decided.action == expected, (seed, thing, targets, world)
        assert explain(request, ceiling, rights).action == expected, seed
        if not could_ever(tool.name, ceiling, rights, thing.kind):
            assert expected == "deny", seed
        seen[expected] += 1
    # A test whose cases all end the same would prove little.
    assert min(seen.values()) > size // 50, seen
