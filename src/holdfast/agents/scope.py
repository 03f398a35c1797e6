"""What one run is limited to, and who started it: kept with the run, whoever resumes it."""

from __future__ import annotations

from typing import cast

import msgspec

from holdfast.canonical import JsonObject
from holdfast.policy.approvals import OnAsk
from holdfast.policy.budgets import NO_BUDGET, Budget


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
    """The limits that came with the request for a run.

    `None` for tools or skills means: all that the agent may use.
    """

    on_ask: OnAsk = "deny"
    budget: Budget = NO_BUDGET
    tool_ids: tuple[str, ...] | None = None
    skill_names: tuple[str, ...] | None = None
    starter: Starter | None = None
    """Who started the run; `None` if a person did."""

    def to_options(self) -> JsonObject:
        """Return it as the options of a queued run; empty if nothing is limited."""
        return cast(JsonObject, msgspec.to_builtins(self))

    @classmethod
    def of(cls, options: JsonObject) -> RunScope:
        """Read it from the options of a queued run."""
        return msgspec.convert(options, cls) if options else EVERYTHING


EVERYTHING = RunScope()
"""No limits but those of agent, session and operator."""
