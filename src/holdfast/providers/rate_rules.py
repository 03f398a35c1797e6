"""Rate rules: how many calls and tokens a model, an agent, a tenant or all may use.

A server counts requests by the same rules, also per key, user and address.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias
from urllib.parse import quote

import msgspec

from holdfast.errors import ConfigError

RateScope: TypeAlias = Literal["model", "agent", "tenant", "key", "user", "address", "global"]
RateUnit: TypeAlias = Literal["calls", "tokens"]
_SCOPES = ("model", "agent", "tenant", "key", "user", "address", "global")


class RateLimitRule(msgspec.Struct, frozen=True, kw_only=True):
    """At most so many calls, or tokens, or both, in any window of that length.

    `scope` says who shares the window: each model, each agent, each tenant has one of
    its own; `global` is one for all. Two rules never share a window, however alike
    they are, because each has its name.
    """

    name: str
    max_calls: int | None = None
    max_tokens: int | None = None
    window_seconds: int = 60
    scope: RateScope = "global"

    def __post_init__(self) -> None:
        """Refuse a rule that limits nothing or cannot be meant."""
        wrong: list[str] = []
        if not self.name:
            wrong.append("it needs a name")
        if self.max_calls is None and self.max_tokens is None:
            wrong.append("it needs max_calls or max_tokens")
        for field in ("max_calls", "max_tokens", "window_seconds"):
            value = getattr(self, field)
            if value is not None and not _is_count(value):
                wrong.append(f"{field} must be a whole number of at least 1")
        if self.scope not in _SCOPES:
            wrong.append(f"scope must be one of {', '.join(_SCOPES)}")
        if wrong:
            raise ConfigError(detail=f"rate rule {self.name!r}: {'; '.join(wrong)}")


class RateSubject(msgspec.Struct, frozen=True, kw_only=True):
    """Who makes a call, as far as rate rules care."""

    model: str = ""
    agent: str = ""
    tenant: str = ""
    key: str = ""
    user: str = ""
    address: str = ""


class RateCharge(msgspec.Struct, frozen=True, kw_only=True):
    """So much of one window: what a call costs under one rule."""

    rule: RateLimitRule
    unit: RateUnit
    key: str
    limit: int
    amount: int


def check_rules(rules: Iterable[RateLimitRule]) -> tuple[RateLimitRule, ...]:
    """Return the rules if their names tell them apart.

    Raises:
        ConfigError: two rules have one name.
    """
    found = tuple(rules)
    names = [rule.name for rule in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(detail=f"more than one rate rule is named {', '.join(map(repr, twice))}")
    return found


def list_charges(
    rules: Iterable[RateLimitRule], subject: RateSubject, tokens: int
) -> tuple[RateCharge, ...]:
    """Return what one call costs under each rule; an estimate is capped at the whole window."""
    found: list[RateCharge] = []
    for rule in rules:
        who = "" if rule.scope == "global" else getattr(subject, rule.scope)
        # Quoted, so that no name or subject can pass for another one's key.
        place = f"{quote(rule.name, safe='')}/{rule.scope}/{quote(who, safe='')}"
        if rule.max_calls is not None:
            found.append(
                RateCharge(
                    rule=rule, unit="calls", key=f"{place}/calls", limit=rule.max_calls, amount=1
                )
            )
        if rule.max_tokens is not None and tokens > 0:
            amount = min(tokens, rule.max_tokens)
            found.append(
                RateCharge(
                    rule=rule,
                    unit="tokens",
                    key=f"{place}/tokens",
                    limit=rule.max_tokens,
                    amount=amount,
                )
            )
    return tuple(found)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
