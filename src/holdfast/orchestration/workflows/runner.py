"""WorkflowRunner: runs workflows in sessions of their own, durably."""

from __future__ import annotations

from holdfast.errors import UsageError
from holdfast.journal import Payload
from holdfast.orchestration.kinds import AGENT_PREFIX
from holdfast.orchestration.workflows.engine import Listener, WorkflowTurn
from holdfast.orchestration.workflows.record import read_record
from holdfast.orchestration.workflows.request import WorkflowRequest
from holdfast.orchestration.workflows.result import WorkflowResult, make_result
from holdfast.orchestration.workflows.step_executor import WorkflowCode
from holdfast.runs import RunServices, make_starter_options, refresh_ancestor_rules
from holdfast.sessions import Session, compose
from holdfast.turns import Outcome, Turn


def hear_nothing(_: Payload) -> None:
    """There is no subscriber."""


class WorkflowRunner:
    """Runs workflows; every step that ended is a fact before the next one begins.

    A run that was killed goes on at what has not ended when it is run again with the same
    `run_id`, in this process or another.
    """

    def __init__(
        self, services: RunServices, code: WorkflowCode, *, listener: Listener = hear_nothing
    ) -> None:
        """Work with these services and this code; the listener hears the facts of all runs."""
        self._services = services
        self._code = code
        self._listener = listener

    async def run(
        self, order: WorkflowRequest, session: Session, run_id: str = ""
    ) -> WorkflowResult:
        """Run a workflow, or resume it, and return how it went.

        A run that waits is looked at again: where no caller has answered yet, it goes on waiting.
        """
        services = self._services
        name = order.definition.name
        began = services.clock.monotonic()
        asked = compose(session.id, "user", f"Run the workflow {name}.", services.clock.now())
        run = await services.turns.submit(
            session.id,
            asked,
            agent=f"{AGENT_PREFIX}{name}",
            run_id=run_id,
            options={**order.to_options(), **make_starter_options(session)},
        )
        if run.status == "parked":
            # A child may have been answered, of which this run knows nothing.
            await services.turns.wake(run.id, cause="resumed")
        run = await services.turns.run(run.id, self._handle)
        return await self.result(run.id, services.clock.monotonic() - began)

    async def result(self, run_id: str, duration: float = 0.0) -> WorkflowResult:
        """Return how a run stands.

        Raises:
            NotFound: there is no such run.
            UsageError: it is none of a workflow.
        """
        run = await self._services.turns.get(run_id)
        if not run.agent.startswith(AGENT_PREFIX):
            raise UsageError(detail=f"{run_id} is no run of a workflow.")
        journal = self._services.sessions.journal
        record = await read_record(journal, run.session_id, run.id, run.queued_at)
        if not duration and run.time_ended:
            duration = run.time_ended - run.time_started
        return make_result(run.agent.removeprefix(AGENT_PREFIX), run, record, duration)

    async def _handle(self, turn: Turn) -> Outcome:
        """Execute a turn; what its run was told when it was queued is what counts."""
        if not turn.request.agent.startswith(AGENT_PREFIX):
            raise turn.make_in_the_way()
        services = self._services
        order = WorkflowRequest.of(turn.request.options)
        session = await services.sessions.get_session(turn.session_id)
        session = await refresh_ancestor_rules(services.sessions, session)
        record = await read_record(
            services.sessions.journal, session.id, turn.run.id, turn.run.queued_at
        )
        work = WorkflowTurn(
            services,
            turn,
            session,
            order,
            code=self._code,
            record=record,
            nested=self.run,
            listener=self._listener,
        )
        return await work.execute()


__all__ = ["WorkflowRunner", "hear_nothing"]
