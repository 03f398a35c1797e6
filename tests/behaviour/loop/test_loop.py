"""The loop plans, works, checks itself, and stops when the evidence says so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from loop_models import asked, crew_model, options, step, verdict

from holdfast import Agent, AsyncClient
from holdfast.errors import InvalidImport, NotFound, UsageError
from holdfast.messages import TokenUsage
from holdfast.orchestration.loop import LoopLimits
from holdfast.policy.budgets import Budget
from holdfast.sessions import PermissionRule
from holdfast.settings import load_settings
from holdfast.testing import FunctionModel, ModelReply, tool_call


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    (place / "README.md").write_text("# A project\n")
    return place


def open_client(state: Path, workspace: Path) -> AsyncClient:
    return AsyncClient(
        state, settings=load_settings(overrides={"workspace": str(workspace)}).settings
    )


@pytest.fixture
async def client(tmp_path: Path, workspace: Path):
    async with open_client(tmp_path / "state", workspace) as opened:
        yield opened


def writes(path: str, content: str):
    """An executor that writes one file and says so."""

    def work(request):
        if request.messages[-1].role == "tool":
            return "written"
        return tool_call("write", file_path=path, content=content)

    return work


async def test_a_goal_is_planned_worked_on_checked_reviewed_and_reported(client) -> None:
    model = crew_model([step("a"), step("b", "a"), step("c", "a")])
    report = await client.loops.run("Do everything", run_id="job", options=options(model))
    assert report.outcome == "done", report
    assert [(s.id, s.status, s.verdict) for s in report.steps] == [
        (name, "done", "accept") for name in "abc"
    ]
    assert report.tokens > 0
    assert (client.base_dir / "reports" / "run-job.md").read_text() == report.to_markdown()
    again = await client.loops.run("Do everything", run_id="job", options=options(model))
    assert again == report


async def test_results_of_earlier_steps_reach_the_next_one(client) -> None:
    heard = []

    def work(request):
        heard.append(asked(request))
        return "the number of a is 42"

    model = crew_model([step("a"), step("b", "a", checks=[{"kind": "answer_contains"}])], work)
    await client.loops.run("Do", options=options(model))
    assert "the number of a is 42" in heard[1]


async def test_files_that_changed_are_reported_with_their_lines(client, workspace) -> None:
    check = {"kind": "file_contains", "path": "README.md", "text": "better"}
    model = crew_model([step("a", checks=[check])], writes("README.md", "# A better project\n"))
    report = await client.loops.run("Improve", options=options(model))
    assert report.outcome == "done", report.reason
    [changed] = report.files
    assert (changed.path, changed.change, changed.added, changed.removed) == (
        "README.md",
        "changed",
        1,
        1,
    )
    assert "+# A better project" in report.to_markdown()


async def test_a_reviewer_is_asked_only_once_the_checks_hold(client) -> None:
    reviews = []

    def review(message: str) -> str:
        reviews.append(message)
        return verdict("accept")

    answers = iter(["nothing yet", "now it is a"])
    model = crew_model([step("a")], lambda request: next(answers), review)
    report = await client.loops.run("Do", options=options(model))
    assert (report.outcome, report.steps[0].attempts, len(reviews)) == ("done", 2, 1)
    assert "[passed]" in reviews[0]


async def test_a_reviewer_that_always_says_retry_is_not_followed_for_ever(client) -> None:
    numbers = iter(range(100))
    model = crew_model(
        [step("a")], lambda r: f"a, take {next(numbers)}", lambda m: verdict("retry", m[-9:])
    )
    limits = LoopLimits(max_attempts=4, max_replans=0)
    report = await client.loops.run("Do", options=options(model, limits=limits))
    assert (report.outcome, report.steps[0].attempts) == ("retries", 4)


async def test_the_same_failure_again_without_a_change_is_a_stall(client) -> None:
    model = crew_model([step("zeta")], lambda request: "the same as ever")
    limits = LoopLimits(max_attempts=50, max_replans=0)
    report = await client.loops.run("Do", options=options(model, limits=limits))
    assert report.outcome == "stalled"
    assert 2 <= report.steps[0].attempts <= 3


async def test_a_reviewer_can_give_up(client) -> None:
    model = crew_model([step("a")], review=lambda m: verdict("give_up", "impossible"))
    report = await client.loops.run("Do", run_id="job", options=options(model))
    assert report.outcome == "gave_up"
    assert "impossible" in report.reason
    run = await client.runs.get("job")
    assert (run.status, run.error["code"]) == ("failed", "loop.not_reached")


async def test_a_replan_keeps_what_is_done_and_changes_the_rest(client) -> None:
    plans = iter([[step("a"), step("b", "a")], [step("c", "a")]])
    told = []

    def plan(message: str):
        told.append(message)
        return next(plans)

    def review(message: str) -> str:
        return verdict("replan", "b is the wrong way") if "'Do b'" in message else verdict("accept")

    report = await client.loops.run("Do", options=options(crew_model(plan, review=review)))
    assert (report.outcome, report.revisions) == ("done", 1)
    assert [(s.id, s.attempts) for s in report.steps] == [("a", 1), ("c", 1)]
    assert "b is the wrong way" in told[1]


async def test_a_planner_that_hands_in_the_same_plan_again_is_a_stall(client) -> None:
    model = crew_model([step("a")], review=lambda m: verdict("replan", "no"))
    report = await client.loops.run("Do", options=options(model))
    assert report.outcome == "stalled"


async def test_a_plan_that_is_not_sound_is_sent_back_with_its_faults(client) -> None:
    told = []

    def plan(message: str):
        told.append(message)
        return [step("a", "b"), step("b", "a")] if len(told) == 1 else [step("a")]

    report = await client.loops.run("Do", options=options(crew_model(plan)))
    assert report.outcome == "done"
    assert "circle: a, b" in told[1]


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        ([step("a", "b"), step("b", "a")], "circle"),
        ([step("a", "nowhere")], "does not exist"),
        ([step("a"), step("a")], "twice"),
        ([step("a", checks=[{"kind": "prayer"}])], "no kind of check"),
        ([step(f"s{n}") for n in range(1_001)], "at most 1000"),
        ([], "no steps"),
    ],
)
async def test_a_plan_that_stays_unsound_is_refused_and_nothing_is_done(
    client, plan, fault
) -> None:
    model = crew_model(plan, lambda request: pytest.fail("nothing may be done"))
    report = await client.loops.run("Do", options=options(model))
    assert report.outcome == "no_plan"
    assert fault in report.reason
    assert report.steps == ()


async def test_a_check_that_kills_its_shell_fails_and_the_loop_ends_with_a_reason(client) -> None:
    check = {"kind": "command", "command": "kill -9 $$"}
    model = crew_model([step("a", checks=[check])])
    limits = LoopLimits(max_attempts=2, max_replans=0)
    report = await client.loops.run("Do", options=options(model, limits=limits))
    assert report.outcome in ("stalled", "retries")
    assert not report.steps[0].checks[0].is_passed


@pytest.mark.parametrize(
    ("check", "is_passed"),
    [
        ({"kind": "command", "command": "test -f README.md"}, True),
        ({"kind": "command", "command": "ls nowhere", "exit_code": 2}, True),
        ({"kind": "test", "command": "false"}, False),
        ({"kind": "file_exists", "path": "README.md"}, True),
        ({"kind": "file_exists", "path": "nope"}, False),
        ({"kind": "file_exists", "path": "../../etc/passwd"}, False),
        ({"kind": "file_hash", "path": "README.md", "sha256": "0" * 64}, False),
        ({"kind": "json_schema", "path": "README.md", "json_schema": "{}"}, False),
        ({"kind": "answer_contains", "text": "I DID"}, True),
        ({"kind": "function", "function": "good"}, True),
        ({"kind": "function", "function": "bad"}, False),
    ],
)
async def test_every_kind_of_check_holds_or_not(client, check, is_passed) -> None:
    limits = LoopLimits(max_attempts=1, max_replans=0)
    functions = {"good": lambda evidence: True, "bad": lambda evidence: "because"}
    chosen = options(crew_model([step("a", checks=[check])]), limits=limits, functions=functions)
    report = await client.loops.run("Do", options=chosen)
    assert report.steps[0].checks[0].is_passed is is_passed, report.steps[0].checks
    assert report.is_done is is_passed


async def test_a_rule_against_commands_holds_for_checks_too(client) -> None:
    check = {"kind": "command", "command": "true"}
    rules = [{"permission": "*", "action": "allow"}, {"permission": "bash", "action": "deny"}]
    limits = LoopLimits(max_attempts=1, max_replans=0)
    chosen = options(crew_model([step("a", checks=[check])]), limits=limits, rules=rules)
    report = await client.loops.run("Do", options=chosen)
    assert not report.steps[0].checks[0].is_passed


async def test_independent_steps_are_worked_on_together_if_wanted(client) -> None:
    busy, most, both = 0, 0, asyncio.Event()

    async def work(request):
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        if busy == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 20)
        busy -= 1
        return asked(request)[:10]

    model = crew_model([step("a"), step("b")], work)
    report = await client.loops.run("Do", options=options(model, limits=LoopLimits(parallel=2)))
    assert (report.outcome, most) == ("done", 2)


async def test_a_child_that_never_ends_is_ended(client) -> None:
    model = crew_model([step("a")], lambda request: ModelReply(hold=asyncio.Event()))
    limits = LoopLimits(agent_wall_s=2, max_attempts=1, max_replans=0)
    report = await client.loops.run("Do", options=options(model, limits=limits))
    assert report.outcome == "retries"
    assert "did not end within" in report.reason


async def test_the_time_of_a_loop_ends_it(client) -> None:
    model = crew_model([step("a")], lambda request: ModelReply(hold=asyncio.Event()))
    report = await client.loops.run("Do", options=options(model, limits=LoopLimits(wall_s=0.5)))
    assert report.outcome == "time"


async def test_the_budget_of_a_loop_covers_all_its_agents(client) -> None:
    limits = LoopLimits(budget=Budget(max_tokens=600, on_unknown_price="ignore"))
    model = crew_model([step(f"s{n}") for n in range(50)])
    report = await client.loops.run("Do", run_id="job", options=options(model, limits=limits))
    assert report.outcome == "budget"
    assert (await client.runs.get("job")).error["code"] == "budget.exceeded"
    assert len([s for s in report.steps if s.status == "done"]) < 50


async def test_a_loop_that_ended_too_early_goes_on_as_another_run(client) -> None:
    worked: list[str] = []

    def work(request) -> str:
        worked.append(asked(request).splitlines()[0])
        return f"I did it: {asked(request)[:60]}"

    model = crew_model([step("a"), step("b", "a")], work)
    tight = LoopLimits(budget=Budget(max_tokens=600, on_unknown_price="ignore"))
    first = await client.loops.run("Do it", run_id="one", options=options(model, limits=tight))
    done = [one.id for one in first.steps if one.status == "done"]
    assert (first.outcome, done) == ("budget", ["a"])
    worked.clear()
    more = options(model, continues="one")
    second = await client.loops.run("", run_id="two", options=more)
    assert (second.outcome, second.goal, worked) == ("done", "Do it", ["Do b."])
    assert [(one.id, one.status) for one in second.steps] == [("a", "done"), ("b", "done")]
    assert (await client.loops.report("one")).outcome == "budget"
    with pytest.raises(UsageError):
        await client.loops.run("", options=options(model, continues="two"))


async def test_the_budget_of_a_loop_covers_agents_that_its_agents_send(client) -> None:
    spent: list[int] = []

    def help_out(request):
        spent.append(1_000)
        return ModelReply(text="helped", usage=TokenUsage(input=1_000))

    def work(request):
        if request.messages[-1].role == "tool":
            return "I did it: a, b, c"
        return tool_call("task", subagent_type="helper", prompt="Help.")

    await client.register_agent(
        Agent("helper", mode="subagent", description="Helps.", model=FunctionModel(help_out))
    )
    limits = LoopLimits(budget=Budget(max_tokens=3_000, on_unknown_price="ignore"))
    model = crew_model([step("a"), step("b", "a"), step("c", "b")], work)
    report = await client.loops.run("Do", options=options(model, limits=limits))
    assert report.outcome == "budget"
    assert 0 < sum(spent) <= 3_000


async def test_cancelling_ends_the_loop_and_its_agents(client) -> None:
    begun = asyncio.Event()

    def work(request):
        begun.set()
        return ModelReply(hold=asyncio.Event())

    working = asyncio.create_task(
        client.loops.run("Do", run_id="job", options=options(crew_model([step("a")], work)))
    )
    await asyncio.wait_for(begun.wait(), 20)
    await client.runs.cancel("job", reason="enough")
    report = await asyncio.wait_for(working, 20)
    assert (report.outcome, report.reason) == ("cancelled", "enough")
    assert {run.status for run in await client.runs.list()} <= {"cancelled", "completed"}


async def test_a_thousand_steps_come_to_their_end(client) -> None:
    plan = [step(f"s{n}", *([f"s{n - 1}"] if n % 10 else [])) for n in range(1_000)]
    model = crew_model(plan, lambda request: "no")
    limits = LoopLimits(max_attempts=1, max_replans=0)
    report = await client.loops.run("Do", options=options(model, limits=limits))
    assert (report.outcome, len(report.steps)) == ("retries", 1_000)


async def test_a_run_goes_on_in_an_empty_state_directory_from_its_file(
    client, tmp_path: Path, workspace: Path
) -> None:
    def work(request):
        if "Do b" in asked(request):
            return ModelReply(error=InvalidImport(detail="the power fails here"))
        return "a"

    plan = [step("a"), step("b", "a")]
    limits = LoopLimits(max_attempts=1, max_replans=0)
    seen = []
    copy = tmp_path / "copy.jsonl"

    def listener(news) -> None:
        if news.fact is not None and news.fact.kind == "step.started" and news.step_id == "b":
            copy.write_bytes((client.base_dir / "run-job.jsonl").read_bytes()[:-1])

    await client.loops.run(
        "Do",
        run_id="job",
        options=options(crew_model(plan, work), limits=limits),
        listener=listener,
    )

    def elsewhere(request):
        seen.append(asked(request)[:5])
        return "b"

    async with open_client(tmp_path / "other", workspace) as other:
        run = await other.loops.load(copy)
        assert (run.id, run.status) == ("job", "running")
        report = await other.loops.run(
            "", run_id="job", options=options(crew_model([], elsewhere), limits=limits)
        )
        assert (report.outcome, seen) == ("done", ["Do b."])
        assert await other.audit.verify() == []


async def test_rules_that_were_added_elsewhere_do_not_hold_after_an_import(
    client, tmp_path: Path, workspace: Path
) -> None:
    report = await client.loops.run("Do", run_id="job", options=options(crew_model([step("a")])))
    rules = [PermissionRule(permission="*", action="allow")]
    await client.update_session(report.session_id, permission=rules)
    await client.loops.export("job", tmp_path / "copy.jsonl")
    other_place = tmp_path / "elsewhere"
    other_place.mkdir()
    async with open_client(tmp_path / "other", other_place) as other:
        await other.loops.load(tmp_path / "copy.jsonl")
        session = await other.get_session(report.session_id)
        assert (session.permission, session.directory) == ((), str(other_place))


async def test_a_changed_run_file_is_refused_whole(client, tmp_path: Path, workspace) -> None:
    model = crew_model([step("a")])
    await client.loops.run("Do", run_id="job", options=options(model))
    lines = (client.base_dir / "run-job.jsonl").read_bytes().splitlines(keepends=True)
    bad = [
        b"".join(lines[1:]),
        b"".join(lines).replace(b'"accept"', b'"reject"'),
        b"".join([*lines[:3], *lines[4:]]),
        lines[0],
        lines[0].replace(b'"version":1', b'"version":9'),
        b"\xff",
    ]
    async with open_client(tmp_path / "other", workspace) as other:
        for content in bad:
            (tmp_path / "bad.jsonl").write_bytes(content)
            with pytest.raises(InvalidImport):
                await other.loops.load(tmp_path / "bad.jsonl")
        assert (await other.list_sessions()).items == ()


async def test_the_audit_file_holds_calls_and_refusals(client) -> None:
    rules = [{"permission": "*", "action": "allow"}, {"permission": "write", "action": "deny"}]
    check = {"kind": "answer_contains"}
    model = crew_model([step("a", checks=[check])], writes("x.txt", "y"))
    await client.loops.run("Do", run_id="job", options=options(model, rules=rules))
    text = (client.base_dir / "audit" / "run-job.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert {"permission.denied", "tool.ended"} <= {line["kind"] for line in lines}
    assert all(line["session_id"] and line["time"] for line in lines)


async def test_a_loop_that_waits_for_a_person_goes_on_after_the_answer(client, workspace) -> None:
    rules = [{"permission": "*", "action": "allow"}, {"permission": "write", "action": "ask"}]
    check = {"kind": "file_exists", "path": "x.txt"}
    model = crew_model([step("a", checks=[check])], writes("x.txt", "y"))
    chosen = options(model, rules=rules, on_ask="park")
    report = await client.loops.run("Do", run_id="job", options=chosen)
    assert report.outcome == "waiting"
    [waiting] = await client.approvals.list()
    await client.approvals.approve(waiting.id, by="tester")
    report = await client.loops.run("", run_id="job", options=options(model, rules=rules))
    assert report.outcome == "done", report.reason
    assert (workspace / "x.txt").read_text() == "y"


async def test_the_layout_holds_a_run_file_that_can_be_imported(
    client, tmp_path: Path, workspace: Path
) -> None:
    await client.loops.run("Do", run_id="job", options=options(crew_model([step("a")])))
    files = await client.storage.export_layout(tmp_path / "out")
    assert files == len([path for path in (tmp_path / "out").rglob("*") if path.is_file()])
    async with open_client(tmp_path / "other", workspace) as other:
        assert (await other.loops.load(tmp_path / "out" / "run-job.jsonl")).status == "completed"
        assert (await other.loops.report("job")).outcome == "done"


async def test_deleting_the_session_removes_the_files_of_its_loop(client) -> None:
    report = await client.loops.run("Do", run_id="job", options=options(crew_model([step("a")])))
    assert any(client.base_dir.rglob("*job*"))
    await client.delete_session(report.session_id)
    assert not any(client.base_dir.rglob("*job*"))


async def test_a_run_of_an_agent_is_no_loop(client) -> None:
    await client.execute_agent(options(crew_model([])).agents.executor, "", "hi", run_id="plain")
    with pytest.raises(UsageError):
        await client.loops.report("plain")
    with pytest.raises(UsageError):
        await client.loops.run("Do", run_id="plain")
    with pytest.raises(NotFound):
        await client.loops.report("nothing")
    with pytest.raises(UsageError):
        await client.loops.run("  ")
