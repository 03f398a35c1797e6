"""A request to a server under way, with the call that it is for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from holdfast.canonical import JsonObject
from holdfast.journal import Origin, Payload
from holdfast.mcp.elicitation import CANCEL, DECLINE, elicit
from holdfast.mcp.events import McpElicited
from holdfast.mcp.patience import Patience
from holdfast.mcp.results import render_error
from holdfast.tools import ToolContext

MOST_ASKED: Final = 10
LONGEST_ANSWER_S: Final = 600.0


class Errand:
    """One request; the person who attends its run answers what the server asks meanwhile."""

    def __init__(
        self,
        endpoint: str,
        context: ToolContext,
        patience: Patience,
        keep: Callable[[Payload, Origin], Awaitable[None]],
    ) -> None:
        """Prepare; `keep` writes down that a person was asked."""
        self._endpoint = endpoint
        self._context = context
        self._keep = keep
        self._asked = 0
        self.patience = patience

    async def elicit(self, asked: JsonObject) -> JsonObject:
        """Return the person's answer; the server's time stands still meanwhile.

        After ten questions in one call the rest is declined; an answer that does not come in
        ten minutes, or a run that no person attends, cancels.
        """
        self._asked += 1
        said = DECLINE
        if self._asked <= MOST_ASKED:
            with self.patience.pause():
                try:
                    async with asyncio.timeout(LONGEST_ANSWER_S):
                        said = await elicit(self._endpoint, asked, self._context.attendant)
                except TimeoutError:
                    said = CANCEL
        mode: Literal["form", "url"] = "url" if asked.get("mode") == "url" else "form"
        context = self._context
        fact = McpElicited(
            endpoint=self._endpoint,
            call_id=context.call_id,
            session_id=context.session_id,
            mode=mode,
            action=said["action"],
            message=render_error(str(asked.get("message", "")))[:500],
        )
        origin = Origin(run_id=context.run_id, agent_path="/".join(context.agent_path))
        await self._keep(fact, origin)
        return said


__all__ = ["LONGEST_ANSWER_S", "MOST_ASKED", "Errand"]
