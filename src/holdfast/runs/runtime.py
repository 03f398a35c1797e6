"""AgentRuntime: executes agents in real sessions, durably."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeAlias, cast

import msgspec

from holdfast.agents import (
    UNLIMITED,
    Agent,
    AgentResult,
    KeptRequest,
    Listener,
    OutputType,
    RunOutcome,
    hear_nothing,
)
from holdfast.canonical import JsonObject
from holdfast.errors import (
    BudgetExceeded,
    HoldfastError,
    NotFound,
    RunInterrupted,
    RunInTheWay,
    UsageError,
)
from holdfast.ids import make_id
from holdfast.messages import (
    FilePart,
    Message,
    Part,
    TextPart,
    TokenUsage,
    ToolPart,
    sum_usage,
)
from holdfast.providers import Model
from holdfast.runs.instrumentation import HookedModel
from holdfast.runs.lineage import LINEAGE_KEY, read_lineage
from holdfast.runs.services import RunServices
from holdfast.runs.skill_models import SiblingLookup
from holdfast.runs.spending import Charge, drop_cost
from holdfast.runs.streaming import StreamItem, stream_model
from holdfast.runs.turn import AgentTurn
from holdfast.sessions import NewSession, OnBusy, Run, Session, SessionManager, compose
from holdfast.skills import Skill, make_skill_tool
from holdfast.tools import ToolRegistry
from holdfast.turns import Outcome, Turn, finish, is_machine_fault

AgentLookup: TypeAlias = Callable[[str], Awaitable[Agent | None]]
ModelLookup: TypeAlias = Callable[[str | Model], Awaitable[tuple[Model, Charge]]]
ToolLookup: TypeAlias = Callable[[Agent, Session], Awaitable[ToolRegistry]]
TakeOver: TypeAlias = Callable[[Turn], Awaitable[Outcome | None]]


async def _find_no_agent(_name: str) -> Agent | None:
    return None


async def _take_nothing(_turn: Turn) -> Outcome | None:
    return None


class AgentRuntime:
    """Executes agents in real sessions, durably.

    Every step is a fact in the journal before the next one begins. A run that was killed
    goes on where it stopped when `execute_agent` is called with the same `run_id`.
    """

    def __init__(self, services: RunServices, *, model: Model, charge: Charge = drop_cost) -> None:
        """Run agents with these services and this model; `charge` writes what an answer cost."""
        self._services = services
        self._model = model
        self._charge = charge
        self.on_busy: OnBusy = "queue"
        """What a turn does while another one is under way in its session."""
        self.opening: NewSession | None = None
        """The session of the next run, if it is to begin together with it."""
        self.find_agent: AgentLookup = _find_no_agent
        """Finds the agents of runs that other processes left behind."""
        self.find_model: ModelLookup | None = None
        """Opens the models of those runs; without it they use the one that is here."""
        self.find_sibling: SiblingLookup | None = None
        """Opens the model that a skill names; without it skills change no model."""
        self.find_tools: ToolLookup | None = None
        """Finds the tools of those agents; without it they have those that are here."""
        self.take_over: TakeOver = _take_nothing
        """Executes what they left behind that is no agent's run; `None` for all else."""

    async def _strip_left_behind(self, turn: Turn, agent: Agent) -> Agent:
        """Return the agent that a run was meant for; no other one has its rights.

        Raises:
            RunInTheWay: no caller here knows it; the run is left to the caller that does.
            NotFound: no caller here knows it, and it was this process that gave it up, whose
                caller knows. No other process would go on with it: it fails.
        """
        wanted = turn.request.agent
        if wanted in ("", agent.name):
            return agent
        found = await self.find_agent(wanted)
        if found is not None:
            return found
        if turn.run.owner == self._services.turns.owner:
            raise NotFound(kind="agent", value=wanted)
        raise turn.make_in_the_way()

    async def execute_agent(  # noqa: PLR0913 - one argument per thing a run needs
        self,
        agent: Agent,
        session: Session,
        user_message: str,
        tools: ToolRegistry,
        skills: Sequence[Skill] = (),
        *,
        options: JsonObject | None = None,
        run_id: str = "",
        scope: KeptRequest = UNLIMITED,
        listener: Listener = hear_nothing,
        content: tuple[TextPart | FilePart, ...] = (),
        deps: object = None,
    ) -> AgentResult:
        """Run an agent on a message and return its result.

        `skills` are offered by name and loaded by the `skill` tool, unless `tools` has one
        of its own. `scope` limits this run further; it is kept with the run.

        The same `run_id` again returns the finished result, or resumes what was interrupted.
        `content` is the message as parts, where it has more than a text; `deps` is what tools and
        instructions ask for by type.

        Raises:
            UsageError: `session` is no real session.
            InvalidTransition: the session is not active.
            RunInterrupted: the machine failed; the same `run_id` goes on with the run.
            RunInTheWay: a run that a dead process left behind stands first in the session, and
                this process cannot execute it; it stays as it is, and this one is cancelled.
        """
        if not isinstance(session, Session):
            raise UsageError(detail="execute_agent needs a Session, as create_session returns it.")
        services = self._services
        if skills and "skill" not in tools:
            tools = tools.child([make_skill_tool(tuple(skills))], scope="skills")
        if services.terms.on_ask == "park":
            scope = msgspec.structs.replace(scope, on_ask="park")
        began = services.clock.monotonic()
        # Most agents have no wrappers, and their runs nothing to wait for.
        text = await agent.prepare(user_message) if agent.is_wrapped else user_message
        said: str | Sequence[Part] = text
        if content:
            self._model.info.check_inputs(content)
            said = content if text == user_message else _replace_text(content, text)
            said = await services.files.keep(session, said)
        message = compose(session.id, "user", said, services.clock.now())
        own_id = run_id or make_id("run")
        own: list[AgentTurn] = []

        def handler(turn: Turn) -> Awaitable[Outcome]:
            if turn.run.id != own_id:
                return self._finish_left_behind(turn, agent, session, tools, skills)
            doing = self._turn(
                turn,
                agent,
                session,
                tools,
                skills=skills,
                listener=listener,
                options=options or {},
                deps=deps,
            )
            own.append(doing)
            return doing.execute()

        try:
            run = await services.turns.execute(
                session.id,
                message,
                handler,
                run_id=own_id,
                is_new=not run_id,
                on_busy=self.on_busy,
                agent=agent.name,
                # Kept with the run, so that it holds for the process that resumes it.
                options=scope.to_options() if scope != UNLIMITED else {},
                opening=self.opening,
                correlation_id=scope.starter.root if scope.starter is not None else "",
            )
        except RunInTheWay as first:
            # Its caller is told that it did not run; then it must not do so later.
            await finish(services.turns.cancel(own_id, reason=str(first)))
            raise
        except Exception as error:
            is_told = isinstance(error, RunInterrupted) and error.context["run_id"] == own_id
            if not own or is_told or not is_machine_fault(error):
                raise
            # What interrupted a run below it interrupts it as well: it is this one that goes on.
            below = error.error if isinstance(error, RunInterrupted) else None
            raise _make_interruption(agent, own_id, below or error) from error
        # Those at hand if it was executed here, else as they are stored.
        messages: Sequence[Message] | None = own[-1].read_stored_messages() if own else None
        if messages is None:
            messages = await run_messages(services.sessions, run)
        took = services.clock.monotonic() - began
        result = summarize(agent, run, messages, took)
        return await agent.finish(result) if agent.is_wrapped else result

    async def _finish_left_behind(
        self,
        turn: Turn,
        agent: Agent,
        session: Session,
        tools: ToolRegistry,
        skills: Sequence[Skill],
    ) -> Outcome:
        """Execute a run that a dead process left behind: it stands first in the session.

        No caller listens to it here. Its model and options are those that it began with, not those
        of the call that comes after.
        """
        taken = await self.take_over(turn)
        if taken is not None:
            return taken
        who = await self._strip_left_behind(turn, agent)
        model, charge = self._model, self._charge
        wanted = KeptRequest.of(turn.request.options).model or who.model
        if wanted and self.find_model is not None:
            model, charge = await self.find_model(wanted)
        if who is not agent and self.find_tools is not None:
            # What one agent was given, no other was.
            tools = await self.find_tools(who, session)
        try:
            # What this call was handed is not for a run that another one started.
            who.check_deps(None, tools.needs, self._services.instrumentation.execution)
        except UsageError:
            raise turn.make_in_the_way() from None
        doing = self._turn(
            turn, who, session, tools, skills=skills, options={}, model=model, charge=charge
        )
        return await doing.execute()

    def stream_agent(  # noqa: PLR0913 - as `execute_agent`
        self,
        agent: Agent,
        session: Session,
        user_message: str,
        tools: ToolRegistry,
        skills: Sequence[Skill] = (),
        *,
        options: JsonObject | None = None,
        run_id: str = "",
        scope: KeptRequest = UNLIMITED,
        deps: object = None,
    ) -> AsyncGenerator[StreamItem, None]:
        """Run an agent as `execute_agent` does, and yield what happens; the result is last.

        Leaving the loop early cancels the run.
        """

        async def start(listener: Listener) -> AgentResult:
            return await self.execute_agent(
                agent,
                session,
                user_message,
                tools,
                skills,
                options=options,
                run_id=run_id,
                scope=scope,
                listener=listener,
                deps=deps,
            )

        return stream_model(start)

    def _turn(  # noqa: PLR0913 - what one turn works with
        self,
        turn: Turn,
        agent: Agent,
        session: Session,
        tools: ToolRegistry,
        *,
        skills: Sequence[Skill],
        options: JsonObject,
        listener: Listener = hear_nothing,
        model: Model | None = None,
        charge: Charge | None = None,
        deps: object = None,
    ) -> AgentTurn:
        """Return a turn whose model and contexts ask the hooks."""
        above = read_lineage(session) if LINEAGE_KEY in session.metadata else None
        path = (*above.path, agent.name) if above is not None else (agent.name,)
        around = self._services.instrumentation.make_for_run(
            turn.session_id, turn.run.id, "/".join(path), correlation_id=turn.correlation_id
        )
        return AgentTurn(
            msgspec.structs.replace(self._services, instrumentation=around),
            agent,
            turn,
            tools,
            model=HookedModel(model or self._model, around.hooks, around.bus, around.where),
            charge=charge or self._charge,
            skills=skills,
            listener=listener,
            options=options,
            deps=deps,
            find_sibling=self.find_sibling,
        )


def _replace_text(content: Sequence[Part], text: str) -> Sequence[Part]:
    """Return parts with another text: wrappers and hooks change what is said, not the files."""
    files = [part for part in content if isinstance(part, FilePart)]
    return (TextPart(text=text), *files) if text else files


def _make_interruption(agent: Agent, run_id: str, error: BaseException) -> RunInterrupted:
    advice = error.hint if isinstance(error, HoldfastError) else "Free what the machine lacks."
    told = RunInterrupted(
        agent=agent.name,
        run_id=run_id,
        detail=str(error) or type(error).__name__,
        advice=advice,
        cause=error.code if isinstance(error, HoldfastError) else "",
    )
    told.error = error
    return told


async def run_messages(sessions: SessionManager, run: Run) -> list[Message]:
    """Return the messages of one run, in order."""
    session = await sessions.get_session(run.session_id)
    # All that a run says is said after it was put into the queue.
    since = await sessions.messages.list_since(session, run.queued_at)
    return [message for message in since if message.run_id == run.id]


def summarize(agent: Agent, run: Run, messages: Sequence[Message], duration: float) -> AgentResult:
    """Make the result of a run from its messages."""
    last: Message | None = None
    model = ""
    tools: dict[str, None] = {}
    used: list[TokenUsage] = []
    cost_usd = 0.0
    for message in messages:
        # Not only answers: a summary of the conversation is paid too.
        cost_usd += message.cost_usd
        if message.usage is not None:
            used.append(message.usage)
        if message.role == "assistant":
            last = message
            # An answer that another agent gave has none of its own.
            model = ":".join(filter(None, (message.provider, message.model))) or model
            for part in message.parts:
                if isinstance(part, ToolPart):
                    tools[part.tool] = None
    metadata: JsonObject = {**run.result}
    if last is not None:
        metadata |= last.metadata
    if run.error:
        metadata["error"] = run.error
        if run.error.get("code") == BudgetExceeded.code:
            metadata["reason"] = "budget"
    if run.status in ("parked", "cancelled"):
        metadata["reason"] = run.reason
    is_done = last is not None and run.status == "completed"
    text = last.text if last is not None and is_done else ""
    value = _read_value_of(agent, run, text) if is_done and agent.output is not None else None
    return AgentResult(
        agent_name=agent.name,
        response=text,
        output=value,
        parts=last.parts if last is not None else (),
        metadata=metadata,
        tools_used=tuple(tools),
        tokens_used=sum_usage(used),
        cost_usd=cost_usd,
        duration=duration,
        status=cast(RunOutcome, run.status),
        run_id=run.id,
        session_id=run.session_id,
        model=model,
        refusal=last.refusal if last is not None and is_done else None,
        stopped_by=run.stopped_by if run.status == "cancelled" else "",
    )


def _read_value_of(agent: Agent, run: Run, text: str) -> object:
    """Return the answer of a run as the agent's type.

    Raises:
        UsageError: it is none, as that of a run which ended before the agent had this type.
    """
    try:
        return OutputType(agent.output).parse(text)
    except ValueError as error:
        raise UsageError(
            detail=f"The answer of the run {run.id}, which has ended, does not fit the output type "
            f"of {agent.name!r}: {error}"
        ) from error
