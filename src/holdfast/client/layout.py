"""The records as plain files, for people and other programs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from holdfast.agents.layout import agent_files
from holdfast.client.files import write_whole
from holdfast.client.memory import MEMORY_FILE, MemoryMethods
from holdfast.client.tools import ToolMethods
from holdfast.sessions import layout_files
from holdfast.tools.tracker import execution_files

_PAGE = 500


class LayoutMethods(ToolMethods, MemoryMethods):
    """How the client writes its records as files."""

    async def export_layout(self, target: str | os.PathLike[str]) -> int:
        """Write everything as plain JSON files below a directory; returns their number."""
        sessions = await self._ready()
        parts = (
            layout_files(sessions),
            execution_files(sessions),
            agent_files(await self.agent_registry()),
            self._memory_files(),
        )
        count = 0
        for files in parts:
            async for name, content in files:
                await asyncio.to_thread(write_whole, Path(target) / name, content)
                count += 1
        return count

    async def _memory_files(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield storage/memory/{session}/{id}.json; `-` stands for memories of no session."""
        if not await asyncio.to_thread((self.base_dir / MEMORY_FILE).exists):
            return
        manager = await self.memory_manager()
        after = ""
        while page := await manager.all_memories(limit=_PAGE, after=after):
            for entry in page:
                content = msgspec.json.format(msgspec.json.encode(entry), indent=2)
                yield f"storage/memory/{entry.session_id or '-'}/{entry.id}.json", content + b"\n"
            after = page[-1].id
