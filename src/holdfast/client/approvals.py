"""Approvals: list what waits for consent, look at it, consent or refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from holdfast.canonical import JsonObject
from holdfast.client.agents import AgentMethods
from holdfast.errors import ApprovalExpired, NotFound, UsageError
from holdfast.journal import Condition, Origin, Payload, RowQuery
from holdfast.policy.approvals import (
    APPROVALS,
    Approval,
    ApprovalStatus,
    same_person,
    seal_of,
    settles,
)
from holdfast.policy.events import ApprovalAnswered, ApprovalRequested
from holdfast.sessions import PermissionRule
from holdfast.sessions.events import SessionRulesAdded

_PAGE = 500


class ApprovalDetails(msgspec.Struct, frozen=True, kw_only=True):
    """An approval, what exactly is asked for, and what people said."""

    approval: Approval
    status: ApprovalStatus
    asked: ApprovalRequested
    answers: tuple[ApprovalAnswered, ...] = ()


class ApprovalMethods(AgentMethods):
    """What the client can do about calls that need consent."""

    async def list_approvals(
        self, *, status: ApprovalStatus | None = "open", session_id: str = "", limit: int = 100
    ) -> list[Approval]:
        """Return approvals, oldest first; those that wait for an answer unless told otherwise.

        `status=None` returns all. A request of a run that has ended waits for nobody.
        """
        if status is not None and status not in get_args(ApprovalStatus):
            told = ", ".join(get_args(ApprovalStatus))
            raise UsageError(detail=f"The status of an approval is one of {told}.")
        await self._ready()
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
            rows = [msgspec.structs.replace(k.row, status=k.row.status_at(now)) for k in page]
            rows = [row for row in rows if status in (None, row.status)]
            found += rows if status != "open" else await self._of_living_runs(rows)
            if len(page) < _PAGE:
                break
            after = (page[-1].row.time, page[-1].key)
        return found[:limit]

    async def _of_living_runs(self, rows: list[Approval]) -> list[Approval]:
        runs = {row.run_id: await self._turns.find(row.run_id) for row in rows}
        return [row for row in rows if (run := runs[row.run_id]) is None or not run.has_ended]

    async def get_approval(self, approval_id: str) -> ApprovalDetails:
        """Return an approval with the call that it is about.

        Raises:
            NotFound: there is none.
        """
        row = await self._approval(approval_id)
        numbers = [row.requested_at, *(vote.session_seq for vote in row.votes)]
        events = await self._journal.store.read(row.session_id, seqs=numbers)
        facts = [event.decode() for event in events]
        [asked] = [fact for fact in facts if isinstance(fact, ApprovalRequested)]
        return ApprovalDetails(
            approval=row,
            status=row.status_at(self._journal.clock.now()),
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

        `always` also writes the rules that `get_approval` shows (`asked.rules`) into the
        session, and into those of all agents above it. `arguments` replace those of the call:
        they are checked by the tool, judged by the rules and sealed anew.

        Raises:
            NotFound: there is no such approval.
            ApprovalExpired: it is too old, answered or used already.
            ToolInputInvalid: the arguments do not fit the tool.
            UsageError: no rule would be as narrow as the call, or nobody is named.
        """
        details = await self.get_approval(approval_id)
        rules = _rules_of(details) if always else ()
        if always and arguments is not None:
            raise UsageError(detail="`always` and other arguments cannot go together.")
        row = details.approval
        tool = self._tool_registry().find(row.tool)
        if tool is not None and arguments is not None:
            tool.validate(arguments)  # the gate does it again; here the person hears of it
        answer = ApprovalAnswered(
            approval_id=row.id,
            verdict="allow",
            by=by,
            seal=row.seal if arguments is None else seal_of(row, arguments),
            reason=reason,
            is_edited=arguments is not None,
            arguments=arguments,
            rules=rules,
        )
        return await self._answer(details, answer)

    async def deny(self, approval_id: str, *, by: str, reason: str = "") -> Approval:
        """Refuse a call; the model is told the reason, and the run goes on.

        Raises:
            NotFound: there is no such approval.
            ApprovalExpired: it is too old, answered or used already.
        """
        details = await self.get_approval(approval_id)
        row = details.approval
        answer = ApprovalAnswered(
            approval_id=row.id, verdict="deny", by=by, seal=row.seal, reason=reason
        )
        return await self._answer(details, answer)

    async def _answer(self, details: ApprovalDetails, answer: ApprovalAnswered) -> Approval:
        row = details.approval
        if not answer.by.strip():
            raise UsageError(detail="An answer needs the name of who gives it.")
        if details.status == "expired":
            # The run asks again when it goes on; without this it would wait forever.
            await self._turns.wake(row.run_id, cause=f"{row.id} expired", is_for_anyone=True)
        if details.status != "open":
            raise ApprovalExpired(approval_id=row.id, because=f"it is {details.status}")
        run = await self._turns.find(row.run_id)
        if run is not None and run.has_ended:
            raise ApprovalExpired(approval_id=row.id, because=f"its run is {run.status}")
        if any(same_person(vote.by, answer.by) for vote in row.votes):
            raise ApprovalExpired(approval_id=row.id, because=f"{answer.by} has answered already")
        facts: list[Payload] = [answer]
        if answer.rules:
            facts.append(SessionRulesAdded(rules=answer.rules, by=answer.by))
        cause = f"{answer.by} said: {answer.verdict}"
        if settles(row, answer):
            # Answer and wake-up are one: no crash can leave a run that waits for what is there.
            await self._turns.wake(row.run_id, cause=cause, is_for_anyone=True, answers=facts)
        else:
            origin = Origin(run_id=row.run_id, agent_path=row.agent_path)
            await self._journal.append(row.session_id, facts, origin=origin)
            if (await self._approval(row.id)).status != "open":
                # Somebody else answered at the same moment, and together it was enough.
                await self._turns.wake(row.run_id, cause=cause, is_for_anyone=True)
        row = await self._approval(row.id)
        if row.status != "open":
            await self._tell_above(row.session_id, cause, answer.rules, answer.by)
        return row

    async def _tell_above(
        self, session_id: str, cause: str, rules: Sequence[PermissionRule] = (), by: str = ""
    ) -> None:
        """Called after every answer on which a run goes on, with the rules that came with it.

        Here nobody stands above anybody; `OrchestrationMethods` knows who does.
        """

    async def _approval(self, approval_id: str) -> Approval:
        await self._ready()
        query = RowQuery(projection=APPROVALS, where=(Condition("id", "=", approval_id),), limit=1)
        found = await self._journal.rows(query)
        if not found:
            raise NotFound(kind="approval", value=approval_id)
        return found[0].row


def _rules_of(details: ApprovalDetails) -> tuple[PermissionRule, ...]:
    if details.asked.rules:
        return details.asked.rules
    what = (
        "more than one person has to consent"
        if details.approval.required > 1
        else ("no rule can be as narrow as this call")
    )
    raise UsageError(detail=f"There is no `always` for {details.approval.id}: {what}.")
