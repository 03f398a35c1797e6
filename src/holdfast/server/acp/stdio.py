"""Serve one editor on standard input and output, as the owner of the state directory."""

from __future__ import annotations

from collections.abc import Sequence

import acp

from holdfast.agents import Agent
from holdfast.errors import NotFound
from holdfast.operations import OWNER, agents
from holdfast.server.acp.agent import EditorAgent
from holdfast.server.factory import create_app
from holdfast.settings import Settings


async def serve_acp(
    settings: Settings, *, served: Sequence[Agent] = (), default_agent: str = ""
) -> None:
    """Answer one editor until it closes its end; what it began is cancelled then.

    Raises:
        NotFound: there is no such agent.
    """
    app = create_app(settings, agents=served)
    await app.open()
    try:
        runtime = await app.runtimes.runtime_for(OWNER)
        chosen = default_agent or settings.default_agent
        if await agents.get.perform(runtime, OWNER, chosen) is None:
            raise NotFound(kind="agent", value=chosen)
        await acp.run_agent(EditorAgent(runtime, chosen), use_unstable_protocol=True)
    finally:
        await app.close()


__all__ = ["serve_acp"]
