"""Every answer that travels as JSON arrives equal to what it was; every error, as its class."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from json_channel import JsonChannel

from holdfast import Agent
from holdfast.agents import AgentResult
from holdfast.client.surface import ClientSurface
from holdfast.errors import (
    HoldfastError,
    NotFound,
    NotPermitted,
    RunFailed,
    StateConflict,
    UsageError,
    list_errors,
)
from holdfast.messages import TextPart
from holdfast.operations import OWNER, Async, Caller, Problem, list_operations
from holdfast.orchestration.loop import LoopOptions, LoopReport, LoopSetup
from holdfast.policy import Budget
from holdfast.providers import TextDelta
from holdfast.runtime import Runtime
from holdfast.settings import load_settings

EVERYTHING = Caller(tenant="t", subject="ada", scopes=frozenset({"*"}))

NOT_HERE = {
    "approvals.approve": "needs a call that waits: test_approvals_by_caller",
    "approvals.deny": "needs a call that waits: test_approvals_by_caller",
    "approvals.decide_outcome": "needs a crash",
    "approvals.answer": "needs a question that waits",
    "approvals.get": "needs a call that waits: test_approvals_by_caller",
    "loops.load": "needs the file of a loop",
    "mcp.accept": "needs a server",
    "mcp.forget": "needs a server",
    "mcp.grant": "needs a server",
    "mcp.health": "needs a server",
    "mcp.invoke": "needs a server",
    "mcp.tools": "needs a server",
    "mcp.list_resources": "needs a server",
    "mcp.list_prompts": "needs a server",
    "mcp.log_out": "needs a server",
    "mcp.trust": "needs a server",
    "runs.answer_calls": "needs a run that waits for its client: test_openai_face",
    "runs.waiting": "needs a run that waits for its client: test_openai_face",
    "runs.wake": "needs a run that waits for its client: test_mcp_peers",
    "runs.steer": "needs a run under way",
    "runs.steer_run": "needs a run under way",
    "storage.migrate": "needs a database server: tests/unit/journal/test_postgres_store.py",
    "storage.status": "needs a database server: tests/unit/journal/test_postgres_store.py",
    "storage.mend": "needs a damaged store: tests/crash/test_damaged_databases.py",
    "tools.output": "needs an output that was too long",
    "workers.retry": "needs a wake-up that was given up: test_dispatchers",
    "workflows.resume": "needs a workflow that waits",
    **{
        name: "asked for over HTTP by tests/unit/server and tests/unit/webhooks"
        for name in list_operations()
        if name.startswith(("keys.", "tenants.", "webhooks."))
    },
}
"""Operations whose answers this file does not make, and why; may only shrink."""

FLOW = {
    "name": "greet",
    "inputs": {"who": {"type": "string"}},
    "steps": [{"id": "say", "value": {"text": "Hello ${inputs.who}"}}],
}


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    workspace = tmp_path / "work"
    hooks = workspace / ".holdfast" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "look.yaml").write_text("point: tool.before_execution\ncommand: [./look]\n")
    flows = workspace / ".holdfast" / "workflows"
    flows.mkdir()
    (flows / "greet.yaml").write_text(msgspec.json.encode(FLOW).decode())
    skill = workspace / ".holdfast" / "skills" / "tidy"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: tidy\ndescription: Tidy up.\n---\nTidy.\n")
    settings = load_settings(
        overrides={
            "audit.anchor": f"file://{tmp_path}/anchors.jsonl",
            "workspace": str(workspace),
            "model.name": "offline",
            "secrets.link_key": "k" * 44,
        }
    )
    made = Runtime(settings.settings, base_dir=tmp_path / "state")
    await made.opened()
    yield made
    await made.close()


def remote(runtime: Runtime, caller: Caller = EVERYTHING) -> ClientSurface[Async]:
    """Return a client whose every call travels as JSON."""
    return ClientSurface(runtime, JsonChannel(runtime, caller))


async def items_of(stream: Any, most: int = 1_000) -> list[Any]:
    found = []
    async for item in stream:
        found.append(item)
        if len(found) == most:
            break
    await stream.aclose()
    return found


async def test_answers_arrive_as_they_were_sent(runtime: Runtime) -> None:
    client = remote(runtime)
    session = await talk(client)
    await converse(client, session)
    await remember(client, session)
    await automate(client)
    await keep(client)
    await file(client, session)
    await look_after(client, session)
    performed = client._channel.performed  # type: ignore[attr-defined]
    assert set(list_operations()) - performed == set(NOT_HERE)


async def talk(client: ClientSurface[Async]) -> str:
    """Sessions and messages."""
    session = await client.sessions.create("One", metadata={"a": [1, {"b": None}]})
    assert (await client.sessions.get(session.id)) == session
    message = await client.messages.add(session.id, "user", "Hello")
    assert (await client.messages.get(session.id, message.id)).text == "Hello"
    await client.messages.update_part(session.id, message.id, TextPart(id="p1", text="more"))
    assert len((await client.messages.list(session.id)).items) == 1
    await client.sessions.update(session.id, title="Two")
    assert (await client.sessions.list()).items[0].title == "Two"
    assert (await client.sessions.most_recent()) is not None
    copy = await client.sessions.fork(session.id)
    await client.sessions.revert(copy.id, to=1)
    assert (await client.sessions.undo(copy.id, to=1)).restored == ()
    await client.sessions.archive(copy.id)
    await client.sessions.restore(copy.id)
    await client.sessions.change_state(copy.id, "archived")
    lines = b"".join(await items_of(client.sessions.lines(session.id)))
    await client.sessions.load(lines, as_new=True)
    await client.messages.delete(session.id, message.id)
    await client.sessions.delete(copy.id)
    return session.id


async def converse(client: ClientSurface[Async], session: str) -> None:
    """Runs, in every form, and what is seen of them."""
    limits = Budget(max_tokens=100_000)
    result = await client.runs.execute("build", session, "What is 15 times 23?", budget=limits)
    assert (result.status, type(result)) == ("completed", AgentResult)
    items = await items_of(client.runs.stream("build", session, "Hello", with_children=True))
    assert isinstance(items[-1], AgentResult)
    assert any(isinstance(item, TextDelta) for item in items)
    run = await client.runs.start("build", session, "Hello again")
    assert isinstance((await items_of(run.stream()))[-1], AgentResult)
    assert (await run.result()).run_id == run.id
    assert [event.kind for event in await items_of(run.events())][-1] == "run.completed"
    assert (await run.state()).id == run.id
    await run.fork()
    await client.runs.cancel(run.id)
    assert (await client.runs.request(run.id)).on_ask == "deny"
    assert [one.id for one in await client.runs.list(limit=1)] == [run.id]
    assert [one.id for one in (await client.runs.find(limit=1)).items] == [run.id]
    assert (await client.runs.await_answer(run.id)).id == run.id
    assert await client.runs.children(run.id) == []
    assert await client.runs.cancel_children(run.id) == 0
    assert await client.runs.interrupted() == []
    assert await client.runs.family_events(session)
    assert await items_of(client.runs.watch_family(session, after=0), most=3)
    assert (await client.sessions.context(session)).account.total > 0
    await client.sessions.compact(session)
    assert await client.usage.get(session)
    assert "holdfast_runs_total" in await client.usage.metrics()
    call = await client.tools.call("list", {"path": "."}, session_id=session)
    assert call.run.status == "completed"
    assert await client.tools.history(session)
    left = await client.runs.submit("build", session, "Later")
    await client.runs.cancel(left.id)
    assert (await client.runs.wait(left.id)).status == "cancelled"
    assert "bash" in [one.name for one in await client.tools.list()]
    assert (await client.tools.describe("bash"))["parameters"]["properties"]["command"]


async def remember(client: ClientSurface[Async], session: str) -> None:
    """Memories."""
    kept = await client.memory.store(session, "The gate is green", {"n": 1})
    assert (await client.memory.get(kept)).content == "The gate is green"
    assert await client.memory.search(session, "gate")
    assert (await client.memory.relevant(session, "gate", 100)).memories
    newer = await client.memory.update(kept, "The gate is red")
    assert len(await client.memory.history(newer)) == 2
    await client.memory.pin(newer)
    assert await client.memory.list(session)
    assert await client.memory.summarize(session)
    assert await client.memory.remember_session(session)
    assert await client.memory.stats()
    await client.memory.reindex()
    lines = b"".join(await items_of(client.memory.lines(session)))
    assert (await client.memory.load(lines))[0] == 0
    await client.memory.delete(newer)
    await client.memory.forget([kept])


async def automate(client: ClientSurface[Async]) -> None:
    """Workflows, loops and triggers."""
    assert (await client.workflows.validate(FLOW)).definition.name == "greet"
    [known] = await client.workflows.list()
    assert known.definition == (await client.workflows.validate("greet")).definition
    done = await client.workflows.run("greet", {"who": "Ada"})
    assert (await client.workflows.get(done.run_id)).output == done.output
    assert await client.workflows.runs()
    options = LoopOptions(executor="build")
    report = await client.loops.run("Say hello", run_id="run_loop", options=options)
    assert await client.loops.report("run_loop") == report
    assert (await client.loops.state("run_loop")).goal == "Say hello"
    assert (await client.loops.replay("run_loop"))[0].fact is not None
    told = await items_of(client.loops.stream("", run_id="run_loop"))
    assert isinstance(told[-1], LoopReport)
    told = await items_of(client.loops.stream("Say hello", run_id="run_other"))
    assert {type(one).__name__ for one in told} == {"LoopNews", "LoopReport"}
    left = await client.loops.submit("Say hello", run_id="run_left", options=options)
    assert (left.status, left.owner) == ("queued", "")
    await client.runs.cancel("run_left")
    trigger = {"name": "t", "at": {"cron": "0 6 * * *"}, "agent": "build", "message": "go"}
    await client.triggers.add(trigger)
    assert [one.name for one in await client.triggers.list()] == ["t"]
    await client.triggers.run(once=True)
    assert await client.triggers.firings() == []
    await client.triggers.remove("t")


async def keep(client: ClientSurface[Async]) -> None:
    """State."""
    entry = await client.state.set("user/a", {"b": [1, None]}, ttl_s=60, labels=["private"])
    assert await client.state.entry("user/a") == entry
    assert await client.state.get("user/a") == {"b": [1, None]}
    assert await client.state.get("user/none", "default") == "default"
    merged = await client.state.set("user/a", {"c": 1}, expected=0, on_conflict="merge")
    assert merged.value == {"b": [1, None], "c": 1}
    with pytest.raises(StateConflict) as caught:
        await client.state.set("user/a", 1, expected=1)
    assert caught.value.context["found"] == 2
    assert [one.key for one in (await client.state.list("user/")).entries] == ["a"]
    assert [one.version for one in await client.state.history("user/a")] == [2, 1]
    [change] = await items_of(client.state.watch("user/", after=0), most=1)
    assert change.labels == ("private",)
    then = await client.state.snapshot("user")
    assert await client.state.delete("user/a")
    assert await client.state.restore("user", then.position) == 1
    assert await client.state.sweep() == 0
    assert await client.state.forget("user", reason="test")


async def file(client: ClientSurface[Async], session: str) -> None:
    """Artifacts."""
    data = bytes(range(256))
    kept = await client.artifacts.save("a.bin", data, session_id=session)
    assert (await client.artifacts.write(data, "b.bin", session_id=session)).digest == kept.digest
    assert await client.artifacts.get(kept.id, session_id=session) == kept
    assert await client.artifacts.load(kept.id, session_id=session) == data
    assert b"".join(await items_of(client.artifacts.stream(kept.id, session_id=session))) == data
    assert kept in (await client.artifacts.list(session_id=session)).items
    assert await client.artifacts.versions(kept.id, session_id=session) == [kept]
    assert (await client.artifacts.usage()).count > 0
    given = await client.artifacts.grant(kept.id, "bob")
    assert given in await client.artifacts.grants(kept.id)
    await client.artifacts.revoke(kept.id, subject="bob")
    link = await client.artifacts.share(kept.id)
    assert (await client.artifacts.shared(link.token)).id == kept.id
    assert b"".join(await items_of(client.artifacts.stream_shared(link.token))) == data
    assert await client.artifacts.verify() == []
    assert await client.artifacts.rekey()
    assert await client.artifacts.collect()
    await client.artifacts.delete(kept.id, session_id=session, reason="test")


async def look_after(client: ClientSurface[Async], session: str) -> None:
    """What operators look at."""
    assert (await client.agents.get("build")) in await client.agents.list()
    assert await client.agents.get("nobody") is None
    assert await client.agents.state("build")
    assert await client.agents.remove("nobody") is False
    assert await client.agents.check() == []
    assert [one.name for one in await client.hooks.list()] == ["look"]
    assert (await client.hooks.trust())[0].is_trusted
    assert (await client.skills.list()).get("tidy").directory.endswith("tidy")
    assert (await client.skills.trust("tidy")).is_trusted
    assert await client.providers.list()
    assert await client.mcp.endpoints() == []
    assert await client.workers.list() == []
    assert await client.workers.list_dead() == []
    assert await client.policies.reload()
    assert (await client.policies.status()).version
    assert (await client.policies.get()).version
    assert (await client.policies.validate()).is_valid
    assert (await client.policies.explain("bash", kind="command", target="ls")).rules
    assert (await client.policies.replay()).changes == ()
    assert await client.approvals.list() == []
    assert await client.approvals.questions() == []
    assert await client.approvals.terms()
    assert await client.audit.list(action="policy.loaded")
    assert await client.audit.verify_trail() == []
    assert await client.audit.verify(heads=await client.audit.heads()) == []
    assert (await client.audit.anchor()).seq > 0
    assert await client.storage.stats()
    assert await client.storage.rebuild() > 0
    assert await client.storage.clean_up()
    assert await client.events.count(session) == len(await client.events.list(session))
    assert await client.events.timeline(session_id=session)
    assert await items_of(client.events.watch(after=0), most=3)
    assert await items_of(client.events.stream(after=0), most=3)


async def test_errors_arrive_as_their_class(runtime: Runtime) -> None:
    client = remote(runtime)
    with pytest.raises(NotFound) as missing:
        await client.sessions.get("ses_nothing")
    assert missing.value.context["kind"] == "session"
    await runtime.agents.register_agent(Agent("broken", model="nowhere:none"))
    with pytest.raises(HoldfastError):
        await client.runs.execute("broken", "", "hi")
    with pytest.raises(NotPermitted) as refused:
        await remote(runtime, Caller(tenant="t", subject="eve")).sessions.list()
    assert refused.value.context == {"subject": "eve", "scope": "sessions:read"}


@pytest.mark.parametrize("code", sorted(list_errors()))
def test_every_error_becomes_a_problem_and_the_same_class_again(code: str) -> None:
    kind = list_errors()[code]
    error = kind(**{name: f"some {name}" for name in kind.fields()})
    sent = msgspec.json.encode(Problem.of(error))
    arrived = msgspec.json.decode(sent, type=Problem).to_error()
    assert type(arrived) is kind
    assert (str(arrived), arrived.hint, arrived.context) == (str(error), error.hint, error.context)
    assert arrived.is_retryable == error.is_retryable


def test_codes_of_errors_are_unique() -> None:
    kinds = list(every_kind(HoldfastError))
    assert len({kind.code for kind in kinds}) == len(kinds)


def every_kind(kind: type[HoldfastError]) -> Any:
    yield kind
    for child in kind.__subclasses__():
        if child.__module__.startswith("holdfast.errors."):
            yield from every_kind(child)


def test_a_failure_that_is_not_ours_tells_nothing_of_itself() -> None:
    problem = Problem.of(ValueError("the password is swordfish"))
    assert problem.code == "internal"
    assert "swordfish" not in msgspec.json.encode(problem).decode()
    assert type(problem.to_error()) is HoldfastError


async def test_python_objects_are_refused_with_what_to_send_instead(runtime: Runtime) -> None:
    client = remote(runtime)
    for asked in (
        client.runs.execute(Agent("a"), "", "hi"),
        client.loops.run("x", options=LoopSetup()),
        client.sessions.create("x", directory=Path()),
        client.workflows.run(Path("x.yaml")),
        client.storage.rebuild(lambda done, total: None),
        client.register_agent(Agent("a")),
    ):
        with pytest.raises(UsageError) as refused:
            await asked
        assert refused.value.context["detail"]
    with pytest.raises(UsageError, match="hooks"):
        client.hooks.on("tool.before_execution")


async def test_a_run_that_failed_arrives_as_run_failed(runtime: Runtime) -> None:
    client = remote(runtime)
    budget = Budget(max_tokens=1)
    failed = await client.runs.execute("build", "", "hi", budget=budget)
    assert failed.status == "failed"
    with pytest.raises(RunFailed):
        await client.runs.result(failed.run_id)


async def test_a_path_from_outside_is_no_workflow(runtime: Runtime, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(msgspec.json.encode(FLOW).decode())
    with pytest.raises(UsageError):
        await remote(runtime).workflows.validate(str(tmp_path / "w.yaml"))
    assert await remote(runtime, OWNER).workflows.validate(str(tmp_path / "w.yaml"))
