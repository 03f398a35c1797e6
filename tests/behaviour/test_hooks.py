"""Hooks change the course of real runs, within what the gate allows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast import Agent, AsyncClient, Client, tool
from holdfast.errors import HookRefused, InvalidTransition, LLMOverloaded, UsageError
from holdfast.hooks import (
    BusEvent,
    Callbacks,
    Cancel,
    ExecutionContext,
    HookDecided,
    HookLimits,
    Hooks,
    Notification,
    Progress,
    Replace,
    Retry,
    ScriptOutcome,
)
from holdfast.hooks import points as at
from holdfast.messages import Message, TextPart, ToolPart
from holdfast.providers.model import Restarted
from holdfast.sessions import PermissionRule, Session, SessionLifecycle
from holdfast.testing import ScriptedModel, tool_call
from holdfast.testing.vanishing import Vanished, leave, vanish
from holdfast.tools import ToolContext
from holdfast.tools.gate import ApprovalAnswer, ApprovalRequest


@tool(effect="read")
async def echo(text: str) -> str:
    """Say it again."""
    return f"said {text}"


@tool(effect="unsafe", permission="allow", target="path")
async def touch(path: str) -> str:
    """Touch a file."""
    touched.append(path)
    return path


touched: list[str] = []


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    touched.clear()
    async with AsyncClient(tmp_path / "state") as opened:
        yield opened


async def result_of(client: AsyncClient, call: ToolPart, **agent: object) -> ToolPart:
    """Let a model make one call, and return the result that it gets to see."""
    model = ScriptedModel(call, "done")
    worker = Agent("worker", model=model, tools=[echo, touch], **agent)  # type: ignore[arg-type]
    assert (await worker.run("go", client=client)).response == "done"
    [part] = model.requests[1].messages[-1].tool_calls
    return part


@pytest.mark.parametrize("name", ["touch", "Touch", "t_ouch", "touch@1.0.0"])
async def test_a_hook_hears_the_tools_own_name_however_the_model_spells_it(
    client: AsyncClient, name: str
) -> None:
    @client.hooks.on(at.ToolBeforeExecution)
    def guard(call: at.ToolBeforeExecution) -> Cancel | None:
        return Cancel("not this one") if call.tool == "touch" else None

    part = await result_of(client, tool_call(name, path="a.txt"))
    assert part.state == "error"
    assert touched == []


@pytest.mark.parametrize("answer", [Replace(object()), Replace("\ud800"), Cancel("\ud800")])
async def test_an_answer_without_a_json_form_counts_as_if_nothing_was_said(
    client: AsyncClient, answer: object
) -> None:
    client.hooks.on(at.ToolBeforeExecution)(lambda _call: answer)
    client.hooks.on(at.ModelBeforeRequest)(lambda _request: answer)
    client.hooks.on(at.ContextBeforeCompaction)(lambda _compaction: answer)
    part = await result_of(client, tool_call("echo", text="hello"))
    assert (part.state, part.output) == ("completed", "said hello")
    session = await client.sessions.most_recent()
    assert session is not None
    await client.sessions.compact(session.id, model=ScriptedModel("They said hello."))
    kinds = [event.kind for event in await client.events.list(session.id)]
    assert kinds.count("hook.failed") >= 3
    assert "hook.decided" not in kinds


async def decisions(client: AsyncClient) -> list[HookDecided]:
    journal = await client.storage.journal()
    events = await journal.store.feed(after=0, limit=10_000)
    return [event.expect(HookDecided) for event in events if event.kind == HookDecided.kind]


# --- tools ---------------------------------------------------------------------------


async def test_changed_arguments_run_and_stand_in_the_transcript(client: AsyncClient) -> None:
    @client.hooks.on(at.ToolBeforeExecution)
    async def louder(call: at.ToolBeforeExecution) -> object:
        return call.modify(arguments={"text": call.arguments["text"].upper()})

    part = await result_of(client, tool_call("echo", text="hi"))
    assert (part.output, part.input) == ("said HI", {"text": "HI"})
    [decided] = await decisions(client)
    assert (decided.verdict, decided.changed) == ("modify", ("arguments",))
    assert decided.hook.endswith("louder")


async def test_changed_arguments_are_validated_again(client: AsyncClient) -> None:
    @client.hooks.on("tool.before_execution")
    async def spoil(call: at.ToolBeforeExecution) -> object:
        return call.modify(arguments={"text": ["no", "text"]})

    part = await result_of(client, tool_call("echo", text="hi"))
    assert part.state == "error"
    assert "text" in part.error


async def test_hook_cannot_steer_a_call_past_a_deny(client: AsyncClient) -> None:
    @client.hooks.on("tool.before_execution")
    async def redirect(call: at.ToolBeforeExecution) -> object:
        return call.modify(arguments={"path": "secret"})

    rules = [PermissionRule(permission="touch", pattern="secret", action="deny")]
    part = await result_of(client, tool_call("touch", path="harmless"), permission=rules)
    assert (part.state, touched) == ("error", [])


async def test_hook_cannot_give_the_result_of_a_denied_call(client: AsyncClient) -> None:
    client.hooks.on("tool.before_execution", lambda call: Replace("it went well"))
    part = await result_of(client, tool_call("touch", path="x"), denied_tools=["touch"])
    assert (part.state, touched) == ("error", [])


async def test_replaced_call_gives_its_result_without_running(client: AsyncClient) -> None:
    client.hooks.on("tool.before_execution", lambda call: Replace({"size": 3}))
    part = await result_of(client, tool_call("touch", path="x"))
    assert (part.state, part.output, touched) == ("completed", '{"size":3}', [])


class Person:
    """Answers, and keeps what was asked."""

    def __init__(self, verdict: str) -> None:
        self.verdict = verdict
        self.asked: list[object] = []

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request.arguments)
        return ApprovalAnswer(verdict=self.verdict, by="somebody")  # type: ignore[arg-type]


@pytest.mark.parametrize(("verdict", "ran"), [("allow", ["trash/x"]), ("deny", [])])
async def test_person_consents_to_the_call_as_hooks_changed_it(
    client: AsyncClient, verdict: str, ran: list[str]
) -> None:
    client.approver = person = Person(verdict)
    client.hooks.on(
        "tool.before_execution",
        lambda call: call.modify(arguments={"path": "trash/" + call.arguments["path"]}),
    )
    rules = [PermissionRule(permission="touch", action="ask")]
    await result_of(client, tool_call("touch", path="x"), permission=rules)
    assert (person.asked, touched) == ([{"path": "trash/x"}], ran)


async def test_replaced_call_needs_consent_too(client: AsyncClient) -> None:
    client.approver = Person("deny")
    client.hooks.on("tool.before_execution", lambda call: Replace("fine"))
    rules = [PermissionRule(permission="touch", action="ask")]
    part = await result_of(client, tool_call("touch", path="x"), permission=rules)
    assert part.state == "error"


async def test_cancelled_call_tells_the_model_why(client: AsyncClient) -> None:
    client.hooks.on("tool.before_execution", lambda call: Cancel("not on a Friday"))
    part = await result_of(client, tool_call("touch", path="x"))
    assert "not on a Friday" in part.error
    assert touched == []


async def test_validation_hook_can_refuse_a_call(client: AsyncClient) -> None:
    client.hooks.on("tool.validation", lambda call: Cancel("odd arguments"))
    part = await result_of(client, tool_call("echo", text="x"))
    assert "odd arguments" in part.error


async def test_result_and_error_can_be_changed_before_they_are_kept(client: AsyncClient) -> None:
    client.hooks.on("tool.after_execution", lambda done: done.modify(output="[redacted]"))
    client.hooks.on("tool.error", lambda failed: Replace("never mind"))
    assert (await result_of(client, tool_call("echo", text="x"))).output == "[redacted]"
    failed = await result_of(client, tool_call("echo", wrong="x"))
    assert (failed.state, failed.output, failed.error) == ("completed", "never mind", "")


@pytest.mark.parametrize(("effect", "tries"), [("read", 2), ("unsafe", 1)])
async def test_retry_repeats_harmless_calls_only_and_not_forever(
    client: AsyncClient, effect: str, tries: int
) -> None:
    count = 0

    @tool(effect=effect, permission="allow")  # type: ignore[call-overload, untyped-decorator]
    async def flaky() -> str:
        """Fail."""
        nonlocal count
        count += 1
        raise RuntimeError("not yet")

    client.hooks.on("tool.error", lambda failed: Retry())
    model = ScriptedModel(tool_call("flaky"), "done")
    await Agent("a", model=model, tools=[flaky]).run("go", client=client)
    assert count == tries


async def test_hidden_tool_is_not_shown_to_the_model(client: AsyncClient) -> None:
    @client.hooks.on("tool.before_discovery")
    async def hide(found: at.ToolBeforeDiscovery) -> object:
        return found.modify(tools=tuple(name for name in found.tools if name != "echo"))

    model = ScriptedModel("done")
    await Agent("a", model=model, tools=[echo, touch]).run("go", client=client)
    shown = {spec.name for spec in model.requests[0].tools}
    assert "touch" in shown
    assert "echo" not in shown


# --- models and context --------------------------------------------------------------


async def test_request_can_be_changed_and_answer_too(client: AsyncClient) -> None:
    client.hooks.on("model.before_request", lambda asked: asked.modify(system="Be kind."))

    @client.hooks.on("model.after_response")
    async def polish(answered: at.ModelAfterResponse) -> object:
        parts = (TextPart(text=answered.message.text + "!"),)
        return answered.modify(message=msgspec.structs.replace(answered.message, parts=parts))

    model = ScriptedModel("hello")
    result = await Agent("a", model=model).run("hi", client=client)
    assert (result.response, model.requests[0].system) == ("hello!", "Be kind.")


async def test_answer_of_a_hook_saves_the_model_call(client: AsyncClient) -> None:
    client.hooks.on("model.before_request", lambda asked: Replace("from the cache"))
    model = ScriptedModel()
    assert (await Agent("a", model=model).run("hi", client=client)).response == "from the cache"
    assert model.requests == []


async def test_cancelled_request_fails_the_run_and_names_the_hook(client: AsyncClient) -> None:
    client.hooks.on("model.before_request", lambda asked: Cancel("no budget"), name="budget")
    result = await Agent("a", model=ScriptedModel("x")).run(
        "hi", client=client, raise_on_failure=False
    )
    assert result.status == "failed"
    assert result.metadata["error"]["code"] == HookRefused.code


async def test_failed_model_call_can_be_retried_or_replaced(client: AsyncClient) -> None:
    error = LLMOverloaded(provider="test", detail="busy")
    hook = client.hooks.on("model.error", lambda failed: Retry("once more"))
    model = ScriptedModel(error, error, "third time")
    items = [item async for item in Agent("a", model=model).stream("hi", client=client)]
    assert items[-1].response == "third time"  # type: ignore[union-attr]
    assert sum(isinstance(item, Restarted) for item in items) == 2
    client.hooks.off(hook)
    client.hooks.on("model.error", lambda failed: Replace("sorry"))
    result = await Agent("b", model=ScriptedModel(error)).run("hi", client=client)
    assert result.response == "sorry"


async def test_retries_of_a_model_call_are_bounded(client: AsyncClient) -> None:
    client.hooks.on("model.after_response", lambda answered: Retry())
    model = ScriptedModel(*["never good enough"] * 10)
    result = await Agent("a", model=model).run("hi", client=client)
    assert (result.response, len(model.requests)) == ("never good enough", 4)


async def test_context_can_be_changed_before_and_after_it_is_built(client: AsyncClient) -> None:
    client.hooks.on(
        "context.before_build", lambda build: build.modify(messages=build.messages[-1:])
    )
    client.hooks.on("context.after_build", lambda built: built.modify(system_prompt="Short."))
    session = await client.create_session("talk")
    model = ScriptedModel("one", "two")
    agent = Agent("a", model=model)
    await agent.run("first", session=session.id, client=client)
    await agent.run("second", session=session.id, client=client)
    assert [message.text for message in model.requests[1].messages] == ["second"]
    assert model.requests[1].system == "Short."


# --- agents, callbacks ---------------------------------------------------------------


async def test_message_and_response_can_be_changed_around_an_agent(client: AsyncClient) -> None:
    client.hooks.on("agent.before_execution", lambda run: run.modify(message="be brief"))
    client.hooks.on("agent.after_execution", lambda done: done.modify(response="(short)"))
    model = ScriptedModel("a long answer")
    result = await Agent("a", model=model).run("tell me all", client=client)
    assert model.requests[0].messages[-1].text == "be brief"
    assert result.response == "(short)"


async def test_cancelled_agent_run_leaves_no_trace_but_the_decision(client: AsyncClient) -> None:
    client.hooks.on("agent.before_execution", lambda run: Cancel("closed today"))
    session = await client.create_session("s")
    with pytest.raises(HookRefused):
        await client.execute_agent(Agent("a", model=ScriptedModel("x")), session.id, "hi")
    assert (await client.list_messages(session.id)).items == ()
    assert [decided.verdict for decided in await decisions(client)] == ["cancel"]
    assert await client.agents.state("a") == "ready"


async def test_failing_guard_refuses_and_stays_closed_while_left_out(client: AsyncClient) -> None:
    @client.hooks.on("tool.before_execution", is_guard=True, limits=HookLimits(failures_in_row=1))
    async def guard(call: at.ToolBeforeExecution) -> None:
        raise RuntimeError("no connection to the policy server")

    for _ in range(2):
        part = await result_of(client, tool_call("touch", path="x"))
        assert part.state == "error"
    assert touched == []


async def test_hook_of_one_agent_leaves_others_alone(client: AsyncClient) -> None:
    client.hooks.on("agent.after_execution", lambda done: done.modify(response="!"), agent="Loud")
    quiet = await Agent("quiet", model=ScriptedModel("hm")).run("hi", client=client)
    loud = await Agent("loud", model=ScriptedModel("hm")).run("hi", client=client)
    assert (quiet.response, loud.response) == ("hm", "!")


async def test_callbacks_stand_around_agent_model_and_tool(client: AsyncClient) -> None:
    order: list[str] = []

    async def after_model(agent: str, message: Message) -> None:
        order.append("after_model")

    def noting(name: str) -> object:
        def note(*_: object) -> None:
            order.append(name)

        return note

    names = ("before_agent", "after_agent", "before_model", "before_tool", "after_tool")
    callbacks = Callbacks(after_model=after_model, **{n: noting(n) for n in names})  # type: ignore[arg-type]
    await client.use_callbacks(callbacks)
    await result_of(client, tool_call("echo", text="x"))
    assert order == [
        "before_agent",
        "before_model",
        "after_model",
        "before_tool",
        "after_tool",
        "before_model",
        "after_model",
        "after_agent",
    ]


async def test_before_tool_callback_gives_arguments_or_a_result(client: AsyncClient) -> None:
    hooks = await client.use_callbacks(Callbacks(before_tool=lambda name, args: {"text": "other"}))
    assert (await result_of(client, tool_call("echo", text="x"))).output == "said other"
    client.hooks.off(hooks[0])
    await client.use_callbacks(Callbacks(before_tool=lambda name, args: "mocked"))
    assert (await result_of(client, tool_call("echo", text="x"))).output == "mocked"


@pytest.mark.parametrize("effect", ["read", "idempotent"])
async def test_changed_call_is_not_changed_again_after_a_crash(tmp_path: Path, effect: str) -> None:
    seen: list[str] = []

    @tool(effect=effect, permission="allow")  # type: ignore[call-overload, untyped-decorator]
    async def note(text: str) -> str:
        """Note it."""
        seen.append(text)
        if len(seen) == 1:
            await vanish(first)
        return text

    async def doubled(call: at.ToolBeforeExecution) -> object:
        return call.modify(arguments={"text": call.arguments["text"] * 2})

    first = AsyncClient(tmp_path)
    first.hooks.on("tool.before_execution", doubled)
    agent = Agent("a", model=ScriptedModel(tool_call("note", text="ab")), tools=[note])
    with pytest.raises(Vanished):
        await agent.run("go", client=first, run_id="job")
    await leave(first)
    async with AsyncClient(tmp_path) as second:
        second.hooks.on("tool.before_execution", doubled)
        model = ScriptedModel("done")
        await Agent("a", model=model, tools=[note]).run("go", client=second, run_id="job")
    [part] = model.requests[0].messages[-1].tool_calls
    assert (seen, part.input) == (["abab", "abab"], {"text": "abab"})


# --- events --------------------------------------------------------------------------


async def test_names_of_facts_are_views_of_one_stored_fact(client: AsyncClient) -> None:
    heard: list[str] = []

    async def hear(event: BusEvent) -> None:
        if not event.is_ephemeral:
            heard.append(event.name)

    await client.events.subscribe(["tool.*", "model.completed", "run.*"], hear)
    await result_of(client, tool_call("echo", text="x"))
    await client.events.settle()
    assert heard == [
        "run.queued",
        "run.started",
        "model.completed",
        "tool.completed",
        "model.completed",
        "run.completed",
    ]


async def test_pieces_and_progress_are_heard_but_not_stored(client: AsyncClient) -> None:
    @tool(effect="read")
    def dig(context: ToolContext) -> str:
        """Dig."""
        context.report("half way", fraction=0.5)
        return "done"

    pieces: list[str] = []
    progress: list[Progress] = []
    notices: list[Notification] = []

    async def hear(event: BusEvent) -> None:
        pieces.append(event.data["text"])

    await client.events.subscribe("model.text_delta", hear)
    await client.events.on_progress(progress.append)
    await client.events.on_notification(notices.append)
    model = ScriptedModel(tool_call("dig"), "one two")
    result = await Agent("a", model=model, tools=[dig]).run("go", client=client)
    await client.events.settle()
    assert "".join(pieces) == "one two"
    assert [(each.text, each.fraction) for each in progress] == [("half way", 0.5)]
    assert [(each.event, each.run_id) for each in notices] == [("run.completed", result.run_id)]
    timeline = await client.events.timeline(run_id=result.run_id)
    assert {"model.text_delta", "tool.progress"}.isdisjoint(event.name for event in timeline)
    assert [event.name for event in timeline][0] == "run.queued"
    assert [event.seq for event in timeline] == sorted(event.seq for event in timeline)


async def test_agent_goes_through_its_states(client: AsyncClient) -> None:
    states: list[str] = []
    events: list[str] = []

    @client.hooks.observe(at.AgentStateChanged)
    async def note(changed: at.AgentStateChanged) -> None:
        states.append(changed.new)

    async def hear(event: BusEvent) -> None:
        events.append(event.name)

    await client.events.subscribe("agent.*", hear)
    agent = Agent("a", model=ScriptedModel(LLMOverloaded(provider="t", detail="x"), "fine"))
    assert await client.agents.state("a") == "uninitialized"
    await agent.run("one", client=client, raise_on_failure=False)
    assert await client.agents.state("a") == "error"
    await agent.run("two", client=client)
    await client.events.settle()
    assert states == [
        "initializing",
        "ready",
        "running",
        "error",
        "recovering",
        "ready",
        "running",
        "ready",
    ]
    assert events == [
        "agent.initialized",
        "agent.ready",
        "agent.executing",
        "agent.error",
        "agent.ready",
        "agent.executing",
        "agent.ready",
    ]


# --- sessions ------------------------------------------------------------------------


class Diary(SessionLifecycle):
    def __init__(self) -> None:
        self.lines: list[str] = []

    async def on_session_created(self, session: Session) -> None:
        self.lines.append(f"created {session.title}")

    async def on_session_updated(self, session: Session) -> None:
        self.lines.append("updated")

    async def on_message_added(self, session: Session, message: Message) -> None:
        assert message.session_id == session.id
        self.lines.append(f"added {message.text}")

    async def on_session_archived(self, session: Session) -> None:
        self.lines.append("archived")

    async def on_session_compacted(self, session: Session) -> None:
        self.lines.append("compacted")


async def test_lifecycle_hears_of_changes_by_another_process(tmp_path: Path) -> None:
    diary = Diary()
    async with AsyncClient(tmp_path) as mine, AsyncClient(tmp_path) as other:
        following = await mine.events.follow_sessions(diary)
        session = await other.create_session("plan")
        await other.add_message(session.id, "user", "hello")
        await other.update_session(session.id, title="better plan")
        for number in range(3):
            await other.add_message(session.id, "assistant", "much said " * 60 + str(number))
        await other.sessions.compact(session.id, model="offline")
        await other.archive_session(session.id)
        await asyncio.wait_for(mine.events.settle(), 10)
        cursor = following.position
        await mine.events.unsubscribe(following)
        gone = await other.create_session("gone")
        await other.delete_session(gone.id)
        await other.restore_session(session.id)
    # A session is handed over as it is when the method is called; here that is at the end.
    assert diary.lines[0].startswith("created ")
    told = [line[:10] for line in diary.lines[1:]]
    said = ["added much"] * 3
    assert told == ["added hell", "updated", *said, "added ", "compacted", "archived"]
    again = Diary()
    async with AsyncClient(tmp_path) as later:
        await later.events.follow_sessions(again, after=cursor)
        await asyncio.wait_for(later.events.settle(), 10)
    assert again.lines == ["updated"]


async def test_session_hooks_hear_of_restore_and_end(client: AsyncClient) -> None:
    heard: list[str] = []

    @client.hooks.observe("session.*")
    async def note(payload: at.HookPayload) -> None:
        heard.append(f"{payload.point} {getattr(payload, 'how', '')}".strip())

    session = await client.create_session("s")
    await client.archive_session(session.id)
    await client.restore_session(session.id)
    # A deletion takes the facts with it; who has not read them by then never will.
    await client.events.settle()
    await client.delete_session(session.id)
    await client.events.settle()
    assert heard == [
        "session.start",
        "session.end archived",
        "session.restore",
        "session.end deleted",
    ]


# --- context, scripts, the blocking client -------------------------------------------


class Greeter:
    def greet(self, name: str) -> str:
        return f"Hello, {name}"


async def test_tools_reach_the_services_and_data_of_their_run(client: AsyncClient) -> None:
    client.context.provide(Greeter, Greeter())
    client.context.data.set("name", "Ada")

    @tool(effect="read")
    async def greet(context: ToolContext) -> str:
        """Greet."""
        execution: ExecutionContext = context.execution
        assert execution.session_id == context.session_id
        execution.data.set("seen", True)
        return execution.get(Greeter).greet(execution.data.get("name", str))

    model = ScriptedModel(tool_call("greet"), "done")
    await Agent("a", model=model, tools=[greet]).run("go", client=client)
    [part] = model.requests[1].messages[-1].tool_calls
    assert part.output == "Hello, Ada"
    assert "seen" not in client.context.data


async def test_script_hooks_need_a_runner_and_then_decide(client: AsyncClient) -> None:
    with pytest.raises(UsageError):
        Hooks().on_script("tool.before_execution", ["./check"])

    class Runner:
        async def run(self, argv: object, stdin: bytes, *, timeout_s: float) -> ScriptOutcome:
            assert b'"tool":"touch"' in stdin
            return ScriptOutcome(exit_code=0, stdout=b'{"verdict":"cancel","reason":"no"}')

    (await client.hooks.registry()).scripts = Runner()
    client.hooks.on_script("tool.before_execution", ["./check"])
    part = await result_of(client, tool_call("touch", path="x"))
    assert "script:./check" in part.error
    assert touched == []


def test_plain_hook_may_call_the_blocking_client(tmp_path: Path) -> None:
    threads: set[str] = set()
    with Client(tmp_path) as client:

        def look(run: at.AgentBeforeExecution) -> None:
            threads.add(threading.current_thread().name)
            assert client.get_session(run.session_id).id == run.session_id

        client.hooks.on("agent.before_execution", look)
        result = Agent("a", model=ScriptedModel("fine")).run_sync("hi", client=client)
        assert (result.response, client.hooks.registry().failures) == ("fine", 0)
    assert threads == {"holdfast-hook"}


async def test_agent_of_a_closed_client_cannot_run(tmp_path: Path) -> None:
    client = AsyncClient(tmp_path)
    agent = Agent("a", model=ScriptedModel("fine", "again"))
    await agent.run("hi", client=client)
    await client.close()
    assert await client.agents.state("a") == "terminated"
    with pytest.raises((UsageError, InvalidTransition)):
        await agent.run("hi", client=client)
