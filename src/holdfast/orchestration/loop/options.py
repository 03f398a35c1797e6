"""How far a loop may go, and who works in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

from holdfast.agents import Agent
from holdfast.errors import UsageError
from holdfast.orchestration.loop.plan import MOST_STEPS
from holdfast.policy import NO_BUDGET, Budget, OnAsk
from holdfast.providers import Model


class LoopLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a loop ends by itself; kept with the run, so that they hold after a resume.

    `budget` covers all three agents together; each has a budget of its own besides, as any
    agent. `wall_s` counts the time in which the loop works, not that in which it waits for a
    person or is not running.
    """

    max_steps: int = MOST_STEPS
    max_attempts: int = 3
    """Per step: the first try, and the retries."""
    max_replans: int = 2
    max_plan_asks: int = 3
    """How often a plan that is not sound may be handed in."""
    parallel: int = 1
    """How many steps may be worked on at the same time."""
    wall_s: float = 3_600.0
    agent_wall_s: float = 900.0
    """For one run of one of the agents: a child that never ends is ended."""
    budget: Budget = NO_BUDGET
    model_wait_s: float = 600.0
    """For how long a model that cannot be reached is asked again and again; then the loop parks,
    and goes on when it is resumed."""

    def __post_init__(self) -> None:
        """Refuse limits that cannot be meant."""
        least = {"max_steps": 1, "max_attempts": 1, "max_replans": 0, "max_plan_asks": 1}
        for name, low in {**least, "parallel": 1}.items():
            if getattr(self, name) < low:
                raise UsageError(detail=f"A loop's {name} cannot be {getattr(self, name)}.")
        if self.max_steps > MOST_STEPS or self.parallel > 64:
            detail = f"A loop has at most {MOST_STEPS} steps, and works on at most 64 at once."
            raise UsageError(detail=detail)
        if not (self.wall_s > 0 and self.agent_wall_s > 0 and self.model_wait_s >= 0):
            raise UsageError(detail="A loop needs some time.")


class StepEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a check function of the application is given."""

    goal: str
    step_id: str
    attempt: int
    answer: str
    workspace: str


CheckFunction: TypeAlias = Callable[
    [StepEvidence], bool | str | None | Awaitable[bool | str | None]
]
"""Passes with `True` or `None`; fails with `False`, with a text that says why, or by raising."""


@dataclass(frozen=True, kw_only=True)
class LoopAgents:
    """Who plans, works and reviews; what is left out is built in.

    Planner and reviewer answer in a form that the loop sets, whatever `output` they have.
    """

    planner: Agent | None = None
    executor: Agent | None = None
    reviewer: Agent | None = None


class LoopOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that may be said about a loop besides its goal, as data.

    `planner`, `executor` and `reviewer` are names of registered agents; those that are left
    out are built in.
    """

    limits: LoopLimits = msgspec.field(default_factory=LoopLimits)
    planner: str = ""
    executor: str = ""
    reviewer: str = ""
    model: str = ""
    """The model of agents that name none."""
    on_ask: OnAsk = "deny"
    continues: str = ""
    """A run that ended before its goal: what it has done is taken over, its limits are not."""


@dataclass(frozen=True, kw_only=True)
class LoopSetup:
    """The same with Python objects: agents and models that are not registered, and checks.

    Only a runtime in this process can take it.
    """

    limits: LoopLimits = field(default_factory=LoopLimits)
    agents: LoopAgents = field(default_factory=LoopAgents)
    model: str | Model = ""
    """The model of agents that name none."""
    on_ask: OnAsk = "deny"
    functions: Mapping[str, CheckFunction] = field(default_factory=dict)
    continues: str = ""
    """A run that ended before its goal: what it has done is taken over, its limits are not."""
