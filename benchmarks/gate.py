"""What the gate costs: a decision among 200 rules, and a text searched for secrets."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

from _report import Result, arguments, report

from holdfast.policy import CallRequest, Rights, RuleSet, decide
from holdfast.sessions import PermissionRule

DECIDE_US = 20.0
RULES = 200


def measure_decide(rounds: int) -> list[Result]:
    """Judge calls among 200 rules: mixed, all for one tool, and with the worst patterns."""
    mixed = [
        PermissionRule(
            permission=("bash", "read", "edit", "web_fetch", "mcp_*")[n % 5],
            pattern=("*", f"src/part{n}/**", f"git log{n} *", f"*.host{n}.org")[n % 4],
            action=("allow", "ask", "deny")[n % 3],
        )
        for n in range(RULES)
    ]
    one_tool = [_rule("read", f"src/part{n}/**/*.py") for n in range(RULES)]
    worst = [_rule("*", f"**/name{n}/*.p?") for n in range(RULES)]
    parent = Rights(agent=_rules(mixed), session=_rules([_rule("read", "docs/**")]))
    paths = [f"src/part{n % RULES}/some/folder/file{n}.py" for n in range(500)]
    cases: dict[str, tuple[list[PermissionRule], Rights | None]] = {
        "mixed permissions": (mixed, None),
        "mixed, with a parent": (mixed, parent),
        "all for one tool": (one_tool, None),
        "all for all tools, `**/` first": (worst, None),
    }
    return [
        _goal(
            f"decide, {RULES} rules, {name}, us",
            1e6 * _per_call(_decider(rules, above, paths), rounds),
            DECIDE_US,
        )
        for name, (rules, above) in cases.items()
    ]


def _decider(
    rules: list[PermissionRule], parent: Rights | None, paths: list[str]
) -> Callable[[], int]:
    ceiling = _rules(rules)
    agent, session = _rules([_rule("*", "*")]), _rules([_rule("edit", "src/**")])
    requests = [CallRequest(permission="read", targets=(p,), target_kind="path") for p in paths]

    def run() -> int:
        for request in requests:
            decide(request, ceiling, parent, agent, session)
        return len(requests)

    return run


def _per_call(run: Callable[[], int], rounds: int) -> float:
    run()
    taken = []
    for _ in range(rounds):
        begin = time.process_time()
        count = run()
        taken.append((time.process_time() - begin) / count)
    return median(taken)


def _rule(permission: str, pattern: str) -> PermissionRule:
    return PermissionRule(permission=permission, pattern=pattern, action="allow")


def _rules(rules: list[PermissionRule]) -> RuleSet:
    return RuleSet(rules=tuple(rules))


def _goal(metric: str, value: float, most: float, note: str = "") -> Result:
    return Result(metric=metric, value=value, goal=f"<= {most:g}", ok=value <= most, note=note)


if __name__ == "__main__":
    options = arguments(__doc__ or "")
    rounds = 9 if options.quick else 41
    sys.exit(report(measure_decide(rounds), options.json))
