"""Runs: start, follow, end, of agents and of all that they start."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Final

from holdfast.agents import (
    NO_CLIENT,
    Agent,
    AgentResult,
    ClientOptions,
    KeptRequest,
    Listener,
    RunRequest,
    hear_nothing,
)
from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.journal import Condition, Event, RowQuery
from holdfast.messages import FilePart, Message, TextPart
from holdfast.operations.caller import ALL_OWNERS, OWNER, Caller
from holdfast.operations.concerns import find_agents_of_request, find_agents_of_run
from holdfast.operations.local_values import Local, LocalAgent, LocalDeps, LocalModel
from holdfast.operations.operation import local, operation, stream_operation
from holdfast.orchestration import AGENT_PREFIX, LOOP_AGENT
from holdfast.orchestration.delegation import (
    AgentOrchestrator,
    DelegationLimits,
    Family,
    FamilyEvent,
)
from holdfast.policy import NO_BUDGET, Budget, OnAsk
from holdfast.runs import ChildRun, StreamItem, list_runs_below
from holdfast.runtime import ClientResult, OpenQuestion, Runtime, SentTrace
from holdfast.sessions import (
    RUNS,
    OnBusy,
    Page,
    Run,
    RunStatus,
    Session,
    compose,
    fetch_page,
    request_of,
)
from holdfast.turns import TurnQueue

_ENDS = ("run.completed", "run.failed", "run.cancelled", "run.parked")
_GOES_ON = ("run.started", "run.resumed")


_NO_PARTS: Final[tuple[TextPart | FilePart, ...]] = ()


async def _may_go_on(runtime: Runtime, caller: Caller, run_id: str) -> bool:
    """Say whether a caller may have a run executed that it may read."""
    if caller is OWNER or caller.may("runs:write"):
        return True
    run = await runtime.turns.find(run_id)
    return run is not None and caller.may("runs:write", run.agent)


def _read_content(
    content: Sequence[TextPart | FilePart],
) -> tuple[str, tuple[TextPart | FilePart, ...]]:
    """Return the text of a message, and all of its parts."""
    is_list = isinstance(content, list | tuple) and bool(content)
    if not is_list or not all([isinstance(part, TextPart | FilePart) for part in content]):
        raise UsageError(
            detail="A message is a text, or texts and files: see `make_user_content`, or let "
            "`Agent.run` take a list of texts, Image, Audio and File."
        )
    text = "\n".join([part.text for part in content if isinstance(part, TextPart)])
    return text, tuple(content)


@operation("runs:write", agents=find_agents_of_request)
async def execute(
    runtime: Runtime,
    caller: Caller,
    /,
    agent_name: str | LocalAgent,
    session_id: str,
    user_message: str | Sequence[TextPart | FilePart],
    options: JsonObject | None = None,
    *,
    run_id: str = "",
    model: str | LocalModel = "",
    on_ask: OnAsk = "deny",
    budget: Budget | None = None,
    on_busy: OnBusy | None = None,
    history: Sequence[Message] = (),
    client: ClientOptions = NO_CLIENT,
    deps: LocalDeps = None,
) -> AgentResult:
    """Run an agent on a message in a session and return its result.

    An empty `agent_name` means the session's own agent (`plan_enter` and `plan_exit` set
    it), or else `build`. An empty `session_id` means the session of `run_id` if there is
    such a run, or else a new one. `options` are sent to the provider as they are. The
    same `run_id` again returns the finished result, or resumes what was interrupted, with
    the model and the options that it began with unless others are given. The message must then
    be the same too, or empty.

    A message is a text, or parts: texts and files (`holdfast.messages.make_user_content`) in the
    order in which they are read. A new session begins with `history`, if given. `deps` is what
    tools and instructions ask for by type, in this process; it is not kept, so it is passed again
    where the run goes on.

    `client` is what the caller brings: tools that it executes itself, and wishes for the answer. A
    call of such a tool parks the run; see `waiting` and `answer_calls`.

    Where a call asks and no approver is there to answer, `on_ask` refuses it (`deny`) or lets
    the run wait without memory (`park`) until `approve` or `deny` is called, anywhere.

    `budget` limits what this run may spend, besides the limits of its agent, of its
    session (`metadata={"budget": {…}}`) and of the settings. A run that does not fit into
    one of them ends as failed with the error `budget.exceeded`.

    While another turn is under way in the session, `on_busy` waits for it (`queue`),
    raises (`reject`), ends it (`interrupt`), or hands the message to it and returns its
    result (`steer`); the settings say which if the call does not.

    Raises:
        NotFound: there is no such agent or session, or this process lacks a tool of the agent.
        RunIdReused: the run of this id began with another message; nothing was executed.
        DependencyMissing: a tool or the prompt asks for something that `deps` has not.
        LLMInputUnsupported: the model takes no such file.
        RunInterrupted: the machine failed; the same `run_id` goes on with the run.
        SessionBusy: another turn is under way and `on_busy` is `reject`.
    """
    if isinstance(user_message, str):
        text, content = user_message, _NO_PARTS
    else:
        text, content = _read_content(user_message)
    return await runtime.runs.execute(
        RunRequest(
            agent=agent_name,
            session_id=session_id,
            message=text,
            content=content,
            history=tuple(history),
            client=client,
            deps=deps,
            options=options or {},
            run_id=run_id,
            model=model,
            on_ask=on_ask,
            budget=budget,
            on_busy=on_busy,
            must_repeat=True,
        )
    )


@stream_operation("runs:write", agents=find_agents_of_request)
async def stream(
    runtime: Runtime,
    caller: Caller,
    /,
    agent_name: str | LocalAgent,
    session_id: str,
    user_message: str | Sequence[TextPart | FilePart],
    options: JsonObject | None = None,
    *,
    run_id: str = "",
    model: str | LocalModel = "",
    on_ask: OnAsk = "deny",
    budget: Budget | None = None,
    on_busy: OnBusy | None = None,
    with_children: bool = False,
    history: Sequence[Message] = (),
    client: ClientOptions = NO_CLIENT,
    deps: LocalDeps = None,
) -> AsyncGenerator[StreamItem, None]:
    """Run an agent and yield what happens; the last item is the result.

    `with_children` also yields what the runs do that it starts, each piece as a
    `ChildPiece` under the path of its agent, in the order in which it happens.

    Leaving the loop early cancels the run.
    """
    if isinstance(user_message, str):
        text, content = user_message, _NO_PARTS
    else:
        text, content = _read_content(user_message)
    request = RunRequest(
        agent=agent_name,
        session_id=session_id,
        message=text,
        content=content,
        history=tuple(history),
        client=client,
        deps=deps,
        options=options or {},
        run_id=run_id,
        model=model,
        on_ask=on_ask,
        budget=budget,
        on_busy=on_busy,
        must_repeat=True,
    )
    async with contextlib.aclosing(
        runtime.runs.stream(request, with_children=with_children)
    ) as items:
        async for item in items:
            yield item


@operation("runs:write", agents=find_agents_of_request)
async def start(
    runtime: Runtime,
    caller: Caller,
    /,
    agent_name: str | LocalAgent,
    session_id: str,
    user_message: str | Sequence[TextPart | FilePart],
    options: JsonObject | None = None,
    *,
    run_id: str = "",
    model: str | LocalModel = "",
    on_ask: OnAsk = "deny",
    budget: Budget | None = None,
    on_busy: OnBusy | None = None,
    history: Sequence[Message] = (),
    client: ClientOptions = NO_CLIENT,
    deps: LocalDeps = None,
    listener: Annotated[Listener, Local("follow it with `runs.follow`")] = hear_nothing,
) -> Run:
    """Start an agent's run in the background and return it as soon as it is queued.

    Arguments and errors are those of `execute`. `runs.result` waits for its end, `runs.follow`
    yields what it does; a `listener` of this process hears it from the first piece on. It goes
    on until it ends or parks; closing the client cancels it. One whose process was killed is
    resumed by the same `run_id`.
    """
    if isinstance(user_message, str):
        text, content = user_message, _NO_PARTS
    else:
        text, content = _read_content(user_message)
    return await runtime.runs.start(
        RunRequest(
            agent=agent_name,
            session_id=session_id,
            message=text,
            content=content,
            history=tuple(history),
            client=client,
            deps=deps,
            options=options or {},
            run_id=run_id,
            model=model,
            on_ask=on_ask,
            budget=budget,
            on_busy=on_busy,
            must_repeat=True,
        ),
        listener,
    )


@operation("runs:write", agents=find_agents_of_request)
async def submit(
    runtime: Runtime,
    caller: Caller,
    /,
    agent_name: str,
    session_id: str,
    user_message: str,
    *,
    run_id: str = "",
    model: str = "",
    on_ask: OnAsk = "park",
    budget: Budget | None = None,
    on_busy: OnBusy | None = None,
    priority: int = 0,
) -> Run:
    """Put a run into the queue of its session, for a worker on any machine, and return it.

    The message and the wake-up of a worker are stored in one transaction. Nothing is executed
    here: `holdfast worker`, or `workers.run`, does; `runs.wait` waits for it. A call that asks
    parks the run by default, until a person answers anywhere. Where all workers are busy, a higher
    `priority` (-100 to 100) is taken first; what waits gains one every ten seconds.

    Raises:
        NotFound: there is no such agent or session; nothing was begun.
        UsageError: the priority is out of range.
    """
    if not -100 <= priority <= 100:
        raise UsageError(detail="A priority is a number from -100 to 100.")
    return await runtime.runs.submit(
        RunRequest(
            agent=agent_name,
            session_id=session_id,
            message=user_message,
            run_id=run_id,
            model=model,
            on_ask=on_ask,
            budget=budget,
            on_busy=on_busy,
            must_repeat=True,
        ),
        priority=priority,
    )


@operation("runs:read", agents=find_agents_of_run)
async def wait(runtime: Runtime, caller: Caller, /, run_id: str) -> Run:
    """Return a run when it has ended or is parked, without executing it here.

    Raises:
        NotFound: there is no such run.
    """
    return await runtime.runs.wait(run_id)


@operation("runs:read", agents=find_agents_of_run)
async def result(
    runtime: Runtime, caller: Caller, /, run_id: str, *, raise_on_failure: bool = True
) -> AgentResult:
    """Wait for the end of an agent's run and return its result.

    One that parks comes back as `parked`. One that no process executes any more is gone on with
    here if the caller may start runs, and else waited for.

    Raises:
        NotFound: there is no such run.
        UsageError: it is none of an agent.
        RunFailed: it failed, unless `raise_on_failure` is off; parked and cancelled are results.
    """
    found = await runtime.runs.result(run_id, may_go_on=await _may_go_on(runtime, caller, run_id))
    return found.raise_if_failed() if raise_on_failure else found


@stream_operation("runs:read", agents=find_agents_of_run)
async def follow(
    runtime: Runtime, caller: Caller, /, run_id: str, *, raise_on_failure: bool = True
) -> AsyncGenerator[StreamItem, None]:
    """Yield what a run does, from its present message on; the last item is the result.

    Raises:
        RunFailed: at the end, in place of a result that is failed, unless `raise_on_failure`
            is off.
    """
    may_go_on = await _may_go_on(runtime, caller, run_id)
    async with contextlib.aclosing(runtime.runs.follow(run_id, may_go_on=may_go_on)) as items:
        async for item in items:
            if raise_on_failure and isinstance(item, AgentResult):
                item.raise_if_failed()
            yield item


@stream_operation("runs:read", agents=find_agents_of_run)
async def events(
    runtime: Runtime, caller: Caller, /, run_id: str, *, after: int = 0, waits: bool = True
) -> AsyncGenerator[Event, None]:
    """Yield the stored events of a run in order, until it ends or waits for a person.

    `after` is the number of the last event that was seen. Without `waits` only those come that
    are stored now.
    """
    session_id = (await runtime.turns.get(run_id)).session_id
    # What was there when it was asked for tells whether the run rests; what comes after goes on.
    last = await runtime.sessions.find_last_number(session_id)
    rests = False
    feed = runtime.feed.follow_session(session_id)
    async with contextlib.aclosing(feed):
        async for event in feed:
            if event.run_id == run_id:
                rests = event.kind in _ENDS or (rests and event.kind not in _GOES_ON)
                if event.session_seq > after:
                    yield event
            if (rests or not waits) and event.session_seq >= last:
                return


@operation("runs:read", agents=find_agents_of_run)
async def get(runtime: Runtime, caller: Caller, /, run_id: str) -> Run:
    """Return a run; raises NotFound."""
    return await runtime.turns.get(run_id)


@operation("runs:read", agents=find_agents_of_run)
async def request(runtime: Runtime, caller: Caller, /, run_id: str) -> KeptRequest:
    """Return what was asked for when a run was queued; raises NotFound."""
    run = await runtime.turns.get(run_id)
    return KeptRequest.of((await request_of(runtime.journal, run)).options)


@operation("runs:read")
async def list_(
    runtime: Runtime,
    caller: Caller,
    /,
    *,
    status: RunStatus | None = None,
    kind: str = "",
    is_top: bool = False,
    limit: int = 50,
) -> list[Run]:
    """Return runs, newest first; of one `kind` (`loop`, `workflow`, `agent`, `call`) if given.

    With `is_top` only those that no other run has started; `children` has the others.
    """
    is_kind = {
        "": lambda run: True,
        "loop": lambda run: run.agent == LOOP_AGENT,
        "workflow": lambda run: run.agent.startswith(AGENT_PREFIX),
        "agent": lambda run: (
            bool(run.agent) and run.agent != LOOP_AGENT and not run.agent.startswith(AGENT_PREFIX)
        ),
        "call": lambda run: not run.agent,
    }
    if kind not in is_kind:
        raise UsageError(detail=f"The kind of a run is one of {', '.join(filter(None, is_kind))}.")
    return await runtime.storage.runs(
        status=status, is_kind=is_kind[kind], is_top=is_top, limit=limit
    )


@operation("runs:read")
async def find(
    runtime: Runtime,
    caller: Caller,
    /,
    *,
    session_id: str = "",
    status: RunStatus | None = None,
    agent: str = "",
    descending: bool = True,
    limit: int = 50,
    cursor: str = "",
) -> Page[Run]:
    """Return a page of runs, newest first unless asked otherwise; of a session, state or agent.

    `next_cursor` of a page is the `cursor` of the one behind it, with the same filter.

    Raises:
        NotFound: there is no such session.
        InvalidCursor: the cursor is of another listing.
    """
    wanted = (await runtime.sessions.get_session(session_id)).id if session_id else ""
    where = [Condition("status", "=", status)] if status is not None else []
    where += [Condition("session_id", "=", wanted)] if wanted else []
    query = RowQuery(
        projection=RUNS,
        where=tuple(where),
        order="time_queued",
        descending=descending,
        limit=limit,
    )
    owners: dict[str, bool] = {}

    async def keep(run: Run) -> bool:
        if agent and run.agent != agent:
            return False
        if caller is OWNER or wanted or caller.may(ALL_OWNERS):
            return True
        if run.session_id not in owners:
            session = await runtime.sessions.get_session(run.session_id)
            owners[run.session_id] = caller.may_see(session.owner)
        return owners[run.session_id]

    return await fetch_page(runtime.journal, query, cursor, keep=keep)


@operation("runs:write", agents=find_agents_of_run)
async def cancel(runtime: Runtime, caller: Caller, /, run_id: str, *, reason: str = "") -> Run:
    """Ask for a run to end, and for all that it started; works from any process."""
    return await runtime.runs.cancel(run_id, reason=reason)


@operation("runs:write")
async def steer(runtime: Runtime, caller: Caller, /, session_id: str, message: str) -> Run:
    """Say something to the run that is under way in a session; returns that run.

    It reads it before its next step. Works from any process.

    Raises:
        NotFound: no run is under way.
    """
    said = compose(session_id, "user", message, runtime.journal.clock.now())
    return await runtime.turns.steer(session_id, said)


@operation("runs:write", agents=find_agents_of_run)
async def steer_run(runtime: Runtime, caller: Caller, /, run_id: str, message: str) -> Run:
    """Say something to a run; it reads it before its next step.

    Raises:
        NotFound: it is not under way.
    """
    run = await runtime.turns.get(run_id)
    said = compose(run.session_id, "user", message, runtime.journal.clock.now())
    return await runtime.turns.steer(run.session_id, said)


@operation("sessions:write")
async def fork(
    runtime: Runtime, caller: Caller, /, run_id: str, *, at: int | None = None, title: str = ""
) -> Session:
    """Begin a new session with everything up to event `at` of a run's session taken over."""
    run = await runtime.turns.get(run_id)
    return await runtime.sessions.fork_session(run.session_id, at=at, title=title)


@operation("runs:read", agents=find_agents_of_run)
async def await_answer(runtime: Runtime, caller: Caller, /, run_id: str) -> Run:
    """Return a run as soon as it waits for no answer: an approver has answered, or it has ended.

    Answers in other processes count too. The caller that began the run goes on with it then, by
    the same call; nothing is executed here.

    Raises:
        NotFound: there is no such run.
    """
    return await runtime.workflows.await_answer(run_id)


@operation("runs:read", agents=find_agents_of_run)
async def waiting(runtime: Runtime, caller: Caller, /, run_id: str) -> list[OpenQuestion]:
    """Return what a parked run, or one that it started, waits for.

    `reason` is `approval`, `question`, `unknown_outcome`, or `client_call` for a call of a tool
    that the client of the run brought (`answer_calls`).

    Raises:
        NotFound: there is no such run.
    """
    return await runtime.approvals.waiting(run_id)


@operation("runs:write", agents=find_agents_of_run)
async def answer_calls(
    runtime: Runtime, caller: Caller, /, run_id: str, results: dict[str, ClientResult]
) -> Run:
    """Send the results of calls of a client's tools, by call id; the run can then go on.

    All results are kept together or none; the run goes on once every call has one. Results that
    came before are left as they are, so that sending them again changes nothing.

    Raises:
        NotFound: no such call of the run waits for its client.
    """
    return await runtime.approvals.answer_calls(run_id, results, by=caller.subject)


@operation("runs:write", agents=find_agents_of_run)
async def wake(runtime: Runtime, caller: Caller, /, run_id: str) -> Run:
    """Let a parked run look again whether what it waits for is there; it rests again if not.

    It goes on where it is executed next, by `runs.execute`, `runs.start` or `tools.call` with its
    `run_id`. A run that has ended, or is queued, is left as it is.

    Raises:
        NotFound: there is no such run.
    """
    return await runtime.turns.wake(run_id, cause=f"{caller.subject} came back")


@operation("runs:read")
async def interrupted(runtime: Runtime, caller: Caller, /) -> list[Run]:
    """Return runs that were under way when their process ended."""
    return await runtime.sessions.list_interrupted_runs()


@operation("runs:read", agents=find_agents_of_run)
async def children(runtime: Runtime, caller: Caller, /, run_id: str) -> list[ChildRun]:
    """Return all runs that a run, or an orchestrator of this id, has started."""
    return await list_runs_below(runtime.journal, run_id)


@local("use `holdfast runs trace` where the records are: the server would post anywhere")
async def trace(
    runtime: Runtime, /, run_id: str, url: str = "", *, has_content: bool | None = None
) -> SentTrace:
    """Send the trace of a run and of all below it to an OTLP receiver, whenever it was.

    Raises:
        NotFound: there is no such run.
        TraceExportFailed: the receiver did not take it.
        UsageError: no receiver is named, here or by `telemetry.otlp_url`.
    """
    return await runtime.traces.send(run_id, url, has_content=has_content)


@operation("runs:write", agents=find_agents_of_run)
async def cancel_children(
    runtime: Runtime, caller: Caller, /, run_id: str, *, reason: str = ""
) -> int:
    """Ask for all runs to end that a run, or an orchestrator of this id, has started.

    Returns how many had not ended.
    """
    return await runtime.runs.cancel_children(run_id, reason=reason)


@operation("runs:read")
async def family_events(
    runtime: Runtime, caller: Caller, /, session_id: str, *, after: int = 0, limit: int = 1000
) -> list[FamilyEvent]:
    """Return the events of a session and of all that were started from it, in order.

    Each stands under the path of the agent in whose run it happened.
    """
    session = await runtime.sessions.get_session(session_id)
    return await Family(runtime.sessions, session.id).events(after=after, limit=limit)


@stream_operation("runs:read")
async def watch_family(
    runtime: Runtime, caller: Caller, /, session_id: str, *, after: int | None = None
) -> AsyncGenerator[FamilyEvent, None]:
    """Yield the events of a session and of all that are started from it, as they happen."""
    session = await runtime.sessions.get_session(session_id)
    family = Family(runtime.sessions, session.id)
    feed = runtime.journal.subscribe(after=after)
    async with contextlib.aclosing(feed):
        async for event in feed:
            view = await family.view(event)
            if view is not None:
                yield view


@local("start runs with `runs.start`, and let the agents there delegate")
async def orchestrator(
    runtime: Runtime,
    /,
    *,
    run_id: str = "",
    agent: Agent | None = None,
    limits: DelegationLimits | None = None,
    budget: Budget = NO_BUDGET,
    on_ask: OnAsk = "deny",
) -> AgentOrchestrator:
    """Return an orchestrator that lets agents of this client work for each other.

    With a `run_id` the same calls again return what is finished and go on with the rest.
    `limits` are those of the settings unless given.
    """
    return AgentOrchestrator(
        runtime.runs,
        runtime.sessions,
        runtime.turns,
        run_id=run_id,
        agent=agent,
        limits=limits or runtime.runs.limits,
        budget=budget,
        on_ask=on_ask,
        bus=runtime.hooks.bus,
    )


@local("start runs with `runs.start`")
async def execute_request(
    runtime: Runtime, /, request: RunRequest, listener: Listener = hear_nothing
) -> AgentResult:
    """Execute a run as a `RunRequest` says, or resume it; a listener hears its pieces."""
    return await runtime.runs.execute(request, listener)


@local("use the operations of `runs`")
async def turns(runtime: Runtime, /) -> TurnQueue:
    """Return the turn queue of the open journal."""
    return runtime.turns
