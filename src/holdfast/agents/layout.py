"""Registered agents as plain files: storage/agent/{name}.json."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import msgspec

from holdfast.agents.registry import AgentRegistry


async def export_agent_files(registry: AgentRegistry) -> AsyncIterator[tuple[str, bytes]]:
    """Yield relative path and content of every agent that is not built in."""
    for agent in await registry.list_agents(include_hidden=True):
        if not agent.native:
            name = re.sub(r"[^A-Za-z0-9_-]", "-", agent.name)
            content = msgspec.json.format(msgspec.json.encode(agent.to_record()), indent=2)
            yield f"storage/agent/{name}.json", content + b"\n"
