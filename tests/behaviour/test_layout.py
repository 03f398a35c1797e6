"""The records as plain files, and what must not be in them."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast import Agent, AsyncClient, tool
from holdfast.redaction import Redactor
from holdfast.testing import ScriptedModel, tool_call

SECRET = "correct-horse-battery-staple-9431"


@tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_layout_holds_sessions_messages_calls_agents_memories_and_runs(
    tmp_path: Path,
) -> None:
    async with AsyncClient(tmp_path / "state") as client:
        session = await client.create_session("files")
        await client.register_agent(Agent("Helper", prompt="Help."))
        memory = await client.store_memory(session.id, "User prefers dark mode")
        model = ScriptedModel(tool_call("add", a=1, b=2), "3")
        result = await Agent("a", model=model, tools=[add]).run(
            "1 + 2?", session=session.id, run_id="sum", client=client
        )
        count = await client.storage.export_layout(tmp_path / "out")
    files = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out").rglob("*.*")}
    assert count == len(files)
    assert result.status == "completed"
    assert {
        f"storage/session/{session.id}.json",
        f"storage/memory/{session.id}/{memory}.json",
        "storage/agent/Helper.json",
        "run-sum.jsonl",
    } <= files
    assert any(name.startswith(f"storage/message/{session.id}/") for name in files)
    assert any(name.startswith(f"storage/tool_execution/{session.id}/") for name in files)
    kept = json.loads((tmp_path / "out/storage/memory" / session.id / f"{memory}.json").read_text())
    assert kept["content"] == "User prefers dark mode"


async def test_known_secret_reaches_neither_journal_nor_memory(tmp_path: Path) -> None:
    redactor = Redactor({"TEST_SECRET": SECRET})
    async with AsyncClient(tmp_path, redactor=redactor) as client:
        session = await client.create_session("secret")
        await client.add_message(session.id, "user", f"the password is {SECRET}")
        await client.store_memory(session.id, f"the password is {SECRET}", {"note": SECRET})
        [found] = await client.search_memory(session.id, "password")
    assert "password" in found.content
    contents = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert not any(SECRET.encode() in content for content in contents)
