"""One agent, one turn, one run."""

from holdfast.agents.builtin import builtin_agents
from holdfast.agents.definition import Agent, AgentRecord
from holdfast.agents.registry import AGENTS, AgentRegistry
from holdfast.agents.result import AgentResult
from holdfast.agents.runtime import AgentRuntime
from holdfast.agents.turn import Listener

__all__ = [
    "AGENTS",
    "Agent",
    "AgentRecord",
    "AgentRegistry",
    "AgentResult",
    "AgentRuntime",
    "Listener",
    "builtin_agents",
]
