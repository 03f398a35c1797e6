"""Rules that decide nothing are found, and those that decide something are not."""

from __future__ import annotations

import pytest

from holdfast.policy import RuledTool, find_idle_rules
from holdfast.sessions import PermissionRule

TOOLS = (
    RuledTool(name="read", kind="path"),
    RuledTool(name="write", kind="path"),
    RuledTool(name="refund", own="ask"),
    RuledTool(name="calculator", is_optional=True),
)


def idle(*texts: str) -> list[tuple[int, str]]:
    rules = [
        PermissionRule(**dict(zip(("permission", "pattern", "action"), text.split(), strict=True)))  # type: ignore[arg-type]
        for text in texts
    ]
    found = find_idle_rules(rules, TOOLS)
    return [(rules.index(one.rule), one.because) for one in found]


@pytest.mark.parametrize(
    ("rules", "place", "because"),
    [
        (("* * allow", "read *.csv allow"), 1, "`* * allow` in front of it"),
        (("read a allow", "* * deny"), 0, "`* * deny` behind it"),
        (("read a allow", "read a ask"), 0, "`read a ask` behind it"),
        (("read * ask", "read a ask"), 1, "`read * ask` in front of it"),
        (("path * allow", "write b allow"), 1, "`path * allow` in front of it"),
        (("raed * deny",), 0, "did you mean 'read'?"),
        (("zzzzzz * deny",), 0, "there is no tool 'zzzzzz'"),
        (("doom_loop * ask", "doom_loop x ask"), 1, "`doom_loop * ask` in front of it"),
    ],
)
def test_a_rule_without_effect_is_named(rules: tuple[str, ...], place: int, because: str) -> None:
    [(found, told)] = idle(*rules)
    assert found == place and because in told


@pytest.mark.parametrize(
    "rules",
    [
        ("read *.csv allow",),
        ("* * allow", "refund * allow"),
        ("* * allow", "calculator * allow"),
        ("* * allow", "read secret deny", "read a allow"),
        ("read a allow", "read b allow"),
        ("* * deny", "read * allow"),
        ("read * ask", "path a ask"),
        ("refund x allow", "* a allow", "refund y ask"),
    ],
)
def test_a_rule_with_an_effect_is_left_alone(rules: tuple[str, ...]) -> None:
    assert idle(*rules) == []
