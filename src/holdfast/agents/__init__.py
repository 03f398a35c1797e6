"""One agent, one turn, one run."""

from holdfast.agents.builtin import builtin_agents
from holdfast.agents.definition import Agent, AgentRecord
from holdfast.agents.lifecycle import AgentLifecycle, AgentManager, AgentState
from holdfast.agents.registry import AGENTS, AgentRegistry
from holdfast.agents.result import AgentResult
from holdfast.agents.runtime import AgentRuntime
from holdfast.agents.surroundings import Surroundings
from holdfast.agents.turn import Listener

__all__ = [
    "AGENTS",
    "Agent",
    "AgentLifecycle",
    "AgentManager",
    "AgentRecord",
    "AgentRegistry",
    "AgentResult",
    "AgentRuntime",
    "AgentState",
    "Listener",
    "Surroundings",
    "builtin_agents",
]
