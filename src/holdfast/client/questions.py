"""What waits for a person: consent to calls, unknown outcomes, questions of agents."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.canonical import JsonObject
from holdfast.client.approvals import ApprovalDetails, ApprovalMethods
from holdfast.errors import NotFound
from holdfast.journal import Condition, Payload, RowQuery
from holdfast.sessions import RUNS, Run
from holdfast.tools import ToolResult
from holdfast.tools.events import ToolAnswered, ToolOutcomeDecided
from holdfast.tools.ledger import CallRecord, read_records


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


class QuestionMethods(ApprovalMethods):
    """What the client can do about calls that wait for a person."""

    async def open_questions(self) -> list[OpenQuestion]:
        """Return everything that waits for a person: consent first, then the oldest run."""
        found = [_consent(await self.get_approval(row.id)) for row in await self.list_approvals()]
        return found + await self._open_calls()

    async def _open_calls(self) -> list[OpenQuestion]:
        query = RowQuery(
            projection=RUNS,
            where=(Condition("status", "=", "parked"),),
            order="time_queued",
            limit=1000,
        )
        found: list[OpenQuestion] = []
        for keyed in await self._journal.rows(query):
            run = keyed.row
            records = await read_records(self._journal, run.session_id, after=run.queued_at)
            found += [
                _question(run, call_id, record)
                for call_id, record in records.items()
                if record.is_waiting
            ]
        return found

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

        `happened` takes the result to show to the model; `not_happened` lets the call run
        again; `abort` tells the model that it was given up.

        Raises:
            NotFound: no such call waits for a verdict.
        """
        question = await self._waiting(session_id, call_id, "unknown_outcome")
        decided = ToolOutcomeDecided(
            call_id=call_id,
            verdict=verdict,
            decided_by=by,
            result=ToolResult(result) if result else None,
        )
        return await self._wake_with(question, decided, f"{by} said: {verdict}")

    async def answer_question(self, session_id: str, call_id: str, answer: str, *, by: str) -> Run:
        """Answer an agent's question; its run goes on with the answer as the result.

        Raises:
            NotFound: no such call waits for an answer.
        """
        question = await self._waiting(session_id, call_id, "")
        answered = ToolAnswered(call_id=call_id, answered_by=by, result=ToolResult(answer))
        return await self._wake_with(question, answered, f"{by} answered")

    async def _wake_with(self, question: OpenQuestion, answer: Payload, cause: str) -> Run:
        run = await self._turns.wake(
            question.run_id, cause=cause, is_for_anyone=True, answers=[answer]
        )
        await self._tell_above(question.session_id, cause)
        return run

    async def _waiting(self, session_id: str, call_id: str, reason: str) -> OpenQuestion:
        for question in await self._open_calls():
            is_it = (question.session_id, question.call_id) == (session_id, call_id)
            if is_it and reason in ("", question.reason):
                return question
        raise NotFound(kind="open question", value=call_id)


def _consent(details: ApprovalDetails) -> OpenQuestion:
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


def _question(run: Run, call_id: str, record: CallRecord) -> OpenQuestion:
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
