"""A request to a server under way, with the call that it is for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

from holdfast.canonical import JsonObject
from holdfast.journal import Origin, Payload
from holdfast.mcp.elicitation import CANCEL, DECLINE, elicit
from holdfast.mcp.events import McpElicited
from holdfast.mcp.failures import Refusal
from holdfast.mcp.patience import Patience
from holdfast.mcp.results import render_error
from holdfast.tools import ToolContext

MOST_ASKED: Final = 10
LONGEST_ANSWER_S: Final = 600.0

Lend: TypeAlias = Callable[[str, ToolContext, JsonObject, int], Awaitable[JsonObject]]
"""Asks our model for a server, in the name of the call; the number tells requests apart."""


class Errand:
    """One request; the person who attends its run answers what the server asks meanwhile."""

    def __init__(
        self,
        endpoint: str,
        context: ToolContext,
        patience: Patience,
        keep: Callable[[Payload, Origin], Awaitable[None]],
        lend: Lend | None = None,
    ) -> None:
        """Prepare; `keep` writes down that a person was asked, `lend` asks our model."""
        self._lend = lend
        self._endpoint = endpoint
        self._context = context
        self._keep = keep
        self._asked = 0
        self._sampled = 0
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

    async def sample(self, asked: JsonObject) -> JsonObject:
        """Return what our model answers; the server's time stands still meanwhile.

        Raises:
            Refusal: no model is lent here, a rule or a budget says no, or it was asked too often.
        """
        self._sampled += 1
        if self._lend is None or self._sampled > MOST_ASKED:
            raise Refusal("no model is lent to this server in this call")
        with self.patience.pause():
            return await self._lend(self._endpoint, self._context, asked, self._sampled)


__all__ = ["LONGEST_ANSWER_S", "MOST_ASKED", "Errand", "Lend"]
