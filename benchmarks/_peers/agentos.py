"""The conversation of `server.py`, served by agno's AgentOS; runs in an environment of its own.

`python agentos.py PORT`: an agent with a scripted model, a tool that looks, and a SQLite file.
"""

# mypy: ignore-errors
from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn
from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.base import Model
from agno.models.response import ModelResponse
from agno.os import AgentOS

ROUNDS = 10


class Scripted(Model):
    """Looks ten times, then answers; says everything in one piece."""

    def think(self, messages: list[Any]) -> ModelResponse:
        """Return the next answer."""
        turn = [one for one in messages if not one.from_history]
        done = sum(len(one.tool_calls or ()) for one in turn if one.role == "assistant")
        if done >= ROUNDS:
            return ModelResponse(role="assistant", content="All of it was seen.")
        call = {"name": "look", "arguments": f'{{"at": "{done}"}}'}
        return ModelResponse(
            role="assistant",
            tool_calls=[{"id": f"call_{done}", "type": "function", "function": call}],
        )

    def invoke(self, messages: list[Any], **more: object) -> ModelResponse:
        """Return the next answer."""
        return self.think(messages)

    async def ainvoke(self, messages: list[Any], **more: object) -> ModelResponse:
        """Return the next answer."""
        return self.think(messages)

    def invoke_stream(self, messages: list[Any], **more: object) -> Iterator[ModelResponse]:
        """Yield the next answer."""
        yield self.think(messages)

    async def ainvoke_stream(
        self, messages: list[Any], **more: object
    ) -> AsyncIterator[ModelResponse]:
        """Yield the next answer."""
        yield self.think(messages)

    def _parse_provider_response(self, response: ModelResponse, **more: object) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: ModelResponse) -> ModelResponse:
        return response


async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


agent = Agent(
    id="worker",
    model=Scripted(id="scripted"),
    tools=[look],
    db=SqliteDb(db_file="agentos.db"),
    telemetry=False,
)
app = AgentOS(agents=[agent], telemetry=False).get_app()

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
