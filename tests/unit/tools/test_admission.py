"""What a person may change about a call, and what no person can."""

from __future__ import annotations

from run_kit import open_run

from holdfast.policy import RuleSet
from holdfast.sessions import PermissionRule
from holdfast.tools import tool
from holdfast.tools.events import PermissionRefused
from holdfast.tools.gate import ApprovalAnswer, ApprovalRequest, Gate


@tool(effect="idempotent", permission="ask", target="where")
async def send(where: str) -> str:
    """Send."""
    return f"sent to {where}"


class Says:
    """Answers every request in the same way."""

    def __init__(self, **answer: object) -> None:
        self._answer = {"verdict": "allow", "by": "ada", **answer}
        self.asked: list[ApprovalRequest] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        self.asked.append(request)
        return ApprovalAnswer(**self._answer)


def rule(pattern: str, action: str) -> RuleSet:
    return RuleSet(rules=(PermissionRule(permission="send", pattern=pattern, action=action),))


async def test_arguments_that_a_person_puts_in_are_what_runs_and_the_model_is_told(tmp_path):
    ada = Says(arguments={"where": "home"})
    async with open_run(tmp_path, send, gate=Gate(approver=ada)) as run:
        part = await run.call("send", where="abroad")
    assert part.state == "completed"
    assert part.output.endswith("sent to home")
    assert "ada changed the arguments" in part.output
    assert part.metadata["asked_input"] == {"where": "abroad"}


async def test_arguments_that_do_not_fit_are_refused_whoever_puts_them_in(tmp_path):
    ada = Says(arguments={"where": 5})
    async with open_run(tmp_path, send, gate=Gate(approver=ada)) as run:
        part = await run.call("send", where="abroad")
        refused = [fact for fact in await run.facts() if isinstance(fact, PermissionRefused)]
    assert part.state == "error"
    assert len(refused) == 1


async def test_no_person_lifts_a_deny_by_changing_the_arguments(tmp_path):
    gate = Gate(ceiling=rule("abroad", "deny"), approver=Says(arguments={"where": "abroad"}))
    async with open_run(tmp_path, send, gate=gate) as run:
        part = await run.call("send", where="home")
    assert part.state == "error"
    assert "abroad" in part.error


async def test_who_stops_the_run_is_asked_nothing_more(tmp_path):
    ada = Says(verdict="stop", reason="enough")
    async with open_run(tmp_path, send, gate=Gate(approver=ada)) as run:
        assert (await run.call("send", where="a")).state == "error"
        assert run.manager.stopped_by == "ada"
        assert (await run.call("send", where="b")).state == "error"
    assert len(ada.asked) == 1


async def test_a_stop_counts_also_where_nobody_is_named(tmp_path):
    async with open_run(tmp_path, send, gate=Gate(approver=Says(verdict="stop", by=""))) as run:
        await run.call("send", where="a")
        assert run.manager.stopped_by


async def test_a_rule_that_is_written_at_a_prompt_settles_the_next_call(tmp_path):
    ada = Says(rules=rule("*", "allow").rules)
    async with open_run(tmp_path, send, gate=Gate(approver=ada)) as run:
        outputs = [(await run.call("send", where=where)).output for where in "ab"]
    assert outputs == ["sent to a", "sent to b"]
    assert len(ada.asked) == 1


async def test_whoever_fails_to_answer_has_not_consented(tmp_path):
    class Broken:
        async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
            raise RuntimeError("no screen")

    async with open_run(tmp_path, send, gate=Gate(approver=Broken())) as run:
        part = await run.call("send", where="a")
    assert part.state == "error"
    assert "RuntimeError" in part.error


async def test_a_loop_that_a_person_breaks_with_other_arguments_goes_on_with_those(tmp_path):
    @tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        return at

    ada = Says(arguments={"at": "elsewhere"})
    async with open_run(tmp_path, look, gate=Gate(approver=ada)) as run:
        outputs = [(await run.call("look", at="here")).output for _ in range(3)]
    assert outputs[:2] == ["here", "here"]
    assert outputs[2].endswith("elsewhere")
    assert [request.permission for request in ada.asked] == ["doom_loop"]


async def test_calls_of_before_a_restart_count_for_the_doom_loop(tmp_path):
    @tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        return at

    ada = Says()
    async with open_run(tmp_path, look, gate=Gate(approver=ada)) as run:
        before = await run.call("look", at="here")
        run.manager.remember([before])
        await run.call("look", at="here")
    assert [request.permission for request in ada.asked] == ["doom_loop"]
