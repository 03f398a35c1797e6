"""Of which kind a run is: an agent's, a loop's, a workflow's, or the call of a tool by hand."""

from __future__ import annotations

from typing import Final

from holdfast.canonical import digest
from holdfast.errors import UsageError
from holdfast.ids import make_id
from holdfast.journal import Journal
from holdfast.orchestration import AGENT_PREFIX, LOOP_AGENT
from holdfast.sessions import Run, request_of
from holdfast.turns import TurnQueue

_MADE_HERE: Final = len("run_") + 26


def name_begun_session(run_id: str) -> str:
    """Return the id of the session that a run begins; without a run, that of any new one.

    It follows from the run's id: all who begin the run at the same time begin one session.
    """
    if not run_id:
        return make_id("ses")
    if run_id.startswith("run_") and len(run_id) == _MADE_HERE:
        # Its time stays in it, so that sessions sort as they began.
        return f"ses_{run_id.removeprefix('run_')}"
    return f"ses_{digest(['run', run_id])[:26]}"


async def check_is_agents(turns: TurnQueue, journal: Journal, run_id: str) -> None:
    """Return if a run is one of an agent, or not there yet.

    Raises:
        UsageError: it is one of a loop or a workflow, or a call by hand.
    """
    known = await turns.find(run_id)
    if known is None:
        return
    if known.agent == LOOP_AGENT or known.agent.startswith(AGENT_PREFIX):
        raise UsageError(detail=f"The run {run_id} is one of {known.agent!r}, not of an agent.")
    if await find_called_tool(journal, known):
        # The approver who consented to this call did not consent to what an agent would do next.
        detail = f"The run {run_id} is a call by hand: only `tools.call` goes on with it."
        raise UsageError(detail=detail)


async def find_called_tool(journal: Journal, run: Run) -> str:
    """Return the name of the tool that a run calls by hand, nothing for all other runs."""
    if run.agent:
        return ""
    wanted = (await request_of(journal, run)).options.get("call")
    return str(wanted["tool"]) if isinstance(wanted, dict) else ""
