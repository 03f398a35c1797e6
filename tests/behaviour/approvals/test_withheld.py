"""A call whose arguments held a secret is never run with what redaction left of them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.redaction import Redactor, list_withheld
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools.gate import AutoConfirm

SECRET = "hunter2-hunter2-hunter2"


def test_markers_are_found_wherever_they_stand() -> None:
    redactor = Redactor({"MY_PASSWORD": SECRET})
    packed = base64.b64encode(f"user:{SECRET}:and more text".encode()).decode()
    value = {"a": {"b": ["x", SECRET]}, SECRET: 1, "plain": "y", "n": 3, "packed": packed}
    assert set(list_withheld(redactor.value(value))) == {
        "a.b.1",
        "[redacted:my-password]",
        "packed",
    }
    assert list_withheld([SECRET]) == ()
    assert list_withheld(["[redacted:x]"]) == ("0",)


def janitor(seen: list[str], model: ScriptedModel) -> Agent:
    @tool(permission="ask")
    async def login(password: str) -> str:
        """Log in."""
        seen.append(password)
        return "in"

    return Agent("janitor", model=model, tools=[login])


async def test_parked_call_with_a_secret_is_refused_when_it_resumes(tmp_path: Path) -> None:
    seen: list[str] = []
    redactor = Redactor({"MY_PASSWORD": SECRET})
    async with AsyncClient(tmp_path, redactor=redactor) as client:
        agent = janitor(seen, ScriptedModel(tool_call("login", password=SECRET)))
        parked = await client.execute_agent(agent, "", "go", run_id="job", on_ask="park")
        assert parked.status == "parked"
        [open_one] = await client.approvals.list()
        await client.approvals.approve(open_one.id, by="ada")
    model = ScriptedModel("understood")
    async with AsyncClient(tmp_path, redactor=redactor) as client:
        result = await client.execute_agent(janitor(seen, model), "", "go", run_id="job")
        assert (result.status, seen) == ("completed", [])
        [call] = model.requests[0].messages[-1].tool_calls
        assert call.state == "error"
        assert "password" in call.error
        assert await client.approvals.list() == []


async def test_secret_in_arguments_that_a_person_put_in_is_refused_too(tmp_path: Path) -> None:
    seen: list[str] = []
    redactor = Redactor({"MY_PASSWORD": SECRET})
    async with AsyncClient(tmp_path, redactor=redactor) as client:
        model = ScriptedModel(tool_call("login", password="guess"), "understood")
        agent = janitor(seen, model)
        await client.execute_agent(agent, "", "go", run_id="job", on_ask="park")
        [open_one] = await client.approvals.list()
        await client.approvals.approve(open_one.id, by="ada", arguments={"password": SECRET})
        result = await client.execute_agent(agent, "", "go", run_id="job", on_ask="park")
        assert seen == []
        assert result.status in ("completed", "parked")


@pytest.mark.parametrize("password", [SECRET, "plain words"])
async def test_call_that_runs_at_once_gets_what_the_model_wrote(
    tmp_path: Path, password: str
) -> None:
    seen: list[str] = []
    async with AsyncClient(tmp_path, redactor=Redactor({"MY_PASSWORD": SECRET})) as client:
        model = ScriptedModel(tool_call("login", password=password), "fine")
        client.approver = AutoConfirm()
        await client.execute_agent(janitor(seen, model), "", "go")
    assert seen == [password]


async def test_a_call_by_hand_gets_what_was_given_and_never_a_marker(tmp_path: Path) -> None:
    seen: list[str] = []

    @tool(permission="allow")
    async def note(text: str) -> str:
        """Note."""
        seen.append(text)
        return "noted"

    @tool(permission="ask")
    async def login(password: str) -> str:
        """Log in."""
        seen.append(password)
        return "in"

    async with AsyncClient(tmp_path, redactor=Redactor({"MY_PASSWORD": SECRET})) as client:
        await client.register_tool(note)
        await client.register_tool(login)
        called = await client.tools.call("note", {"text": SECRET})
        assert (called.part.state, seen) == ("completed", [SECRET])
        given = {"password": SECRET}
        await client.tools.call("login", given, run_id="later", on_ask="park")
        [open_one] = await client.approvals.list()
        await client.approvals.approve(open_one.id, by="ada")
        called = await client.tools.call("login", given, run_id="later")
        assert called.part.state == "error"
        assert "password" in called.part.error
        assert seen == [SECRET]
