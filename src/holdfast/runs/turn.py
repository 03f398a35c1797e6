"""One turn of an agent: a loop over its own transcript.

It looks at what is there and does the next thing. Facts are kept, never code positions, so
a restart reads the journal and goes on:

    the last message asks for tools that have no result  ->  execute them
    the last message is an answer of this run            ->  done
    otherwise                                            ->  ask the model
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections.abc import Awaitable, Mapping, Sequence

import msgspec

from holdfast.agents import (
    HANDED_TO,
    NO_CLIENT,
    UNLIMITED,
    WAITING_FOR_MODEL,
    Agent,
    ClientOptions,
    KeptRequest,
    Listener,
    OutputType,
    RunContext,
    find_handed_over_answer,
    hear_nothing,
    write_instructions,
)
from holdfast.canonical import JsonObject
from holdfast.context import (
    MOST_ATTEMPTS,
    STATE_MARK,
    CompactionHooks,
    Compactor,
    Conversation,
    MemoryLike,
    count_enough,
    render_state,
)
from holdfast.errors import (
    BudgetExceeded,
    Conflict,
    LLMContentFiltered,
    LLMContextTooLong,
    LLMError,
    LLMProtocolError,
    StorageError,
)
from holdfast.hooks import ContextAfterBuild, ContextBeforeBuild, ContextBeforeCompaction
from holdfast.ids import make_id
from holdfast.messages import (
    FilePart,
    GrowingMessages,
    Message,
    Part,
    ToolPart,
    has_file,
    strip_session,
)
from holdfast.providers import (
    CallEvents,
    Finished,
    Model,
    ModelRequest,
    Restarted,
    TextDelta,
    close_stream,
    is_outage,
)
from holdfast.runs.confinement import select_visible_tools
from holdfast.runs.files import SessionFiles
from holdfast.runs.instrumentation import HookedContextBuilder, HookedModel
from holdfast.runs.lineage import LINEAGE_KEY, RunPosition, locate_run, refresh_ancestor_rules
from holdfast.runs.reserving import ReservingModel
from holdfast.runs.services import CallScope, RunCalls, RunServices
from holdfast.runs.skill_models import SiblingLookup, find_skill_model
from holdfast.runs.spending import Charge, Spending
from holdfast.runs.unfinished import CANCELLED, make_unfinished
from holdfast.sessions import MessageCreated, Session, compose
from holdfast.skills import Skill
from holdfast.state import StateManager
from holdfast.tools import (
    Call,
    CallRecord,
    Label,
    Tool,
    ToolRegistry,
    list_missing_labels,
    read_records,
    sort_labels,
)
from holdfast.tools import Parked as ParkedCall
from holdfast.turns import (
    Outcome,
    Turn,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnParked,
    finish,
    is_machine_fault,
)

_log = logging.getLogger("holdfast.models")
_MOST_CORRECTIONS = 2
_CANCELLED = "The run was cancelled."
_FAILED = "The run failed; what became of this call was not recorded."


class AgentTurn:
    """A turn under way: the loop and its steps.

    Many turns make no call: what only a call needs (workspace, sandbox, grants, gate) is made
    with the first one.
    """

    def __init__(  # noqa: PLR0913 - what one turn works with
        self,
        services: RunServices,
        agent: Agent,
        turn: Turn,
        tools: ToolRegistry,
        *,
        model: HookedModel,
        charge: Charge,
        skills: Sequence[Skill] = (),
        listener: Listener = hear_nothing,
        options: JsonObject,
        deps: object = None,
        find_sibling: SiblingLookup | None = None,
    ) -> None:
        """Made by the runtime, inside the session's lease."""
        self._services = services
        self._agent = agent
        self._turn = turn
        self._model, self._charge = model, charge
        self._find_sibling, self._skill_model = find_sibling, ""
        self._compactor: Compactor | None = None
        around = services.instrumentation
        building = services.context.prepare_for_turn()
        self._context = HookedContextBuilder(building, around.hooks, around.where)
        self._session_id, self._run_id = turn.session_id, turn.run.id
        kept = turn.request.options
        self._scope = KeptRequest.of(kept) if kept else UNLIMITED
        self._tools = tools
        self._calls: RunCalls | None = None
        self._recalled: tuple[Label, ...] = ()
        self._files: SessionFiles | None = None
        self._deps = deps
        allowed = self._scope.skill_names
        if allowed is not None:
            skills = [skill for skill in skills if skill.name in allowed]
        self._skills = tuple(skills)
        self._listener = listener if listener is not hear_nothing else None
        self._options = {**agent.options, **self._scope.options, **options}
        self._messages = GrowingMessages()
        self._call_ids: set[str] | None = None
        self._left_open: frozenset[str] = frozenset()
        self._steps = 0
        self._offered: dict[str, Tool] = {}
        self._was_compacted = False
        self._unread = 0
        self._was_handed_over = turn.is_resumed
        self._is_limited = False
        self._unfinished: Message | None = None
        self._output = OutputType(agent.output) if agent.output is not None else None
        self._path = services.instrumentation.where.agent_path or agent.name
        self._hearing = CallEvents(agent.name)

    def read_stored_messages(self) -> list[Message] | None:
        """Return the messages of this run, or `None` where the journal may have others."""
        turn = self._turn
        may_differ = self._was_compacted or turn.was_redacted or turn.cancelled.is_set()
        if may_differ or turn.ended is None:
            return None
        # What a run that was not there before has said stands behind the beginning that it found.
        messages = self._messages if turn.is_resumed else self._messages.tail
        return [message for message in messages if message.run_id == self._run_id]

    async def execute(self) -> Outcome:
        """Do the next thing until nothing is left to do, or a caller asks to stop.

        However it ends, no call is left without a result: the session stays usable.
        """
        try:
            async with self._turn.cancelled.ending():
                self._session = session = await self._begin()
                at = locate_run(self._agent, session, self._scope.tool_ids, self._scope.skill_names)
                services, around = self._services, self._services.instrumentation
                # Refuses a directory that cannot be a workspace, before the model is asked.
                services.confinement.check_directory(session.directory)
                ceiling = services.confinement.policies.bundle.find_ceiling(self._path)
                self._offered = select_visible_tools(self._tools, ceiling, at.rights)
                if not around.hooks.is_empty:
                    self._offered = await around.discover(self._tools, self._offered)
                spending = await services.open_spending(
                    self._turn,
                    session,
                    agent=self._agent.name,
                    own=self._agent.budget,
                    run=self._scope.budget,
                    shares=at.shares,
                    pending=sum(one.state == "pending" for one in self._messages.last.tool_calls),
                )
                self._is_limited = spending is not None
                return await self._run_loop(session, at, spending)
        except TimeoutError:
            if not self._turn.cancelled.is_set():
                raise
            # The caller that waits for the run may be cancelled too, as one whom the same person
            # stopped.
            is_cancelled = await finish(self._turn.close_calls(_CANCELLED))
            self._keep_unfinished()
            if is_cancelled:
                raise asyncio.CancelledError from None
            return TurnCancelled(reason=self._turn.cancel_reason)
        except asyncio.CancelledError:
            await finish(self._turn.close_calls(_CANCELLED))
            self._keep_unfinished()
            # No end of this run follows, so what it took is stored now: its caller adds it up.
            with contextlib.suppress(StorageError, Conflict):
                await finish(self._turn.flush())
            raise
        except Exception as error:
            if self._scope.on_outage == "park" and isinstance(error, LLMError) and is_outage(error):
                # All that was said and done is kept; executed again, the run asks once more.
                return TurnParked(reason=f"{WAITING_FOR_MODEL}: {error}")
            if not is_machine_fault(error):
                await finish(self._turn.close_calls(_FAILED))
            raise
        finally:
            if self._calls is not None:
                # What calls have left running ends with the turn.
                if not self._calls.runner.is_idle:
                    await asyncio.shield(self._calls.runner.aclose())

    def _add_client_tools(self) -> None:
        """Offer what the client executes itself; not behind names that have come up since."""
        from holdfast.runs.client_tools import make_client_tools  # noqa: PLC0415 - few runs have any

        made = make_client_tools(self._scope.client.tools)
        new = tuple([one for one in made if self._tools.find(one.name) is None])
        self._tools = self._tools.layer(new, scope="agent")

    async def _run_loop(
        self, session: Session, at: RunPosition, spending: Spending | None
    ) -> Outcome:
        try:
            if self._agent.written or STATE_MARK in self._agent.prompt:
                await self._render_prompt(session, at, spending)
            calls = self._messages.last.tool_calls
            while True:
                if calls:
                    ended = await self._execute_calls(session, at, spending, calls)
                    if ended is not None:
                        return ended
                last = self._messages.last
                if self._turn.may_be_steered and await self._is_steered():
                    calls = ()
                elif self._was_handed_over and (given := find_handed_over_answer(last)) is not None:
                    self._was_handed_over = False
                    calls = await self._add(given)
                elif (
                    not calls
                    and last.role == "assistant"
                    and last.stop_reason != CANCELLED
                    and last.run_id == self._run_id
                ):
                    if self._output is None or await self._fits(last, self._output):
                        return TurnCompleted(result={"message_id": last.id})
                elif self._steps >= self._agent.steps:
                    return TurnFailed(error=self._make_out_of_steps().to_dict())
                else:
                    self._steps += 1
                    calls = await self._ask_model(spending)
        except BudgetExceeded as error:
            self._keep_unfinished()
            return TurnFailed(error=error.to_dict())
        finally:
            if spending is not None:
                spending.close()

    # --- the steps --------------------------------------------------------------------

    async def _begin(self) -> Session:
        """Read the conversation, add the message of this run unless it is there, and its tools."""
        sessions = self._services.sessions
        session = self._turn.session or await sessions.get_session(self._turn.session_id)
        if LINEAGE_KEY in session.metadata:
            session = await refresh_ancestor_rules(sessions, session)
        # Messages are written only by the caller that holds the session, so the count is true.
        if session.message_count:
            number = self._turn.last if self._turn.is_alone else 0
            # A run that goes on needs all that it has said, also what a summary stands for.
            since = self._turn.run.queued_at if self._turn.is_resumed else None
            self._messages = await sessions.messages.growing(
                session, up_to=number, since=since, newest=self._count_enough(session)
            )
            if self._messages.is_partial:
                self._unread = max(0, session.message_count - len(self._messages))
        if self._messages:
            # Only the last message can have calls that no caller has answered yet.
            self._left_open = frozenset([call.call_id for call in self._messages.last.tool_calls])
        mine: list[Message] = []
        if self._turn.is_resumed:
            mine = [message for message in self._messages if message.run_id == self._run_id]
            self._steps = sum(message.role == "assistant" for message in mine)
            await self._follow_skills(self._list_calls_before())
        message = self._turn.request.message
        if not mine and message is not None:
            if self._left_open:
                # A run that was cancelled while it was parked left its calls open.
                await self._close_open_calls()
            # The queue has it, so it need not be stored before the first answer is asked for.
            await self._add(message, may_wait=True)
        given = self._agent.tools
        if given and self._tools.find(given[0].name) is None:
            self._tools = self._tools.layer(tuple(given), scope="agent")
        if self._scope.client.tools:
            self._add_client_tools()
        return session

    def _count_enough(self, session: Session) -> int:
        """How much of a conversation has to be read, in tokens; 0: all of it.

        Hooks and steps of one's own see all there is.
        """
        services = self._services
        hooks = services.instrumentation.hooks
        points = (ContextBeforeBuild, ContextAfterBuild, ContextBeforeCompaction)
        if not services.context.shows_all or (not hooks.is_empty and hooks.has(*points)):
            return 0
        return count_enough(self._model.info, session)

    async def _write_prompt(self) -> Agent:
        """Return the agent with the parts of its prompt that functions write for this turn."""
        message = self._turn.request.message
        context: RunContext[object] = RunContext(
            deps=self._deps,
            message=message.text if message is not None else "",
            agent_name=self._agent.name,
            session_id=self._session_id,
            run_id=self._run_id,
        )
        named = copy.copy(self._agent)
        execution = self._services.instrumentation.execution
        named.written_text = await write_instructions(named.written, context, execution)
        return named

    async def _render_prompt(
        self, session: Session, at: RunPosition, spending: Spending | None
    ) -> None:
        """Complete the prompt: what functions write, and values of the state that it names."""
        if self._agent.written:
            self._agent = await self._write_prompt()
        if STATE_MARK not in self._agent.prompt:
            return
        self._calls = await self._open_calls(session, at, spending)
        context = self._calls.context
        named = copy.copy(self._agent)
        named.prompt = await render_state(named.prompt, context.execution.get(StateManager))
        self._agent = named
        if context.labels.new:
            # Before the model reads it: the taint has to outlive this turn.
            await self._turn.append(*context.labels.list_unkept(), agent_path=self._path)

    async def _open_calls(
        self, session: Session, at: RunPosition, spending: Spending | None
    ) -> RunCalls:
        """Put together what surrounds the calls of this turn."""
        services, turn, terms = self._services, self._turn, self._services.terms
        if self._scope.on_ask == "park":
            terms = msgspec.structs.replace(terms, on_ask="park")
        return await services.calls.open_calls(
            CallScope(
                turn=turn,
                session=session,
                tools=self._tools,
                path=at.path,
                rights=at.rights,
                sandbox=at.sandbox,
                approver=services.approver,
                terms=terms,
                instrumentation=services.instrumentation,
                inherited=(*(at.above.labels if at.above is not None else ()), *self._recalled),
                spending=spending,
                skill_names=self._scope.skill_names,
                before=self._list_calls_before() if turn.is_resumed else (),
                deps=self._deps,
            )
        )

    async def _follow_skills(self, calls: Sequence[ToolPart]) -> None:
        """Use the model that a loaded skill names, until the turn ends.

        Only another one of the same provider: no skill decides to whom the conversation is sent.
        """
        if "skill" not in self._tools or self._find_sibling is None:
            return
        wanted = find_skill_model(calls)
        if not wanted or wanted == self._skill_model:
            return
        self._skill_model = wanted
        found = await self._find_sibling(self._model.info, wanted)
        if found is None:
            _log.warning("The skill's model %r is not used: it is none of this provider.", wanted)
            return
        model, self._charge = found
        self._model, self._compactor = self._model.around(model), None

    def _list_calls_before(self) -> list[ToolPart]:
        """The calls of this run that have a result."""
        return [
            part
            for message in self._messages
            if message.run_id == self._run_id
            for part in message.tool_calls
            if part.state != "pending"
        ]

    async def _is_steered(self) -> bool:
        """Let messages that arrived meanwhile join the conversation; says whether any did."""
        sent = await self._turn.take_steering()
        self._messages.extend(sent)
        if any(has_file(part) for message in sent for part in message.parts):
            self._messages.has_files = True
        return bool(sent)

    def _make_compactor(self, spending: Spending | None) -> Compactor:
        """Return what makes room; what that costs is reserved like every call."""
        services = self._services
        model: Model = self._model
        if spending is not None:
            model = ReservingModel(model, spending, self._charge)
        return Compactor(
            model,
            charge=self._charge,
            clock=services.clock,
            hooks=CompactionHooks(hooks=services.instrumentation.hooks, agent=self._agent.name),
        )

    async def _ask_model(self, spending: Spending | None) -> tuple[ToolPart, ...]:
        """Ask the model once, keep its answer, and return the calls that it asks for.

        Room is made before the window is full, and again when the provider refuses.

        Raises:
            BudgetExceeded: the worst case does not fit; nothing was asked.
        """
        build = self._request
        compactor = self._compactor or self._make_compactor(spending)
        self._compactor = compactor
        if self._messages.is_partial:
            await self._begin_anew(compactor)
        request = await build(self._session, self._messages)
        if compactor.is_needed(request, self._messages):
            await self._make_room(compactor.make_room(self._make_conversation(), build, self._turn))
            request = await build(self._session, self._messages)
        attempt = 1
        while True:
            try:
                if spending is not None:
                    return await self._ask_within(request, spending)
                return await self._add(await self._answer(request))
            except LLMContextTooLong:
                if attempt > MOST_ATTEMPTS:
                    raise
                talk = self._make_conversation()
                more = compactor.make_more_room(talk, build, self._turn, attempt)
                await self._make_room(more)
                request = await build(self._session, self._messages)
                attempt += 1

    def _make_conversation(self) -> Conversation:
        return Conversation(
            session=self._session, messages=tuple(self._messages), run_id=self._turn.run.id
        )

    async def _begin_anew(self, compactor: Compactor) -> None:
        """Have a summary stand for what no model could read; all is read where none can be made."""
        talk = msgspec.structs.replace(self._make_conversation(), unread=self._unread)
        if await self._make_room(compactor.begin_anew(talk, self._request, self._turn)):
            return
        await self._turn.flush()
        session = await self._services.sessions.get_session(self._session_id)
        self._messages = await self._services.sessions.messages.growing(session, since=0)

    async def _make_room(self, making: Awaitable[Conversation | None]) -> bool:
        """Go on with a smaller conversation; what its model calls met with is kept as well."""
        with CallEvents(self._agent.name) as heard:
            try:
                smaller = await making
            finally:
                if heard:
                    await self._turn.append(*heard, agent_path=self._path)
        if smaller is None:
            return False
        self._session = smaller.session
        has_files = self._messages.has_files
        self._messages = GrowingMessages((), smaller.messages, has_files=has_files)
        self._was_compacted = True
        return True

    async def _request(self, session: Session, messages: Sequence[Message]) -> ModelRequest:
        context = await self._context.build_agent_context(
            session, self._agent, self._offered, self._skills, messages=messages
        )
        if context.memories:
            await self._note_recalled(context.memories)
        shown = context.messages
        if self._messages.has_files:
            shown = await self._load_files(session, shown)
        request = ModelRequest(
            messages=shown,
            system=context.system_prompt,
            changing=len(self._agent.written_text),
            tools=context.tool_specs,
            temperature=self._agent.temperature,
            top_p=self._agent.top_p,
            options=self._options,
            output_schema=self._output.schema if self._output else None,
            output_name=self._output.name if self._output else "answer",
        )
        client = self._scope.client
        return request if client is NO_CLIENT else _apply_wishes(request, client, self._steps)

    async def _note_recalled(self, memories: Sequence[MemoryLike]) -> None:
        """Keep the taint of memories before the model reads them, for this turn and later ones."""
        labels = sort_labels(one for memory in memories for one in getattr(memory, "labels", ()))
        new = tuple([label for label in labels if label not in self._recalled])
        if not new:
            return
        self._recalled += new
        journal = self._services.sessions.journal
        if missing := await list_missing_labels(journal, self._session_id, new):
            await self._turn.append(*missing, agent_path=self._path)
        if self._calls is not None:
            self._calls.context.labels.note_kept(new)

    async def _load_files(self, session: Session, shown: Sequence[Message]) -> Sequence[Message]:
        """Put the contents of files into what the model is shown."""
        if self._files is None:
            self._files = self._services.files.open_for(session)
        return await self._files.load(shown)

    async def _ask_within(self, request: ModelRequest, spending: Spending) -> tuple[ToolPart, ...]:
        """Reserve, ask, keep the answer, and settle."""
        answer: Message | None = None
        model, charge = self._model, self._charge
        request, held = await spending.before_model(model, request, charge)
        try:
            seconds = spending.seconds_left
            if seconds is None:
                answer = await self._answer(request)
            else:
                answer = await self._run_in_time(request, spending, seconds)
            return await self._add(answer)
        finally:
            if held is not None:
                await asyncio.shield(spending.after_model(held, answer))

    async def _run_in_time(
        self, request: ModelRequest, spending: Spending, seconds: float
    ) -> Message:
        """Return the model's answer, if it comes before the run's time is over."""
        try:
            async with asyncio.timeout(seconds) as timer:
                return await self._answer(request)
        except TimeoutError:
            if timer.expired():
                raise spending.make_out_of_time() from None
            raise

    async def _answer(self, request: ModelRequest) -> Message:
        """Return the model's answer and what it cost, and let the listener hear its pieces.

        What the call met with is kept, however it ends.
        """
        model, listener = self._model, self._listener
        self._unfinished = None
        said: list[str] = []
        with self._hearing as heard:
            try:
                stream = model.stream(request, deltas=listener is not None)
                try:
                    async for delta in stream:
                        if listener is not None:
                            listener(delta)
                        if isinstance(delta, Finished):
                            return self._charge(delta.message)
                        if isinstance(delta, TextDelta):
                            said.append(delta.text)
                        elif isinstance(delta, Restarted):
                            said.clear()
                except asyncio.CancelledError:
                    if model.info.is_llm:
                        self._unfinished = make_unfinished(model.info, request, "".join(said))
                    raise
                finally:
                    await close_stream(stream)
            finally:
                if heard:
                    await self._turn.append(*heard, agent_path=self._path)
                    heard.clear()
        detail = "the stream ended without an answer"
        raise LLMProtocolError(provider=model.info.provider, detail=detail)

    async def _fits(self, answer: Message, wanted: OutputType) -> bool:
        """Say whether an answer has the wanted type; if not, tell the model why, a few times.

        Raises:
            LLMProtocolError: it did not get it right.
            LLMContentFiltered: it refused.
        """
        try:
            wanted.parse(answer.text)
            return True
        except ValueError as error:
            if answer.refusal is not None:
                # To be asked again changes no mind, and costs as much.
                detail = answer.refusal.text or "the model refused to answer"
                raise LLMContentFiltered(
                    provider=self._model.info.provider, detail=detail
                ) from error
            told = sum(
                bool(message.metadata.get("output_error"))
                for message in self._messages
                if message.run_id == self._turn.run.id
            )
            if told >= _MOST_CORRECTIONS:
                detail = f"its answer does not have the wanted form: {error}"
                raise LLMProtocolError(provider=self._model.info.provider, detail=detail) from error
            text = f"The answer does not have the wanted form. Correct it:\n{error}"
            now = self._services.clock.now()
            correction = compose(self._turn.session_id, "user", text, now)
            await self._add(msgspec.structs.replace(correction, metadata={"output_error": True}))
            return False

    async def _execute_calls(
        self,
        session: Session,
        at: RunPosition,
        spending: Spending | None,
        parts: Sequence[ToolPart],
    ) -> Outcome | None:
        """Execute those calls of the last message that are open; returns how that ends the run."""
        turn, message_id = self._turn, self._messages.last.id
        calls: list[Call] = []
        for part in parts:
            if part.state == "pending":
                is_recorded = part.call_id in self._left_open
                calls.append(Call(message_id=message_id, part=part, is_recorded=is_recorded))
        if not calls:
            return None
        if self._calls is None:
            self._calls = await self._open_calls(session, at, spending)
        manager = self._calls.manager
        records: Mapping[str, CallRecord] | None = None
        if turn.is_resumed:
            journal, began = self._services.sessions.journal, turn.run.queued_at
            records = await read_records(journal, self._session_id, after=began)
        done: dict[str, ToolPart] = {}
        waiting: ParkedCall | None = None
        for result in await manager.execute_all(calls, records=records):
            if isinstance(result, ToolPart):
                done[result.call_id] = result
                if HANDED_TO in result.metadata:
                    self._was_handed_over = True
                if self._listener is not None:
                    self._listener(result)
            else:
                waiting = waiting or result
        self._replace_last(done)
        await self._follow_skills(tuple(done.values()))
        # Here, or below a call: then the request to end need not have arrived yet.
        if by := manager.stopped_by or turn.stopped_by:
            await self._close_open_calls()
            return TurnCancelled(reason=f"{by} stopped the run", stopped_by=by)
        if waiting is not None:
            return TurnParked(reason=waiting.reason)
        return (
            TurnFailed(error=manager.exhausted.to_dict()) if manager.exhausted is not None else None
        )

    async def _close_open_calls(self) -> None:
        """Give every call without a result one, so that the conversation can go on."""
        if any([part.state == "pending" for part in self._messages.last.tool_calls]):
            closed = await self._turn.close_calls(_CANCELLED)
            self._replace_last({part.call_id: part for part in closed})

    def _keep_unfinished(self) -> None:
        """Keep what arrived of an answer that was broken off, and what it took so far.

        It is stored with the end of the run that follows: a run that goes on asks again.
        """
        answer, self._unfinished = self._unfinished, None
        if answer is None:
            return
        named = msgspec.structs.replace(
            self._charge(answer),
            id=make_id("msg"),
            session_id=self._session_id,
            run_id=self._run_id,
            agent=self._agent.name,
            time_created=self._services.clock.now(),
        )
        fact = MessageCreated(message=strip_session(named))
        self._turn.defer(fact, agent_path=self._path)
        self._messages.append(named)

    # --- the transcript ---------------------------------------------------------------

    async def _add(self, message: Message, *, may_wait: bool = False) -> tuple[ToolPart, ...]:
        """Store a message as one of this run, and return the calls that it asks for.

        Its parts get ids, so that they can be updated. A call gets one that no other call of the
        conversation has: some models number their calls anew in each answer, or not at all.

        One that `may_wait` is stored with whatever comes next, and so is the last answer: with
        the end that follows. Where a budget counts, that is stored at once: when the run gives
        the rest back, the journal is all that knows what was spent.
        """
        parts: list[Part] = []
        calls: tuple[ToolPart, ...] = ()
        for part in message.parts:
            if not part.id:
                part = msgspec.structs.replace(part, id=make_id("prt"))
            if isinstance(part, ToolPart):
                known = self._call_ids
                if known is None:
                    # All that are at hand; a turn without calls need not know them.
                    known = self._call_ids = {
                        part.call_id
                        for message in self._messages
                        for part in message.parts
                        if isinstance(part, ToolPart)
                    }
                # Behind a summary not all are at hand.
                is_partial = self._session.compacted_at > 0 or self._was_compacted
                if not part.call_id or is_partial or part.call_id in known:
                    part = msgspec.structs.replace(part, call_id=make_id("call"))
                known.add(part.call_id)
                calls += (part,)
            elif isinstance(part, FilePart):
                self._messages.has_files = True
            parts.append(part)
        is_assistant = message.role == "assistant"
        named = msgspec.structs.replace(
            message,
            id=message.id or make_id("msg"),
            session_id=self._session_id,
            run_id=self._run_id,
            agent=self._agent.name if is_assistant else message.agent,
            parts=tuple(parts),
            time_created=message.time_created or self._services.clock.now(),
        )
        fact = MessageCreated(message=strip_session(named))
        path = self._path if is_assistant else ""
        if may_wait or (is_assistant and not calls and not self._is_limited):
            self._turn.defer(fact, agent_path=path)
        else:
            await self._turn.append(fact, agent_path=path)
        self._messages.append(named)
        return calls

    def _replace_last(self, done: dict[str, ToolPart]) -> None:
        last = self._messages.last
        parts: list[Part] = []
        for part in last.parts:
            if isinstance(part, ToolPart):
                part = done.get(part.call_id, part)
                self._messages.has_files = self._messages.has_files or bool(part.attachments)
            parts.append(part)
        self._messages.replace_last(msgspec.structs.replace(last, parts=tuple(parts)))

    def _make_out_of_steps(self) -> BudgetExceeded:
        return BudgetExceeded(
            kind="step",
            scope=f"agent {self._agent.name}",
            used=self._steps,
            limit=self._agent.steps,
        )


def _apply_wishes(request: ModelRequest, client: ClientOptions, step: int) -> ModelRequest:
    """Return a request to a model with what the client of the run wishes for its answer."""
    wishes: dict[str, object] = {
        name: value
        for name in ("temperature", "top_p", "max_output_tokens")
        if (value := getattr(client, name)) is not None
    }
    if client.stop:
        wishes["stop"] = client.stop
    if client.reasoning_effort:
        wishes["reasoning_effort"] = client.reasoning_effort
    if client.output_schema is not None and request.output_schema is None:
        wishes |= {"output_schema": client.output_schema, "output_name": client.output_name}
    if client.instructions:
        added = f"\n\n{client.instructions}"
        wishes |= {"system": request.system + added, "changing": request.changing + len(added)}
    names = {"auto", "none", "required", *(tool.name for tool in request.tools)}
    # A choice for every step would call the tool for ever.
    if step <= 1 and client.tool_choice in names and request.tools:
        wishes["tool_choice"] = client.tool_choice
    return msgspec.structs.replace(request, **wishes)
