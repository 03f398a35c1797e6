"""What tools remember belongs to the session: it outlives the run, the client and the process."""

from __future__ import annotations

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import UsageError
from holdfast.state import MOST_BYTES
from holdfast.testing import ModelReply, ScriptedModel, tool_call
from holdfast.tools import ToolContext
from holdfast.tools.gate import AutoConfirm


def allow(permission: str) -> dict[str, str]:
    return {"permission": permission, "pattern": "*", "action": "allow"}


async def todos(client: AsyncClient, session_id: str) -> str:
    called = await client.tools.call("todoread", {}, session_id=session_id)
    assert called.part.state == "completed"
    return called.part.output


async def test_a_list_of_things_to_do_is_there_in_the_next_run_and_only_in_its_session(tmp_path):
    items = [{"content": "sweep", "status": "in_progress"}, {"content": "mop"}]
    model = ScriptedModel(ModelReply(calls=(tool_call("todowrite", todos=items),)), "noted")
    agent = Agent("janitor", model=model, permission=[allow("todowrite")])
    async with AsyncClient(tmp_path / "state") as client:
        session = await client.create_session("one", directory=tmp_path)
        other = await client.create_session("two", directory=tmp_path)
        await agent.run("go", session=session.id, client=client)
    async with AsyncClient(tmp_path / "state") as client:
        assert await todos(client, session.id) == "[>] sweep\n[ ] mop"
        assert await todos(client, other.id) == "(nothing to do)"
        fork = await client.fork_session(session.id)
        assert await todos(client, fork.id) == "[>] sweep\n[ ] mop"


async def test_a_directory_stays_in_reach_for_the_rest_of_its_session(tmp_path):
    outside, place = tmp_path / "outside", tmp_path / "ws"
    outside.mkdir()
    place.mkdir()
    (outside / "a.txt").write_text("hello")
    asked = {"file_path": str(outside / "a.txt")}
    async with AsyncClient(tmp_path / "state") as client:
        client.approver = AutoConfirm()
        session = await client.create_session("s", directory=place)
        refused = await client.tools.call("read", asked, session_id=session.id)
        assert refused.part.state == "error"
        granted = await client.tools.call(
            "externaldirectory", {"path": str(outside)}, session_id=session.id
        )
        assert granted.part.state == "completed"
    async with AsyncClient(tmp_path / "state") as client:
        client.approver = AutoConfirm()
        seen = await client.tools.call("read", asked, session_id=session.id)
        assert "hello" in seen.part.output
        changed = {**asked, "content": "bye"}
        assert (await client.tools.call("write", changed, session_id=session.id)).part.error
        model = ScriptedModel(ModelReply(calls=(tool_call("read", **asked),)), "done")
        agent = Agent("reader", model=model, permission=[allow("*")])
        await agent.run("go", session=session.id, client=client)
        [last] = await client.get_execution_history(session.id, 1)
        assert (last.tool, last.state) == ("read", "completed")
        assert "hello" in last.output
        # A directory that is gone since is no reason to fail.
        (outside / "a.txt").unlink()
        outside.rmdir()
        assert (await client.tools.call("todoread", {}, session_id=session.id)).part.output


async def test_tools_of_ones_own_remember_too_and_what_cannot_be_kept_is_refused(tmp_path):
    @tool(effect="idempotent", permission="allow")
    async def count(context: ToolContext) -> int:
        """Count."""
        seen = await context.state.get("count")
        now = (seen if isinstance(seen, int) else 0) + 1
        await context.state.set("count", now)
        return now

    async with AsyncClient(tmp_path / "state") as client:
        await client.register_tool(count)
        session = await client.create_session("s", directory=tmp_path)
        outputs = [
            (await client.tools.call("count", {}, session_id=session.id)).part.output
            for _ in range(2)
        ]
        assert outputs == ["1", "2"]
        place = f"session:{session.id}/count"
        for value in ({1, 2}.__iter__(), "x" * MOST_BYTES, loop(), float("nan"), "\ud800"):
            with pytest.raises(UsageError):
                await client.state.set(place, value)
        assert await client.state.get(place) == 2
        await client.state.set(place, None)
        assert await client.state.get(place, "default") is None


def loop() -> list[object]:
    made: list[object] = []
    made.append(made)
    return made
