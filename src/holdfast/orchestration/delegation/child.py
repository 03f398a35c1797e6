"""One child: its session, its run, and its end, whatever happens.

Ids follow from the starter's, so that the same request after a crash finds the session and the
run that are there: a finished one gives its result, an unfinished one goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Sequence

import msgspec

from holdfast.agents import STATE_KEY, AgentResult, RunExecutor, RunRequest
from holdfast.canonical import JsonObject, digest
from holdfast.errors import AgentTimeout, AlreadyExists, HoldfastError, NotFound
from holdfast.hooks import Emitter, Silence, Where
from holdfast.journal import Payload
from holdfast.orchestration.delegation.limits import Census, DelegationLimits
from holdfast.policy import NO_BUDGET, Budget
from holdfast.runs import LINEAGE_KEY, Lineage, read_lineage
from holdfast.sessions import NewSession, Session, SessionManager, make_new_session
from holdfast.turns import TurnQueue, is_machine_fault

STOP_GRACE_S = 10.0
"""How long a child that was told to stop may take to do so."""
_TITLE = 60
_TOLD_CHARS = 200
_TOO_LONG = "it took longer than "

_left_behind: set[asyncio.Task[AgentResult]] = set()


class ChildRequest(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A run below another one; `key` is the same whenever the same one is meant.

    `parent` is the starter's session, which `above` speaks of. `pattern` is what the child's
    session begins like, where several requests share it (`make_pattern_session`). `seconds` are
    left to the starter.
    """

    key: str
    request: RunRequest
    above: Lineage
    parent: Session
    pattern: NewSession | None = None
    seconds: float | None = None

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.request.agent_name

    @functools.cached_property
    def run_id(self) -> str:
        """The id of the child's run."""
        return derive_id("run", self.key)


def derive_id(prefix: str, key: str) -> str:
    """Return an id that follows from a key, the same in every process."""
    return f"{prefix}_{digest(['child', prefix, key])[:26]}"


class Children:
    """Starts children and brings back a result from each."""

    def __init__(
        self,
        host: RunExecutor,
        sessions: SessionManager,
        turns: TurnQueue,
        *,
        limits: DelegationLimits | None = None,
        census: Census | None = None,
        bus: Emitter | None = None,
    ) -> None:
        """Let this host carry out runs in these sessions, within these limits.

        Subscribers of `bus` hear when each begins and ends.
        """
        self._bus: Emitter = bus or Silence()
        self.host = host
        self.sessions = sessions
        self.turns = turns
        self.limits = limits or DelegationLimits()
        self.census = census or Census(sessions.journal)

    async def admit(self, child: ChildRequest) -> AgentResult | None:
        """Count a child in; returns the result of one that may not begin.

        An unknown agent is one that may not.
        """
        try:
            if isinstance(child.request.agent, str) and (
                await self.host.get_agent(child.request.agent) is None
            ):
                raise NotFound(kind="agent", value=child.name)
            await self.census.admit(child.above, child.run_id, child.name, self.limits)
        except HoldfastError as error:
            return make_failed(child, error)
        return None

    async def begin(self, child: ChildRequest, facts: Sequence[Payload]) -> str:
        """Begin the child's own session with some facts in it, all at once; returns its id."""
        new = _make_session(child)
        with contextlib.suppress(AlreadyExists):
            await self.sessions.journal.append(new.id, [new.created, *facts], must_be_new=True)
        return new.id

    async def run(self, child: ChildRequest) -> AgentResult:
        """Run a child to its end, or to where it parks, and return its result.

        A failure is a result too. A caller that is cancelled takes the child with it.

        Raises:
            RunInterrupted: the machine failed, which says nothing about the work: the caller's run
                rests as well, and goes on with the child's when it is resumed.
        """
        self._tell(child, "started")
        status = "cancelled"
        try:
            result = await self._run_to_end(child)
            status = result.status
        finally:
            if status != "parked":
                self._tell(child, status)
        return result

    def _tell(self, child: ChildRequest, status: str) -> None:
        """Let subscribers know of a task: started, completed, failed or cancelled."""
        name = f"task.{status}"
        if self._bus.wants(name):
            above = child.above
            data: JsonObject = {
                "agent": child.name,
                "run_id": child.run_id,
                "parent_run_id": above.run_id,
                "task": child.request.message[:_TOLD_CHARS],
            }
            where = Where(
                session_id=above.session_id, run_id=above.run_id, agent_path="/".join(above.path)
            )
            self._bus.emit(name, data, where=where)

    async def _run_to_end(self, child: ChildRequest) -> AgentResult:
        try:
            return await self._run_in_time(child, await self._complete(child))
        except Exception as error:
            if is_machine_fault(error):
                raise
            if isinstance(error, HoldfastError):
                return make_failed(child, error)
            detail = f"{type(error).__name__}: {error}"
            return make_failed(child, HoldfastError(detail=detail))

    # --- inside -----------------------------------------------------------------------

    async def _complete(self, child: ChildRequest) -> RunRequest:
        """Return the run to start: in a session of its own, or in that of an earlier call."""
        asked = child.request
        return msgspec.structs.replace(
            asked,
            session_id=(await self._find_known(child)).id if asked.session_id else "",
            new_session=None if asked.session_id else _make_session(child),
            run_id=child.run_id,
            budget=_limit_within(asked.budget or NO_BUDGET, child.seconds),
            starter=child.above.starter,
        )

    async def _find_known(self, child: ChildRequest) -> Session:
        """Return the session of an earlier child, now below the caller that asks now.

        Raises:
            NotFound: it is no child of the same session.
        """
        session = await self.sessions.get_session(child.request.session_id)
        before = read_lineage(session)
        if before is None or before.session_id != child.above.session_id:
            raise NotFound(kind="child session", value=child.request.session_id)
        now = child.above.to_metadata()
        if session.metadata[LINEAGE_KEY] == now[LINEAGE_KEY]:
            return session
        if await self.turns.find(child.run_id) is not None:
            return session
        return await self.sessions.update_session(session.id, metadata=now)

    async def _run_in_time(self, child: ChildRequest, request: RunRequest) -> AgentResult:
        limit = self.limits.time_s
        if child.seconds is not None:
            limit = min(limit, child.seconds)
        task = asyncio.create_task(self.host.execute(request))
        try:
            await asyncio.wait((task,), timeout=limit)
            if not task.done() and await self.turns.find(child.run_id) is not None:
                # By way of the journal, so that it ends wherever it is executed.
                await self.turns.cancel(child.run_id, reason=f"{_TOO_LONG}{limit:g} s")
                await asyncio.wait((task,), timeout=STOP_GRACE_S)
        except asyncio.CancelledError:
            await _stop(task)
            raise
        if not task.done():
            await _stop(task)
            return _make_timed_out(child, request, limit)
        if task.cancelled():
            return _make_timed_out(child, request, limit)
        return _as_told(child, task.result())


def make_pattern_session(
    above: Lineage, parent: Session, state: JsonObject | None = None
) -> NewSession:
    """Return what sessions below a parent begin like; each gets its own title and id."""
    metadata: JsonObject = {**above.to_metadata()}
    if state:
        metadata[STATE_KEY] = state
    return make_new_session(
        "Below another",
        project_id=parent.project_id,
        directory=parent.directory,
        parent_id=parent.id,
        metadata=metadata,
        owner=parent.owner,
    )


def _make_session(child: ChildRequest) -> NewSession:
    """Return the child's own session; one that a crash left has the same id."""
    pattern = child.pattern or make_pattern_session(child.above, child.parent, child.request.state)
    title = " ".join(child.request.message.split())[:_TITLE] or f"Task for {child.name}"
    return pattern.named(title, derive_id("ses", child.key))


async def _stop(task: asyncio.Task[AgentResult]) -> None:
    """Stop a child and wait a little; one that goes on is left behind."""
    task.cancel()
    _left_behind.add(task)
    task.add_done_callback(_forget)
    await asyncio.wait((task,), timeout=STOP_GRACE_S)


def _forget(task: asyncio.Task[AgentResult]) -> None:
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()


def _limit_within(budget: Budget, seconds: float | None) -> Budget | None:
    """Return the budget with no more time than is left to the caller."""
    if seconds is not None:
        limit = seconds if budget.max_wall_s is None else min(budget.max_wall_s, seconds)
        budget = msgspec.structs.replace(budget, max_wall_s=limit)
    return budget if budget.has_limits else None


def _as_told(child: ChildRequest, result: AgentResult) -> AgentResult:
    """Return the result; one that ended by its time limit says so, in every process."""
    reason = str(result.metadata.get("reason", ""))
    if result.status != "cancelled" or not reason.startswith(_TOO_LONG):
        return result
    limit = reason.removeprefix(_TOO_LONG).removesuffix(" s")
    error = AgentTimeout(agent=child.name, limit_s=limit)
    told = {**result.metadata, "reason": "timeout", "error": error.to_dict()}
    return msgspec.structs.replace(result, metadata=told)


def _make_timed_out(child: ChildRequest, request: RunRequest, limit: float) -> AgentResult:
    error = AgentTimeout(agent=child.name, limit_s=f"{limit:g}")
    return AgentResult(
        agent_name=child.name,
        response="",
        status="cancelled",
        metadata={"reason": "timeout", "error": error.to_dict()},
        run_id=child.run_id,
        session_id=request.place,
    )


def make_failed(child: ChildRequest, error: HoldfastError) -> AgentResult:
    """Return the result of a child that could not run."""
    return AgentResult(
        agent_name=child.name,
        response="",
        status="failed",
        metadata={"error": error.to_dict()},
        run_id=child.run_id,
    )
