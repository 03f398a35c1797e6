"""The conversation of `server.py`, served by Google's ADK; runs in an environment of its own.

`python adk.py PORT`: an agent with a scripted model, a tool that looks, and a SQLite file.
"""

# mypy: ignore-errors
from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import uvicorn
from google.adk.agents import LlmAgent
from google.adk.cli.fast_api import get_fast_api_app
from google.adk.cli.utils.base_agent_loader import BaseAgentLoader
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

ROUNDS = 10


class Scripted(BaseLlm):
    """Looks ten times, then answers; says everything in one piece."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the next answer."""
        parts = [part for one in llm_request.contents for part in one.parts or ()]
        done = sum(1 for part in parts if part.function_call)
        if done >= ROUNDS:
            part = types.Part(text="All of it was seen.")
        else:
            call = types.FunctionCall(name="look", args={"at": str(done)})
            part = types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def look(at: str) -> str:
    """Look."""
    return f"seen {at}"


class Loader(BaseAgentLoader):
    """Knows one agent."""

    def load_agent(self, agent_name: str) -> LlmAgent:
        """Return it."""
        return LlmAgent(name="worker", model=Scripted(model="scripted"), tools=[look])

    def list_agents(self) -> list[str]:
        """Return its name."""
        return ["worker"]


app = get_fast_api_app(
    agents_dir=str(Path.cwd()),
    agent_loader=Loader(),
    session_service_uri="sqlite+aiosqlite:///adk.db",
    web=False,
    auto_create_session=True,
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
