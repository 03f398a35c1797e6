"""Workflows: check, run, resume, list."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from holdfast.agents import Agent
from holdfast.canonical import JsonObject, digest
from holdfast.errors import AlreadyExists, UsageError, WorkflowInvalid
from holdfast.ids import check_id, make_id
from holdfast.journal import Payload
from holdfast.orchestration import AGENT_PREFIX
from holdfast.orchestration.workflows import (
    FOLDER,
    SUFFIXES,
    Definition,
    Workflow,
    WorkflowCode,
    WorkflowFiles,
    WorkflowInfo,
    WorkflowRequest,
    WorkflowResult,
    WorkflowRunner,
    fit_inputs,
    hear_nothing,
    read_definition,
    read_workflow,
    resolve,
)
from holdfast.policy import NO_BUDGET, Budget, OnAsk
from holdfast.redaction import Redactor
from holdfast.runs import list_below, list_runs_below
from holdfast.runtime.mcp import McpService
from holdfast.runtime.runs import RunService
from holdfast.runtime.toolbox import ToolService
from holdfast.sessions import Run, Session, SessionManager
from holdfast.settings import Settings
from holdfast.tools import Tool, read_kept_labels
from holdfast.turns import TurnQueue

WorkflowLike: TypeAlias = str | Path | JsonObject | Workflow | Definition
"""A name or path, a file, data as YAML would say it, or the workflow itself."""

OnWait: TypeAlias = Callable[[WorkflowResult], Awaitable[None]]
"""Is told how a workflow stands each time before it waits for an answer."""

_LOOK_FOR_ANSWERS_S = 5.0


class WorkflowService:
    """Knows workflows by name, runs them, and goes on with what waits."""

    def __init__(
        self,
        settings: Settings,
        sessions: SessionManager,
        turns: TurnQueue,
        *,
        runs: RunService,
        toolbox: ToolService,
        mcp: McpService,
        redactor: Redactor,
    ) -> None:
        """Run workflows in the workspace of these settings."""
        self._settings = settings
        self._sessions = sessions
        self._journal = sessions.journal
        self._turns = turns
        self._runs = runs
        self._toolbox = toolbox
        self._mcp = mcp
        self._redactor = redactor
        self._known: dict[str, Workflow] = {}

    def register(self, workflow: Workflow) -> None:
        """Make a workflow known by its name, for as long as this client lives.

        What it promises and raises stands at the operation `workflows.register`.
        """
        self._known[workflow.definition.name] = workflow

    async def validate(self, workflow: WorkflowLike) -> WorkflowInfo:
        """Return a workflow as checked data, with everything it starts looked up.

        What it promises and raises stands at the operation `workflows.validate`.
        """
        definition, _, _ = await self._resolve(workflow)
        return WorkflowInfo.of(definition)

    async def run(
        self,
        workflow: WorkflowLike,
        inputs: JsonObject | None = None,
        *,
        run_id: str = "",
        parent_id: str = "",
        on_ask: OnAsk = "deny",
        budget: Budget | None = None,
        listener: Callable[[Payload], None] = hear_nothing,
        stay: bool | OnWait = False,
    ) -> WorkflowResult:
        """Run a workflow in a session of its own and return how it went, failures included.

        What it promises and raises stands at the operation `workflows.run`.
        """
        definition, called, code = await self._resolve(workflow)
        order = WorkflowRequest(
            definition=definition,
            inputs=fit_inputs(definition, inputs or {}),
            called=called,
            on_ask=on_ask,
            budget=budget or NO_BUDGET,
        )
        order.check()
        known = await self._turns.find(run_id) if run_id else None
        if known is not None:
            if known.agent != f"{AGENT_PREFIX}{definition.name}":
                raise UsageError(detail=f"{run_id} is no run of the workflow {definition.name!r}.")
            session = await self._sessions.get_session(known.session_id)
        else:
            order.check_kept(self._redactor)
            await self._check_names(order, code)
            run_id = check_id(run_id, "run") if run_id else make_id("run")
            # From the run's id, so that a crash in between leaves no session behind.
            session_id = f"ses_{digest(['workflow', run_id])[:26]}"
            metadata: JsonObject = {}
            if parent_id:
                # What holds in the session above holds for all that is started from it.
                parent = await self._sessions.get_session(parent_id)
                labels = await read_kept_labels(self._sessions.journal, parent.id)
                metadata = list_below(None, parent, labels=labels).to_metadata()
            with contextlib.suppress(AlreadyExists):
                await self._sessions.create_session(
                    f"Workflow {definition.name}",
                    directory=self._settings.workspace,
                    parent_id=parent_id,
                    metadata=metadata,
                    session_id=session_id,
                )
            session = await self._sessions.get_session(session_id)
        runner = await self._make_runner(code, listener)
        return await self._see_through(runner, order, session, run_id, stay=stay)

    async def resume(
        self,
        run_id: str,
        *,
        listener: Callable[[Payload], None] = hear_nothing,
        stay: bool | OnWait = False,
    ) -> WorkflowResult:
        """Go on with a workflow that was interrupted, or that waited for an answer.

        What it promises and raises stands at the operation `workflows.resume`.
        """
        run = await self._turns.get(run_id)
        if not run.agent.startswith(AGENT_PREFIX):
            raise UsageError(detail=f"{run_id} is no run of a workflow.")
        known = self._known.get(run.agent.removeprefix(AGENT_PREFIX))
        runner = await self._make_runner(dict(known.code) if known is not None else {}, listener)
        if run.has_ended:
            return await runner.result(run_id)
        [queued] = await self._journal.store.read(run.session_id, seqs=[run.queued_at])
        order = WorkflowRequest.of(getattr(queued.decode(), "options", {}))
        session = await self._sessions.get_session(run.session_id)
        return await self._see_through(runner, order, session, run_id, stay=stay)

    async def get(self, run_id: str) -> WorkflowResult:
        """Return how a run of a workflow stands, step by step.

        What it promises and raises stands at the operation `workflows.get`.
        """
        return await (await self._make_runner({}, hear_nothing)).result(run_id)

    async def find_all(self) -> list[WorkflowInfo]:
        """Return the workflows that are known by name, from files and registered ones."""
        found = {one.name: one for one in self._open_workflow_files().all()}
        for name, flow in self._known.items():
            found[name] = WorkflowInfo.of(flow.definition)
        return [found[name] for name in sorted(found)]

    # --- waiting ----------------------------------------------------------------------

    async def await_answer(self, run_id: str) -> Run:
        """Return a run as soon as it waits for no answer: an approver has answered, or it has
        ended.

        Answers in other processes count too. The caller that began the run goes on with it then, by
        the same call; nothing is executed here.

        Raises:
            NotFound: there is no such run.
        """
        while True:
            seq = await self._journal.read_last_seq()
            if await self._is_answered(run_id):
                return await self._turns.get(run_id)
            await self._journal.store.changed(seq, _LOOK_FOR_ANSWERS_S)

    async def _is_answered(self, run_id: str) -> bool:
        """Say whether a run, or one below it for which it waits, can go on."""
        if (await self._turns.get(run_id)).status != "parked":
            return True
        below = [
            await self._turns.find(row.id) for row in await list_runs_below(self._journal, run_id)
        ]
        return any(run is not None and run.status == "queued" for run in below)

    # --- inside -----------------------------------------------------------------------

    async def _see_through(
        self,
        runner: WorkflowRunner,
        order: WorkflowRequest,
        session: Session,
        run_id: str,
        *,
        stay: bool | OnWait,
    ) -> WorkflowResult:
        """Run a workflow until it ends or waits; what was answered meanwhile it need not wait for.

        With `stay`, until it ends.
        """
        while True:
            result = await runner.run(order, session, run_id)
            if result.status != "parked":
                return result
            if await self._is_answered(run_id):
                continue
            if not stay:
                return result
            if callable(stay):
                await stay(result)
            await self.await_answer(run_id)

    def _open_workflow_files(self) -> WorkflowFiles:
        places = (self._settings.workspace / FOLDER, self._settings.user_dir / "workflows")
        return WorkflowFiles(places)

    async def _resolve(
        self, workflow: WorkflowLike
    ) -> tuple[Definition, dict[str, Definition], dict[str, Tool | Agent | Workflow]]:
        """Return a workflow, those that it starts, and the code that belongs to them."""
        files = self._open_workflow_files()
        known = self._known
        code: dict[str, Tool | Agent | Workflow] = {}
        if isinstance(workflow, str) and workflow in known:
            workflow = known[workflow]
        if isinstance(workflow, Workflow):
            definition = workflow.definition
            code |= workflow.code
        elif isinstance(workflow, Definition):
            definition = workflow
        elif isinstance(workflow, Mapping):
            definition = read_definition(dict(workflow))
        elif isinstance(workflow, Path) or workflow.endswith(SUFFIXES):
            definition = read_workflow(workflow)
            files = files.open_beside(Path(workflow).parent)
        else:
            definition = files.find(workflow)
        flows = {**known}
        waiting = [code]
        while waiting:
            for one in list(waiting.pop().values()):
                if isinstance(one, Workflow) and flows.get(one.name) is not one:
                    flows[one.name] = one
                    code |= one.code
                    waiting.append(dict(one.code))
        called = resolve(definition, {name: one.definition for name, one in flows.items()}, files)
        for name in called:
            code |= flows[name].code if name in flows else {}
        return definition, called, code

    async def _check_names(
        self, order: WorkflowRequest, code: dict[str, Tool | Agent | Workflow]
    ) -> None:
        """Refuse what no caller could call, before anything is done."""
        registry = self._toolbox.registry
        definitions = (order.definition, *order.called.values())
        await self._mcp.prepare(has_network="network" in [one.sandbox for one in definitions])
        wrong = []
        for definition in definitions:
            for step in definition.iterate_steps():
                tool, agent = step.tool, step.agent
                if tool and f"tool:{tool}" not in code and registry.find(tool) is None:
                    wrong.append(f"step {step.id!r} of {definition.name!r}: no tool {tool!r}")
                if (
                    agent
                    and f"agent:{agent}" not in code
                    and await self._runs.get_agent(agent) is None
                ):
                    wrong.append(f"step {step.id!r} of {definition.name!r}: no agent {agent!r}")
        if wrong:
            raise WorkflowInvalid(detail="\n".join(f"  - {one}" for one in wrong), mistakes=wrong)

    async def _make_runner(
        self, code: dict[str, Tool | Agent | Workflow], listener: Callable[[Payload], None]
    ) -> WorkflowRunner:
        await self._runs.check_policies()
        registry = self._toolbox.registry
        # Which sandbox its steps have is known when they are executed, and judged then.
        await self._mcp.prepare(has_network=True)
        tools = [
            one
            for one in code.values()
            if isinstance(one, Tool) and registry.find(one.name) is not one
        ]
        brought = WorkflowCode(
            tools=registry.child(tools, scope="workflow"),
            agents={one.name: one for one in code.values() if isinstance(one, Agent)},
        )
        return WorkflowRunner(self._runs.services, brought, listener=listener)
