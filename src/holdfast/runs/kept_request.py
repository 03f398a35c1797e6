"""What came with the request for a run: kept with the run, whoever resumes it."""

from __future__ import annotations

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Journal
from holdfast.policy.approvals import OnAsk
from holdfast.policy.budgets import NO_BUDGET, Budget
from holdfast.sessions import Run, request_of


class Starter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The run, and if it was one the call, that started a run.

    `root` is the run at the top of the whole tree; `path` names the agents down to the
    starter.
    """

    session_id: str
    run_id: str = ""
    call_id: str = ""
    root: str = ""
    path: tuple[str, ...] = ()


class RunScope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came with the request for a run, its limits above all.

    `None` for tools or skills means: all that the agent may use. An empty `model` is the
    agent's, or else the one of the settings; `options` are sent to the provider as they are.
    """

    on_ask: OnAsk = "deny"
    budget: Budget = NO_BUDGET
    tool_ids: tuple[str, ...] | None = None
    skill_names: tuple[str, ...] | None = None
    starter: Starter | None = None
    """Who started the run; `None` if a person did."""
    model: str = ""
    options: JsonObject = msgspec.field(default_factory=dict)

    def to_options(self) -> JsonObject:
        """Return it as the options of a queued run; empty if nothing is limited."""
        options: JsonObject = msgspec.to_builtins(self)
        return options

    @classmethod
    def of(cls, options: JsonObject) -> RunScope:
        """Read it from the options of a queued run."""
        return msgspec.convert(options, cls) if options else EVERYTHING


async def scope_of(journal: Journal, run: Run) -> RunScope:
    """Return what came with the request for a run that is known."""
    return RunScope.of((await request_of(journal, run)).options)


EVERYTHING = RunScope()
"""No limits but those of agent, session and operator."""
