"""What the gate costs: a decision among 200 rules, a text searched for secrets, a spawn."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median

import msgspec
from _report import Result, arguments, report
from _spawn import measure_parse, measure_spawns

from holdfast.policy import CallRequest, Rights, RuleSet, decide
from holdfast.redaction import Redactor
from holdfast.sessions import PermissionRule

DECIDE_US = 20.0
REDACT_MS_PER_KB = 0.3
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


def measure_redaction(rounds: int) -> list[Result]:
    """Search texts for secrets: ordinary ones, ones full of clues, and what a journal keeps."""
    secrets = {f"KEY_{n}": f"s3cr3t-value-{n:04d}-{n * 7919:x}" for n in range(20)}
    redactor, personal = Redactor(secrets), Redactor(secrets, has_personal=True)
    page = "The quick brown fox jumps over 13 lazy dogs; see src/part/file.py, line 12.\n" * 140
    clues = "https://a.example/x?y=%20 task-force Bearer of secret keys, AKIA, eyJ and +1 555.\n"
    cases: dict[str, Callable[[], object]] = {
        "plain text": lambda: redactor.text(page),
        "text full of clues": lambda: redactor.text(clues * 130),
        "personal data too": lambda: personal.text(clues * 130),
        "JSON of an event": lambda: redactor.json(msgspec.json.encode({"text": page})),
        "JSON with clues": lambda: redactor.json(msgspec.json.encode({"text": clues * 130})),
        "JSON with a secret": lambda: redactor.json(
            msgspec.json.encode({"text": page + secrets["KEY_7"]})
        ),
    }
    size_kb = len(page) / 1024
    return [
        _goal(
            f"redact, {name}, ms per KB",
            1e3 * _per_call(_repeated(run), rounds) / size_kb,
            REDACT_MS_PER_KB,
            note="20 known secrets",
        )
        for name, run in cases.items()
    ]


def _repeated(run: Callable[[], object]) -> Callable[[], int]:
    def many() -> int:
        for _ in range(20):
            run()
        return 20

    return many


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
    spawns = 30 if options.quick else 200
    results = [*measure_decide(rounds), *measure_redaction(rounds)]
    results += [*measure_spawns(spawns), *measure_parse(min(spawns, 30))]
    sys.exit(report(results, options.json))
