"""What a caller from outside may do: scopes, the limit to one agent, and its own name only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.client import LocalChannel
from holdfast.client.surface import ClientSurface
from holdfast.errors import NotPermitted, UsageError
from holdfast.operations import OWNER, Async, Caller
from holdfast.runtime import Runtime
from holdfast.sessions import PermissionRule
from holdfast.testing import ScriptedModel, tool_call

ALLOW_ALL = PermissionRule(permission="*", action="allow")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(tmp_path) as opened:
        yield opened


def of(client: AsyncClient, *scopes: str, subject: str = "ada") -> ClientSurface[Async]:
    """Return a client of the same runtime in the name of a caller who sees what all own."""
    caller = Caller(tenant="t", subject=subject, scopes=frozenset({"sessions:all", *scopes}))
    runtime: Runtime = client._runtime
    return ClientSurface(runtime, LocalChannel(runtime, caller))


async def register(client: AsyncClient, *names: str) -> None:
    for name in names:
        await client.register_agent(Agent(name, model=ScriptedModel(*["fine"] * 9)))


# --- one agent ------------------------------------------------------------------------


async def test_a_scope_for_one_agent_is_good_for_that_agent(client: AsyncClient) -> None:
    await register(client, "Helper")
    limited = of(client, "runs:write:helper", "runs:read:helper")
    result = await limited.runs.execute("helper", "", "hi")
    assert result.status == "completed"
    assert (await limited.runs.result(result.run_id)).response == "fine"
    run = await limited.runs.start("helper", "", "hi")
    assert [item async for item in run.stream()]
    assert [item async for item in limited.runs.stream("helper", "", "hi")]
    assert [item async for item in run.events()]


async def test_a_scope_for_one_agent_is_good_for_no_other(client: AsyncClient) -> None:
    await register(client, "helper", "other")
    theirs = await client.runs.execute("other", "", "hi", run_id="run_theirs")
    limited = of(client, "runs:*:helper")
    with pytest.raises(NotPermitted):
        await limited.runs.execute("other", "", "hi")
    with pytest.raises(NotPermitted):
        await limited.runs.start("other", "", "hi")
    with pytest.raises(NotPermitted):
        [item async for item in limited.runs.stream("other", "", "hi")]
    for asked in (limited.runs.result, limited.runs.get, limited.runs.cancel, limited.runs.request):
        with pytest.raises(NotPermitted):
            await asked("run_theirs")  # type: ignore[operator]
    with pytest.raises(NotPermitted):
        [item async for item in limited.runs.events("run_theirs")]
    # Naming one's own agent does not open the run of another one.
    with pytest.raises(NotPermitted):
        await limited.runs.execute("helper", "", "hi", run_id=theirs.run_id)


async def test_what_concerns_no_agent_in_particular_needs_the_whole_scope(
    client: AsyncClient,
) -> None:
    await register(client, "helper")
    session = await client.sessions.create("s")
    limited = of(client, "runs:read:helper", "runs:write:helper", "agents:read:helper")
    with pytest.raises(NotPermitted):
        await limited.runs.list()
    with pytest.raises(NotPermitted):
        await limited.runs.get("run_missing")
    with pytest.raises(NotPermitted):
        await limited.runs.steer(session.id, "hi")
    with pytest.raises(NotPermitted):
        await limited.agents.list()
    # A message could reach whichever run is under way there.
    for on_busy in ("steer", "interrupt"):
        with pytest.raises(NotPermitted):
            await limited.runs.execute("helper", session.id, "hi", on_busy=on_busy)
    # Without a name the session's own agent answers, here `build`.
    with pytest.raises(NotPermitted):
        await limited.runs.execute("", session.id, "hi")
    with pytest.raises(NotPermitted):
        await limited.runs.execute("", "", "hi")
    assert (await limited.agents.get("helper")) is not None
    with pytest.raises(NotPermitted):
        await limited.agents.get("build")


@pytest.mark.parametrize("scope", ["runs:write:", "runs::helper", "runs:writes:helper", ":", "::"])
def test_a_scope_that_is_not_written_well_gives_nothing(scope: str) -> None:
    caller = Caller(tenant="t", subject="ada", scopes=frozenset({scope}))
    assert not caller.may("runs:write")
    assert not caller.may("runs:write", "helper")


def test_a_caller_has_no_scopes_unless_they_are_given() -> None:
    assert Caller(tenant="t", subject="ada").scopes == frozenset()
    assert Caller(tenant="t", subject="ada", scopes=frozenset({"runs:write:a:b"})).may(
        "runs:write", "A:B"
    )


def test_a_caller_sees_its_own_unless_a_scope_says_otherwise() -> None:
    ada = Caller(tenant="t", subject="ada", scopes=frozenset({"sessions:read"}))
    assert (ada.may_see("ada"), ada.may_see("bob")) == (True, False)
    everyone = Caller(tenant="t", subject="ada", scopes=frozenset({"sessions:all"}))
    assert everyone.may_see("bob")
    assert OWNER.may_see("bob")


# --- fields with a scope of their own ---------------------------------------------------


async def test_rules_and_directories_need_more_than_the_right_to_write_sessions(
    client: AsyncClient,
) -> None:
    writer = of(client, "sessions:*", "skills:read")
    session = await writer.sessions.create("plain")
    with pytest.raises(NotPermitted) as refused:
        await writer.sessions.create("mine", permission=[ALLOW_ALL])
    assert refused.value.context["scope"] == "policies:admin"
    with pytest.raises(NotPermitted):
        await writer.sessions.update(session.id, permission=[ALLOW_ALL])
    with pytest.raises(NotPermitted):
        await writer.sessions.create("elsewhere", directory="/etc")
    with pytest.raises(NotPermitted):
        await writer.skills.list("/etc")
    admin = of(client, "sessions:write", "policies:admin")
    assert (await admin.sessions.create("mine", permission=[ALLOW_ALL])).permission


# --- in whose name ----------------------------------------------------------------------


@tool(permission="ask")
def launch(target: str) -> str:
    """Launch something."""
    return f"launched {target}"


async def waiting(client: AsyncClient) -> str:
    agent = Agent(
        "pilot", model=ScriptedModel(tool_call("launch", target="x"), "ok"), tools=[launch]
    )
    result = await client.runs.execute(agent, "", "go", on_ask="park")
    assert result.status == "parked"
    return (await client.approvals.list())[0].id


async def test_a_caller_answers_in_its_own_name(client: AsyncClient) -> None:
    asked = await waiting(client)
    ada = of(client, "approvals:answer", "approvals:read")
    assert (await ada.approvals.get(asked)).approval.id == asked
    answered = await ada.approvals.approve(asked)
    assert "ada" in str(answered)


@pytest.mark.parametrize("scopes", [("approvals:answer",), ("*",)])
async def test_a_caller_cannot_answer_in_another_name(
    client: AsyncClient, scopes: tuple[str, ...]
) -> None:
    asked = await waiting(client)
    ada = of(client, *scopes)
    with pytest.raises(NotPermitted):
        await ada.approvals.approve(asked, by="bob")
    with pytest.raises(NotPermitted):
        await ada.approvals.deny(asked, by="owner")
    with pytest.raises(NotPermitted):
        await ada.approvals.answer("ses_x", "call", "yes", by="bob")
    with pytest.raises(NotPermitted):
        await ada.approvals.decide_outcome("ses_x", "call", "abort", by="bob")
    assert [one.status for one in await client.approvals.list()] == ["open"]
    denied = await ada.approvals.deny(asked, by="ada", reason="no")
    assert denied.status == "denied"


async def test_the_owner_says_on_whose_behalf(client: AsyncClient) -> None:
    asked = await waiting(client)
    with pytest.raises(UsageError):
        await client.approvals.approve(asked)
    assert "bob" in str(await client.approvals.approve(asked, by="bob"))


async def test_who_has_policies_read_again_is_the_caller(client: AsyncClient) -> None:
    admin = of(client, "policies:admin")
    with pytest.raises(NotPermitted):
        await admin.policies.reload(asked_by="bob")
    await admin.policies.reload()
