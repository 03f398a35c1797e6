"""One agent, one turn, one run."""

from holdfast.agents.builtin import builtin_agents
from holdfast.agents.definition import Agent
from holdfast.agents.result import AgentResult
from holdfast.agents.runtime import AgentRuntime
from holdfast.agents.turn import Listener

__all__ = ["Agent", "AgentResult", "AgentRuntime", "Listener", "builtin_agents"]
