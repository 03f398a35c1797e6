"""An imported session brings no rights: they are inert until the user trusts them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.sessions import PermissionRule
from holdfast.settings import load_settings
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools.gate import AutoConfirm

ALLOW = PermissionRule(permission="*", pattern="*", action="allow")
ASKING = [
    {"permission": "*", "action": "ask"},
    {"permission": "read", "action": "allow"},
]
DENY = PermissionRule(permission="webfetch", pattern="*", action="deny")


def open_client(place: Path, work: Path) -> AsyncClient:
    overrides = {"workspace": str(work), "storage.state_dir": str(place)}
    return AsyncClient(settings=load_settings(overrides=overrides).settings)


async def make_export(tmp_path: Path) -> bytes:
    """A session in which everything is allowed, and a directory outside was granted."""
    outside, work = tmp_path / "outside", tmp_path / "work"
    outside.mkdir()
    work.mkdir()
    (outside / "a.txt").write_text("hidden")
    async with open_client(tmp_path / "there", work) as client:
        session = await client.create_session("x", permission=[DENY])
        agent = Agent("worker", approve=AutoConfirm(), permission=ASKING)
        agent.model = ScriptedModel(tool_call("externaldirectory", path=str(outside)), "done")
        await client.execute_agent(agent, session.id, "go")
        await client.sessions.update(
            session.id, permission=[DENY, ALLOW], metadata={"imported_rules": [{"forged": 1}]}
        )
        await client.sessions.export(session.id, tmp_path / "export.jsonl")
        return (tmp_path / "export.jsonl").read_bytes()


@pytest.mark.parametrize("as_new", [False, True])
@pytest.mark.parametrize("is_trusted", [False, True])
async def test_rules_and_grants_of_an_import_hold_only_when_trusted(
    tmp_path: Path, as_new: bool, is_trusted: bool
) -> None:
    data = await make_export(tmp_path)
    calls = [
        tool_call("write", file_path="b.txt", content="x"),
        tool_call("read", file_path=str(tmp_path / "outside" / "a.txt")),
    ]
    async with open_client(tmp_path / "here", tmp_path / "work") as client:
        session = await client.sessions.load(
            io.BytesIO(data), as_new=as_new, trusts_rules=is_trusted
        )
        assert session.permission == ((DENY, ALLOW) if is_trusted else (DENY,))
        model = ScriptedModel(*calls, "done")
        await client.execute_agent(
            Agent("worker", permission=ASKING, model=model), session.id, "go"
        )
        parts = [request.messages[-1].tool_calls[0] for request in model.requests[1:]]
        assert [part.state == "completed" for part in parts] == [is_trusted, is_trusted], parts
        assert not await client.audit.verify()
        if not is_trusted:
            [inert] = session.metadata["imported_rules"]
            assert inert["action"] == "allow"


async def test_an_import_that_allows_nothing_is_kept_as_it_was(tmp_path: Path) -> None:
    async with open_client(tmp_path / "there", tmp_path) as client:
        session = await client.create_session("x", permission=[DENY])
        await client.sessions.export(session.id, tmp_path / "export.jsonl")
        data = (tmp_path / "export.jsonl").read_bytes()
    async with open_client(tmp_path / "here", tmp_path) as client:
        assert await client.sessions.load(io.BytesIO(data)) == session


async def export_parked(place: Path, tmp_path: Path, answer: str) -> bytes:
    """Leave a run that waits for consent to a write, and answer it there."""
    work = tmp_path / "work"
    work.mkdir()
    async with open_client(place, work) as client:
        model = ScriptedModel(tool_call("write", file_path="b.txt", content="x"), "done")
        agent = Agent("worker", permission=ASKING, model=model)
        parked = await client.runs.execute(agent, "", "go", run_id="job", on_ask="park")
        assert parked.status == "parked"
        [waiting] = await client.approvals.list()
        if answer == "allow":
            await client.approvals.approve(waiting.id, by="eve")
        elif answer == "deny":
            await client.approvals.deny(waiting.id, by="eve", reason="never")
        await client.sessions.export(parked.session_id, tmp_path / "export.jsonl")
        return (tmp_path / "export.jsonl").read_bytes()


@pytest.mark.parametrize("answer", ["allow", "none", "deny"])
@pytest.mark.parametrize("is_trusted", [False, True])
async def test_consent_that_was_given_elsewhere_is_none_here(
    tmp_path: Path, answer: str, is_trusted: bool
) -> None:
    data = await export_parked(tmp_path / "there", tmp_path, answer)
    written = tmp_path / "work" / "b.txt"
    async with open_client(tmp_path / "here", tmp_path / "work") as client:
        await client.sessions.load(io.BytesIO(data), trusts_rules=is_trusted)
        before = await client.approvals.list()
        assert [one.status for one in before] == (
            ["open"] if is_trusted and answer == "none" else []
        )
        model = ScriptedModel("done", "done")
        agent = Agent("worker", permission=ASKING, model=model)
        result = await client.runs.execute(agent, "", "go", run_id="job", on_ask="park")
        if answer == "deny":
            assert (result.status, written.exists()) == ("completed", False)
        elif is_trusted and answer == "allow":
            assert (result.status, written.exists()) == ("completed", True)
        else:
            assert (result.status, written.exists()) == ("parked", False)
            # Asked anew, it can be answered here.
            [asked] = await client.approvals.list()
            assert is_trusted or asked.id not in data.decode()
            await client.approvals.approve(asked.id, by="ann")
            result = await client.runs.execute(agent, "", "go", run_id="job", on_ask="park")
            assert (result.status, written.exists()) == ("completed", True)
        assert not await client.audit.verify()
