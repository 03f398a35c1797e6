"""The tools that agents remember with."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_setting import LetterEmbedder, opened
from msgspec.structs import replace

from holdfast.errors import TellModel
from holdfast.memory import make_memory_tools
from holdfast.testing import make_tool_context
from holdfast.tools import Workspace


async def test_what_is_remembered_is_recalled_once(tmp_path: Path) -> None:
    context = make_tool_context(
        workspace=Workspace(tmp_path),
        session_id="s1",
        run_id="run_1",
        idempotency_key="key",
        agent_path=("main", "helper"),
    )
    async with opened(LetterEmbedder()) as manager:
        remember, recall = make_memory_tools(manager)
        assert (remember.effect, recall.effect) == ("idempotent", "read")
        arguments = remember.validate({"content": "The gate code is 12", "importance": 0.9})
        first = await remember.call(arguments, context)
        again = await remember.call(arguments, context)
        assert first == again
        assert (await manager.stats()).memories == 1
        (entry,) = await manager.list_memories("s1")
        assert (entry.provenance.author, entry.provenance.tool) == ("helper", "remember")
        found = await recall.call(recall.validate({"query": "gate code"}), context)
        assert "The gate code is 12" in found.output
        assert found.metadata["memory_ids"] == [entry.id]
        elsewhere = replace(context, session_id="s2")
        found = await recall.call(recall.validate({"query": "gate code"}), elsewhere)
        assert found.output == "Nothing was found."


async def test_a_scope_without_owner_is_told_to_the_model(tmp_path: Path) -> None:
    context = make_tool_context(workspace=Workspace(tmp_path), session_id="s1")
    async with opened(LetterEmbedder()) as manager:
        remember, _ = make_memory_tools(manager)
        with pytest.raises(TellModel):
            await remember.call(remember.validate({"content": "x", "scope": "user"}), context)
