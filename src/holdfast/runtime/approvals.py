"""What waits for a person: consent to calls, unknown outcomes, questions of agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import ApprovalConflict, ApprovalExpired, NotFound, UsageError
from holdfast.journal import Condition, Origin, Payload, RowQuery
from holdfast.policy import (
    APPROVALS,
    Approval,
    ApprovalAnswered,
    ApprovalRequested,
    ApprovalStatus,
    clean_person,
    is_same_person,
    seal_approval,
    settles,
)
from holdfast.runs import CLIENT_CALL, list_runs_below
from holdfast.runtime.runs import RunService
from holdfast.runtime.toolbox import ToolService
from holdfast.sessions import RUNS, PermissionRule, Run, SessionManager, SessionRulesAdded
from holdfast.tools import (
    NOTHING_KNOWN,
    CallRecord,
    ToolAnswered,
    ToolOutcomeDecided,
    ToolResult,
    read_records,
)
from holdfast.turns import TurnQueue

_PAGE = 500


class ApprovalDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An approval, what exactly is asked for, and what people said."""

    approval: Approval
    status: ApprovalStatus
    asked: ApprovalRequested
    answers: tuple[ApprovalAnswered, ...] = ()


class OpenQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A call that waits for a person; `reason` says for what.

    `id` is what to answer with: an approval's id, or else the id of the call.
    """

    id: str
    session_id: str
    run_id: str
    call_id: str
    tool: str
    reason: str
    request: JsonObject
    agent_path: str = ""
    """The agents from the first one down to the one that waits, as `lead/helper`."""


class ClientResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a call that the client of a run has executed."""

    output: str
    is_error: bool = False


class ApprovalService:
    """Lists what waits for a person, and takes the answers."""

    def __init__(
        self, sessions: SessionManager, turns: TurnQueue, runs: RunService, toolbox: ToolService
    ) -> None:
        """Answer for runs of these sessions."""
        self._sessions = sessions
        self._journal = sessions.journal
        self._turns = turns
        self._runs = runs
        self._toolbox = toolbox

    async def find(
        self, *, status: ApprovalStatus | None = "open", session_id: str = "", limit: int = 100
    ) -> list[Approval]:
        """Return approvals, oldest first; those that wait for an answer unless told otherwise.

        `status=None` returns all. A request of a run that has ended waits for no answer.
        """
        if status is not None and status not in get_args(ApprovalStatus):
            told = ", ".join(get_args(ApprovalStatus))
            raise UsageError(detail=f"The status of an approval is one of {told}.")
        now = self._journal.clock.now()
        where: tuple[Condition, ...] = ()
        if status == "expired":
            where = (Condition("expires_at", "<=", now),)
        elif status is not None:
            where = (Condition("status", "=", status),)
        if status == "open":
            where += (Condition("expires_at", ">", now),)
        found: list[Approval] = []
        after: tuple[float, str] | None = None
        while len(found) < limit:
            page = await self._journal.rows(
                RowQuery(
                    projection=APPROVALS,
                    session_id=session_id,
                    where=where,
                    order="time",
                    after=after,
                    limit=_PAGE,
                )
            )
            rows = [msgspec.structs.replace(k.row, status=k.row.find_status_at(now)) for k in page]
            rows = [row for row in rows if status in (None, row.status)]
            found += rows if status != "open" else await self._select_of_living_runs(rows)
            if len(page) < _PAGE:
                break
            after = (page[-1].row.time, page[-1].key)
        return found[:limit]

    async def _select_of_living_runs(self, rows: list[Approval]) -> list[Approval]:
        runs = {row.run_id: await self._turns.find(row.run_id) for row in rows}
        return [row for row in rows if (run := runs[row.run_id]) is None or not run.has_ended]

    async def get(self, approval_id: str) -> ApprovalDetails:
        """Return an approval with the call that it is about.

        What it promises and raises stands at the operation `approvals.get`.
        """
        row = await self._make_approval(approval_id)
        numbers = [row.requested_at, *(vote.session_seq for vote in row.votes)]
        events = await self._journal.store.read(row.session_id, seqs=numbers)
        facts = [event.decode() for event in events]
        [asked] = [fact for fact in facts if isinstance(fact, ApprovalRequested)]
        return ApprovalDetails(
            approval=row,
            status=row.find_status_at(self._journal.clock.now()),
            asked=asked,
            answers=tuple(fact for fact in facts if isinstance(fact, ApprovalAnswered)),
        )

    async def approve(
        self,
        approval_id: str,
        *,
        by: str,
        always: bool = False,
        arguments: JsonObject | None = None,
        reason: str = "",
    ) -> Approval:
        """Consent to a call; its run, and those that wait for it, go on once enough people have.

        What it promises and raises stands at the operation `approvals.approve`.
        """
        details = await self.get(approval_id)
        rules = _list_rules(details) if always else ()
        if always and arguments is not None:
            raise UsageError(detail="`always` and other arguments cannot go together.")
        row = details.approval
        tool = self._toolbox.registry.find(row.tool)
        if tool is not None and arguments is not None:
            tool.validate(arguments)  # the gate does it again; here the person hears of it
        answer = ApprovalAnswered(
            approval_id=row.id,
            verdict="allow",
            by=by,
            seal=row.seal if arguments is None else seal_approval(row, arguments),
            reason=reason,
            is_edited=arguments is not None,
            arguments=arguments,
            rules=rules,
        )
        return await self._answer(details, answer)

    async def deny(self, approval_id: str, *, by: str, reason: str = "") -> Approval:
        """Refuse a call; the model is told the reason, and the run goes on.

        What it promises and raises stands at the operation `approvals.deny`.
        """
        details = await self.get(approval_id)
        row = details.approval
        answer = ApprovalAnswered(
            approval_id=row.id, verdict="deny", by=by, seal=row.seal, reason=reason
        )
        return await self._answer(details, answer)

    async def _answer(self, details: ApprovalDetails, answer: ApprovalAnswered) -> Approval:
        row = details.approval
        answer = msgspec.structs.replace(answer, by=clean_person(answer.by))
        if details.status == "expired":
            # The run asks again when it goes on; without this it would wait forever.
            await self._turns.wake(row.run_id, cause=f"{row.id} expired", is_for_any_process=True)
        if details.status != "open":
            raise ApprovalExpired(approval_id=row.id, because=f"it is {details.status}")
        run = await self._turns.find(row.run_id)
        if run is not None and run.has_ended:
            raise ApprovalExpired(approval_id=row.id, because=f"its run is {run.status}")
        if any(is_same_person(vote.by, answer.by) for vote in row.votes):
            raise ApprovalExpired(approval_id=row.id, because=f"{answer.by} has answered already")
        facts: list[Payload] = [answer]
        if answer.rules:
            facts.append(SessionRulesAdded(rules=answer.rules, by=answer.by))
        cause = f"{answer.by} said: {answer.verdict}"
        if settles(row, answer):
            # Answer and wake-up are one: no crash can leave a run that waits for what is there.
            await self._turns.wake(row.run_id, cause=cause, is_for_any_process=True, answers=facts)
        else:
            origin = Origin(run_id=row.run_id, agent_path=row.agent_path)
            await self._journal.append(row.session_id, facts, origin=origin)
            if (await self._make_approval(row.id)).status != "open":
                # Another process answered at the same moment, and together it was enough.
                await self._turns.wake(row.run_id, cause=cause, is_for_any_process=True)
        row = await self._make_approval(row.id)
        await self._check_counted(row, answer)
        if row.status != "open":
            await self._runs.tell_above(row.session_id, cause, answer.rules, answer.by)
        return row

    async def _check_counted(self, row: Approval, answer: ApprovalAnswered) -> None:
        """Do nothing if the answer took part in what was decided.

        Raises:
            ApprovalConflict: another one settled it at the same moment; rules that came with this
                one are taken back.
        """
        is_counted = any((v.by, v.verdict) == (answer.by, answer.verdict) for v in row.votes)
        if is_counted or row.status == "open":
            return
        if answer.rules:
            session = await self._sessions.get_session(row.session_id)
            kept = list(session.permission)
            for rule in answer.rules:
                if rule in kept:
                    kept.reverse()
                    kept.remove(rule)
                    kept.reverse()
            await self._sessions.update_session(row.session_id, permission=kept)
        won = row.decisive
        raise ApprovalConflict(
            approval_id=row.id,
            by=won.by if won is not None else "another process",
            verdict=won.verdict if won is not None else row.status,
        )

    async def _make_approval(self, approval_id: str) -> Approval:
        query = RowQuery(projection=APPROVALS, where=(Condition("id", "=", approval_id),), limit=1)
        found = await self._journal.rows(query)
        if not found:
            raise NotFound(kind="approval", value=approval_id)
        return found[0].row

    async def questions(self) -> list[OpenQuestion]:
        """Return everything that waits for a person: consent first, then the oldest run."""
        found = [_make_consent(await self.get(row.id)) for row in await self.find()]
        return [*found, *(await self._open_calls())]

    async def _open_calls(self) -> list[OpenQuestion]:
        query = RowQuery(
            projection=RUNS,
            where=(Condition("status", "=", "parked"),),
            order="time_queued",
            limit=1000,
        )
        found: list[OpenQuestion] = []
        for keyed in await self._journal.rows(query):
            found += await self._list_open_calls(keyed.row)
        return found

    async def _list_open_calls(self, run: Run) -> list[OpenQuestion]:
        records = await read_records(self._journal, run.session_id, after=run.queued_at)
        return [
            _make_question(run, call_id, record)
            for call_id, record in records.items()
            if record.is_waiting
        ]

    async def waiting(self, run_id: str) -> list[OpenQuestion]:
        """Return what a run, or one below it, waits for; consent first."""
        found: list[OpenQuestion] = []
        below = [child.id for child in await list_runs_below(self._journal, run_id)]
        for run in [await self._turns.get(run_id), *[await self._turns.find(b) for b in below]]:
            if run is None or run.has_ended:
                continue
            rows = await self.find(session_id=run.session_id)
            found += [_make_consent(await self.get(row.id)) for row in rows if row.run_id == run.id]
            if run.status == "parked":
                found += await self._list_open_calls(run)
        return found

    async def answer_calls(
        self, run_id: str, results: Mapping[str, ClientResult], *, by: str
    ) -> Run:
        """Keep results of a client's calls, and let the run go on.

        What it promises and raises stands at the operation `runs.answer_calls`.
        """
        run = await self._turns.get(run_id)
        records = await read_records(self._journal, run.session_id, after=run.queued_at)
        answers: list[Payload] = []
        for call_id, result in results.items():
            record = records.get(call_id, NOTHING_KNOWN)
            if record.parked is None or record.parked.reason != CLIENT_CALL:
                raise NotFound(kind="call of the client", value=call_id)
            if record.answered is None and record.ended is None:
                text = ToolResult(result.output, is_error=result.is_error)
                answers.append(ToolAnswered(call_id=call_id, answered_by=by, result=text))
        if not answers:
            return run
        if run.has_ended:
            raise NotFound(kind="call of the client", value=next(iter(results)))
        return await self._turns.wake(
            run_id, cause=f"{by} sent results", is_for_any_process=True, answers=answers
        )

    async def decide_outcome(
        self,
        session_id: str,
        call_id: str,
        verdict: Literal["happened", "not_happened", "abort"],
        *,
        by: str,
        result: str = "",
    ) -> Run:
        """Say what became of a call whose outcome a crash left unknown; its run goes on.

        What it promises and raises stands at the operation `approvals.decide_outcome`.
        """
        question = await self._find_waiting(session_id, call_id, "unknown_outcome")
        decided = ToolOutcomeDecided(
            call_id=call_id,
            verdict=verdict,
            decided_by=by,
            result=ToolResult(result) if result else None,
        )
        return await self._wake_with(question, decided, f"{by} said: {verdict}")

    async def answer(self, session_id: str, call_id: str, answer: str, *, by: str) -> Run:
        """Answer an agent's question; its run goes on with the answer as the result.

        What it promises and raises stands at the operation `approvals.answer`.
        """
        question = await self._find_waiting(session_id, call_id, "")
        answered = ToolAnswered(call_id=call_id, answered_by=by, result=ToolResult(answer))
        return await self._wake_with(question, answered, f"{by} answered")

    async def find_answered(
        self, session_id: str, call_id: str, *, by: str, said: str
    ) -> Run | None:
        """Return the run of a call to which this person has said exactly this; else `None`."""
        kinds = frozenset({ToolOutcomeDecided.kind, ToolAnswered.kind})
        after = 0
        while page := await self._journal.read(session_id, after=after, limit=_PAGE, kinds=kinds):
            after = page[-1].session_seq
            for event in page:
                fact = event.decode()
                is_same = (
                    (fact.decided_by, fact.verdict) == (by, said)
                    if isinstance(fact, ToolOutcomeDecided)
                    else isinstance(fact, ToolAnswered)
                    and (fact.answered_by, fact.result) == (by, ToolResult(said))
                )
                if is_same and fact.call_id == call_id:  # type: ignore[attr-defined]
                    return await self._turns.find(event.run_id)
        return None

    async def _wake_with(self, question: OpenQuestion, answer: Payload, cause: str) -> Run:
        run = await self._turns.wake(
            question.run_id, cause=cause, is_for_any_process=True, answers=[answer]
        )
        await self._runs.tell_above(question.session_id, cause)
        return run

    async def _find_waiting(self, session_id: str, call_id: str, reason: str) -> OpenQuestion:
        for question in await self._open_calls():
            is_it = (question.session_id, question.call_id) == (session_id, call_id)
            if is_it and reason in ("", question.reason):
                return question
        raise NotFound(kind="open question", value=call_id)


def _list_rules(details: ApprovalDetails) -> tuple[PermissionRule, ...]:
    if details.asked.rules:
        return details.asked.rules
    what = (
        "more than one person has to consent"
        if details.approval.required > 1
        else ("no rule can be as narrow as this call")
    )
    raise UsageError(detail=f"There is no `always` for {details.approval.id}: {what}.")


def _make_consent(details: ApprovalDetails) -> OpenQuestion:
    row, asked = details.approval, details.asked
    return OpenQuestion(
        id=row.id,
        session_id=row.session_id,
        run_id=row.run_id,
        call_id=row.call_id,
        tool=row.tool,
        reason="approval",
        request={
            "arguments": asked.arguments,
            "targets": list(asked.targets),
            "because": asked.decision.explain() if asked.decision.because else "",
            "expires_at": row.expires_at,
        },
        agent_path=row.agent_path,
    )


def _make_question(run: Run, call_id: str, record: CallRecord) -> OpenQuestion:
    if record.parked is not None and record.answered is None:
        tool, reason, request = record.parked.tool, record.parked.reason, record.parked.request
    else:
        assert record.unknown is not None
        tool, reason = record.unknown.tool, "unknown_outcome"
        request = {"question": record.unknown.question}
        if record.started is not None:
            request["arguments"] = record.started.intent.arguments
    return OpenQuestion(
        id=call_id,
        session_id=run.session_id,
        run_id=run.id,
        call_id=call_id,
        tool=tool,
        reason=reason,
        request=request,
        agent_path=run.agent,
    )
