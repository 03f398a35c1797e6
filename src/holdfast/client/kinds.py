"""Of which kind a run is: an agent's, a loop's, a workflow's, or the call of a tool by hand."""

from __future__ import annotations

from holdfast.errors import UsageError
from holdfast.journal import Journal
from holdfast.orchestration.loop import LOOP_AGENT
from holdfast.orchestration.workflows import AGENT_PREFIX
from holdfast.sessions import Run, TurnQueue
from holdfast.sessions.events import RunQueued


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
    if await called_tool(journal, known):
        # Whoever consented to this call did not consent to what an agent would do next.
        raise UsageError(detail=f"The run {run_id} is a call by hand: only call_tool has it.")


async def called_tool(journal: Journal, run: Run) -> str:
    """Return the name of the tool that a run calls by hand, nothing for all other runs."""
    if run.agent:
        return ""
    found = await journal.store.read(run.session_id, seqs=[run.queued_at])
    wanted = found[0].expect(RunQueued).options.get("call") if found else None
    return str(wanted["tool"]) if isinstance(wanted, dict) else ""
