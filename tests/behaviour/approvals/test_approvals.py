"""A run that needs consent parks, and goes on once a person has answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.agents import AgentResult
from holdfast.errors import (
    ApprovalConflict,
    ApprovalExpired,
    NotFound,
    ToolInputInvalid,
    UsageError,
)
from holdfast.journal import Origin
from holdfast.messages import ToolPart
from holdfast.policy.approvals import Approval, ApprovalTerms
from holdfast.policy.events import ApprovalAnswered
from holdfast.runs import AgentRuntime
from holdfast.sessions import PermissionRule
from holdfast.settings import Settings, load_settings
from holdfast.testing import FakeClock, ScriptedModel, run_services, tool_call
from holdfast.tools import Tool, ToolRegistry
from holdfast.tools.events import ToolOutcomeDecided
from holdfast.tools.gate import ApprovalAnswer, ApprovalRequest


class Disk:
    """The outside world: what was deleted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def tool(self) -> Tool:
        @tool(permission="ask", target="path")
        async def delete(path: str) -> str:
            """Delete a file."""
            self.deleted.append(path)
            return f"deleted {path}"

        return delete


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(tmp_path / "state") as opened:
        yield opened


class Case:
    """One agent with one dangerous tool, parked before it."""

    def __init__(self, client: AsyncClient, *answers: object) -> None:
        self.client = client
        self.disk = Disk()
        script = answers or (tool_call("delete", path="a.txt"), "done")
        self.model = ScriptedModel(*script)  # type: ignore[arg-type]
        self.agent = Agent("janitor", model=self.model, tools=[self.disk.tool()])

    async def run(self, run_id: str = "job", session: str = "") -> AgentResult:
        return await self.client.execute_agent(
            self.agent, session, "clean up", run_id=run_id, on_ask="park"
        )

    async def park(self) -> Approval:
        parked = await self.run()
        assert (parked.status, parked.metadata["reason"]) == ("parked", "approval")
        assert self.disk.deleted == []
        [approval] = await self.client.approvals.list()
        return approval

    def result(self) -> ToolPart:
        [part] = self.model.requests[-1].messages[-1].tool_calls
        return part


async def kinds(client: AsyncClient, session_id: str) -> list[str]:
    return [event.kind for event in await client.events.list(session_id, limit=1000)]


async def test_consent_lets_the_call_run_once_in_the_transaction_that_uses_it(
    client: AsyncClient,
) -> None:
    case = Case(client)
    approval = await case.park()
    answered = await client.approvals.approve(approval.id, by="ann")
    assert answered.status == "approved"
    assert (await case.run()).response == "done"
    assert case.disk.deleted == ["a.txt"]
    journal = await kinds(client, approval.session_id)
    place = journal.index("approval.used")
    assert journal[place : place + 2] == ["approval.used", "tool.started"]
    assert (await client.approvals.get(approval.id)).status == "used"
    assert await client.approvals.questions() == []


async def test_parked_run_that_nobody_answered_parks_again_without_asking_twice(
    client: AsyncClient,
) -> None:
    case = Case(client)
    approval = await case.park()
    turns = await client.runs.turns()
    await turns.wake("job", cause="curious")
    assert (await case.run()).status == "parked"
    assert [row.id for row in await client.approvals.list()] == [approval.id]


async def test_reason_of_a_refusal_reaches_the_model(client: AsyncClient) -> None:
    case = Case(client)
    approval = await case.park()
    await client.approvals.deny(approval.id, by="ann", reason="that file is precious")
    assert (await case.run()).response == "done"
    assert case.disk.deleted == []
    assert case.result().state == "error"
    assert "that file is precious" in case.result().error
    assert (await client.approvals.get(approval.id)).status == "denied"


async def test_edited_arguments_are_what_runs(client: AsyncClient) -> None:
    case = Case(client)
    approval = await case.park()
    await client.approvals.approve(approval.id, by="ann", arguments={"path": "b.txt"})
    await case.run()
    assert case.disk.deleted == ["b.txt"]
    assert case.result().input == {"path": "b.txt"}
    assert "ann" in case.result().output


async def test_edited_arguments_that_do_not_fit_the_tool_run_nothing(client: AsyncClient) -> None:
    case = Case(client)
    approval = await case.park()
    await client.approvals.approve(approval.id, by="ann", arguments={"file": "b.txt"})
    assert (await case.run()).response == "done"
    assert case.disk.deleted == []
    assert case.result().state == "error"


async def test_known_tool_refuses_bad_arguments_while_the_person_is_there(
    client: AsyncClient,
) -> None:
    case = Case(client)
    await client.register_tool(case.disk.tool())
    case.agent = Agent("janitor", model=case.model, allowed_tools=["delete"])
    approval = await case.park()
    with pytest.raises(ToolInputInvalid):
        await client.approvals.approve(approval.id, by="ann", arguments={"file": "b.txt"})


async def test_edit_does_not_lift_a_deny(client: AsyncClient) -> None:
    case = Case(client)
    rules = [{"permission": "delete", "pattern": "secret*", "action": "deny"}]
    case.agent = Agent("janitor", model=case.model, tools=[case.disk.tool()], permission=rules)
    approval = await case.park()
    await client.approvals.approve(approval.id, by="ann", arguments={"path": "secret.txt"})
    await case.run()
    assert case.disk.deleted == []
    assert case.result().state == "error"


async def test_second_answer_is_refused_and_changes_nothing(client: AsyncClient) -> None:
    case = Case(client)
    approval = await case.park()
    await client.approvals.deny(approval.id, by="ann")
    with pytest.raises(ApprovalExpired) as caught:
        await client.approvals.approve(approval.id, by="bob")
    assert caught.value.code == "approval.expired"
    await case.run()
    assert case.disk.deleted == []


async def test_used_approval_is_not_used_for_the_next_equal_call(client: AsyncClient) -> None:
    call = tool_call("delete", path="a.txt")
    case = Case(client, call, call, "done")
    first = await case.park()
    await client.approvals.approve(first.id, by="ann")
    assert (await case.run()).status == "parked"
    [second] = await client.approvals.list()
    assert second.id != first.id
    assert case.disk.deleted == ["a.txt"]
    with pytest.raises(ApprovalExpired):
        await client.approvals.approve(first.id, by="ann")


async def test_answer_with_the_seal_of_another_call_has_no_weight(client: AsyncClient) -> None:
    case = Case(client)
    approval = await case.park()
    forged = ApprovalAnswered(approval_id=approval.id, verdict="allow", by="eve", seal="0" * 64)
    edited = msgspec.structs.replace(
        forged, is_edited=True, arguments={"path": "/"}, seal=approval.seal
    )
    journal = await client.storage.journal()
    origin = Origin(run_id=approval.run_id)
    await journal.append(approval.session_id, [forged, edited], origin=origin)
    await (await client.runs.turns()).wake("job", cause="forged")
    assert (await case.run()).status == "parked"
    assert case.disk.deleted == []


async def test_verdict_about_a_call_that_never_began_does_not_run_it(client: AsyncClient) -> None:
    case = Case(client)
    approval = await case.park()
    verdict = ToolOutcomeDecided(call_id=approval.call_id, verdict="not_happened", decided_by="eve")
    await (await client.storage.journal()).append(approval.session_id, [verdict])
    await (await client.runs.turns()).wake("job", cause="forged")
    assert (await case.run()).status == "parked"
    assert case.disk.deleted == []


async def test_always_writes_a_rule_that_lifts_later_asks_of_the_same_target(
    client: AsyncClient,
) -> None:
    calls = [tool_call("delete", path=name) for name in ("a.txt", "a.txt", "b.txt")]
    case = Case(client, *calls, "done")
    approval = await case.park()
    details = await client.approvals.get(approval.id)
    assert details.asked.rules == (
        PermissionRule(permission="delete", pattern="a.txt", action="allow"),
    )
    await client.approvals.approve(approval.id, by="ann", always=True)
    assert (await client.get_session(approval.session_id)).permission == details.asked.rules
    assert (await case.run()).status == "parked"
    assert case.disk.deleted == ["a.txt", "a.txt"]
    [other] = await client.approvals.list()
    assert (await client.approvals.get(other.id)).asked.arguments == {"path": "b.txt"}


async def test_always_does_not_lift_a_deny(client: AsyncClient) -> None:
    case = Case(client)
    approval = await case.park()
    await client.approvals.approve(approval.id, by="ann", always=True)
    await case.run()
    strict = Case(client)
    strict.agent = Agent(
        "janitor",
        model=strict.model,
        tools=[strict.disk.tool()],
        permission=[{"permission": "delete", "action": "deny"}],
    )
    result = await strict.run("other", approval.session_id)
    assert (result.status, strict.disk.deleted) == ("completed", [])


async def test_always_is_not_offered_where_the_rule_would_be_wider_than_the_call(
    client: AsyncClient,
) -> None:
    case = Case(client, tool_call("delete", path="*.txt"), "done")
    approval = await case.park()
    with pytest.raises(UsageError):
        await client.approvals.approve(approval.id, by="ann", always=True)


def two_people() -> Settings:
    plain = load_settings().settings
    approvals = plain.approvals.model_copy(update={"required": 2})
    return plain.model_copy(update={"approvals": approvals})


async def test_two_people_are_needed_where_the_terms_say_so(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path, settings=two_people()) as client:
        case = Case(client)
        approval = await case.park()
        assert (await client.approvals.approve(approval.id, by="ann")).status == "open"
        with pytest.raises(ApprovalExpired):
            await client.approvals.approve(approval.id, by=" ANN ")
        assert (await case.run()).status == "parked"
        assert (await client.approvals.approve(approval.id, by="bob")).status == "approved"
        await case.run()
        assert case.disk.deleted == ["a.txt"]


async def test_two_people_who_want_different_arguments_do_not_add_up(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path, settings=two_people()) as client:
        case = Case(client)
        approval = await case.park()
        await client.approvals.approve(approval.id, by="ann", arguments={"path": "b.txt"})
        assert (await client.approvals.approve(approval.id, by="bob")).status == "open"
        with pytest.raises(UsageError):
            await client.approvals.approve(approval.id, by="cleo", always=True)
        await client.approvals.approve(approval.id, by="cleo", arguments={"path": "b.txt"})
        await case.run()
        assert case.disk.deleted == ["b.txt"]


async def test_request_of_a_cancelled_run_waits_for_nobody(client: AsyncClient) -> None:
    case = Case(client)
    approval = await case.park()
    await client.runs.cancel("job", reason="enough")
    assert await client.approvals.list() == []
    assert len(await client.approvals.list(status=None)) == 1
    with pytest.raises(ApprovalExpired):
        await client.approvals.approve(approval.id, by="ann", always=True)
    assert (await client.approvals.get(approval.id)).approval.votes == ()
    with pytest.raises(UsageError):
        await client.approvals.list(status="opne")  # type: ignore[arg-type]


async def test_unknown_approval_and_an_answer_without_a_name_are_refused(
    client: AsyncClient,
) -> None:
    with pytest.raises(NotFound):
        await client.approvals.approve("apr_unknown", by="ann")
    approval = await Case(client).park()
    with pytest.raises(UsageError):
        await client.approvals.approve(approval.id, by=" ")


async def test_two_calls_of_one_answer_wait_apart(client: AsyncClient) -> None:
    both = [tool_call("delete", path="a.txt"), tool_call("delete", path="b.txt")]
    case = Case(client, both, "done")
    await case.run()
    first, second = await client.approvals.list()
    await client.approvals.approve(second.id, by="ann")
    assert (await case.run()).status == "parked"
    assert case.disk.deleted == ["b.txt"]
    await client.approvals.deny(first.id, by="ann")
    assert (await case.run()).response == "done"
    assert case.disk.deleted == ["b.txt"]


class _Attends:
    """Somebody who gives prepared answers while the run waits."""

    def __init__(self, *answers: ApprovalAnswer | None) -> None:
        self._answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        self.asked.append(request)
        return self._answers.pop(0)


async def test_person_who_attends_may_write_a_rule_that_holds_at_once(client: AsyncClient) -> None:
    both = [tool_call("delete", path="a.txt"), tool_call("delete", path="b.txt")]
    case = Case(client, both, "done")
    rule = PermissionRule(permission="delete", pattern="*", action="allow")
    client.approver = _Attends(ApprovalAnswer(verdict="allow", by="ann", rules=(rule,)))
    result = await case.run()
    assert sorted(case.disk.deleted) == ["a.txt", "b.txt"]
    assert (await client.get_session(result.session_id)).permission == (rule,)


async def test_person_who_attends_may_edit_or_stop(client: AsyncClient) -> None:
    calls = [tool_call("delete", path="a.txt"), tool_call("delete", path="b.txt")]
    case = Case(client, *calls, "never asked")
    client.approver = _Attends(
        ApprovalAnswer(verdict="allow", by="ann", arguments={"path": "c.txt"}),
        ApprovalAnswer(verdict="stop", by="ann"),
    )
    result = await case.run()
    assert result.status == "cancelled"
    assert (case.disk.deleted, len(case.model.requests)) == (["c.txt"], 2)
    page = await client.list_messages(result.session_id)
    assert all(part.state != "pending" for m in page.items for part in m.tool_calls)


async def test_attendant_who_left_makes_the_run_park(client: AsyncClient) -> None:
    client.approver = _Attends(None)
    case = Case(client)
    approval = await case.park()
    client.approver = _Attends(ApprovalAnswer(verdict="allow", by="bob"))
    await (await client.runs.turns()).wake("job", cause="bob came")
    await case.run()
    assert case.disk.deleted == ["a.txt"]
    assert (await client.approvals.get(approval.id)).approval.votes[0].by == "bob"


async def test_doom_loop_waits_for_consent_too(client: AsyncClient) -> None:
    @tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        return at

    model = ScriptedModel(*[tool_call("look", at="x")] * 3, "done")
    agent = Agent("a", model=model, tools=[look])
    parked = await client.execute_agent(agent, "", "go", run_id="job", on_ask="park")
    assert parked.status == "parked"
    [approval] = await client.approvals.list()
    assert approval.permission == "doom_loop"
    # Somebody else wakes the run: the loop is still a loop.
    await (await client.runs.turns()).wake("job", cause="curious")
    again = await client.execute_agent(agent, "", "go", run_id="job", on_ask="park")
    assert again.status == "parked"
    await client.approvals.approve(approval.id, by="ann")
    assert (await client.execute_agent(agent, "", "go", run_id="job")).response == "done"


async def test_expired_request_is_asked_again_and_an_old_consent_is_worthless(
    tmp_path: Path,
) -> None:
    async with AsyncClient(tmp_path) as client:
        clock = FakeClock(start=(await client.storage.journal()).clock.now())
        sessions, turns = await client.sessions.manager(), await client.runs.turns()
        (await client.storage.journal()).clock = clock
        disk = Disk()
        model = ScriptedModel(tool_call("delete", path="a.txt"), "done")
        runtime = AgentRuntime(
            run_services(
                sessions,
                turns,
                terms=ApprovalTerms(on_ask="park", expires_after_s=60),
                clock=clock,
            ),
            model=model,
        )
        agent = Agent("janitor", tools=[disk.tool()])
        session = await client.create_session("old")

        async def run() -> AgentResult:
            return await runtime.execute_agent(agent, session, "go", ToolRegistry(), run_id="job")

        await run()
        [first] = await client.approvals.list()
        clock.advance(61)
        assert await client.approvals.list() == []
        assert [row.id for row in await client.approvals.list(status="expired")] == [first.id]
        with pytest.raises(ApprovalExpired):
            await client.approvals.approve(first.id, by="ann")
        # Answering too late woke the run, which asks again.
        assert (await run()).status == "parked"
        [second] = await client.approvals.list()
        assert second.id != first.id
        await client.approvals.approve(second.id, by="ann")
        clock.advance(61)
        assert (await run()).status == "parked"
        [third] = await client.approvals.list()
        await client.approvals.approve(third.id, by="ann")
        await asyncio.wait_for(run(), 10)
        assert disk.deleted == ["a.txt"]


async def test_run_that_was_cancelled_while_parked_leaves_a_usable_session(
    client: AsyncClient,
) -> None:
    case = Case(client)
    approval = await case.park()
    await client.runs.cancel("job", reason="enough")
    model = ScriptedModel("fine")
    agent = Agent("janitor", model=model, tools=[case.disk.tool()])
    await agent.run("go on", session=approval.session_id, client=client)
    calls = [part for m in model.requests[0].messages for part in m.tool_calls]
    assert calls and all(part.state == "error" for part in calls if part.output or part.error)
    page = await client.list_messages(approval.session_id)
    assert [part.state for m in page.items for part in m.tool_calls] == ["error"]


class _Slow:
    """Somebody who reads while another person answers."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        [row] = await self._client.approvals.list()
        await self._client.approvals.deny(row.id, by="bob", reason="too slow")
        return ApprovalAnswer(verdict="allow", by="ann")


async def test_answer_that_came_while_somebody_was_reading_holds(client: AsyncClient) -> None:
    case = Case(client)
    await case.park()
    client.approver = _Slow(client)
    await (await client.runs.turns()).wake("job", cause="ann came")
    assert (await case.run()).response == "done"
    assert case.disk.deleted == []
    assert "too slow" in case.result().error


class _Broken:
    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        raise RuntimeError("no connection")


async def test_approver_that_fails_has_not_consented(client: AsyncClient) -> None:
    client.approver = _Broken()
    case = Case(client)
    await case.park()
    strict = Case(client)
    result = await client.execute_agent(strict.agent, "", "clean up")
    assert (result.response, strict.disk.deleted) == ("done", [])
    assert "RuntimeError" in strict.result().error


async def test_two_people_who_attend_one_after_the_other_are_enough(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path, settings=two_people()) as client:
        case = Case(client)
        for by, deleted in (("ann", []), ("Ann", []), ("bob", ["a.txt"])):
            client.approver = _Attends(ApprovalAnswer(verdict="allow", by=by))
            await case.run()
            assert case.disk.deleted == deleted
            await (await client.runs.turns()).wake("job", cause="next")
        strict = Case(client)
        client.approver = _Attends(ApprovalAnswer(verdict="allow", by="ann"))
        await client.execute_agent(strict.agent, "", "clean up")
        assert strict.disk.deleted == []


async def test_preview_that_cannot_be_made_says_so(client: AsyncClient) -> None:
    model = ScriptedModel(
        tool_call("edit", file_path="missing.txt", old_string="a", new_string="b"), "done"
    )
    rules = [{"permission": "edit", "action": "ask"}]
    agent = Agent("a", model=model, permission=rules)
    await client.execute_agent(agent, "", "go", run_id="job", on_ask="park")
    [row] = await client.approvals.list()
    assert "missing.txt" in (await client.approvals.get(row.id)).asked.preview


async def test_the_loser_of_a_race_is_told_and_leaves_nothing_behind(
    client: AsyncClient, tmp_path: Path
) -> None:
    """Both read that it is open before either answers; one answer counts."""
    case = Case(client)
    approval = await case.park()
    async with AsyncClient(tmp_path / "state") as other:
        details = await other.approvals.get(approval.id)
        won = await client.approvals.deny(approval.id, by="ann")
        assert won.status == "denied"
        late = ApprovalAnswered(
            approval_id=approval.id,
            verdict="allow",
            by="bob",
            seal=approval.seal,
            rules=(PermissionRule(permission="delete", pattern="*", action="allow"),),
        )
        with pytest.raises(ApprovalConflict) as lost:
            await other._runtime.approvals._answer(details, late)
    assert lost.value.code == "approval.conflict"
    assert "ann" in str(lost.value)
    assert (await client.get_session(approval.session_id)).permission == ()
    await case.run()
    assert case.disk.deleted == []
    assert (await client.approvals.get(approval.id)).approval.votes == won.votes


async def test_a_second_person_is_not_the_first_in_another_spelling(tmp_path: Path) -> None:
    async with AsyncClient(tmp_path, settings=two_people()) as client:
        case = Case(client)
        approval = await case.park()
        await client.approvals.approve(approval.id, by="paul")
        for name in ("p\u0430ul", "PAUL\u00a0", "pau1", "p\u200baul"):
            with pytest.raises((ApprovalExpired, UsageError)):
                await client.approvals.approve(approval.id, by=name)
        assert (await case.run()).status == "parked"
