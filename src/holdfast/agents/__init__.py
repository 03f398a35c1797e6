"""What an agent is: its definition, registry, factory, templates, files, and its result."""

from holdfast.agents.builtin import builtin_agents
from holdfast.agents.definition import Agent, AgentRecord
from holdfast.agents.factory import AgentBuilder, AgentConfig, AgentFactory
from holdfast.agents.files import AgentFile, AgentFiles, parse_agent
from holdfast.agents.lifecycle import AgentLifecycle, AgentManager, AgentState
from holdfast.agents.registry import AGENTS, AgentEntry, AgentRegistry
from holdfast.agents.result import AgentResult
from holdfast.agents.templates import CostEstimate, Template, builtin_templates, find_template

__all__ = [
    "AGENTS",
    "Agent",
    "AgentBuilder",
    "AgentConfig",
    "AgentEntry",
    "AgentFactory",
    "AgentFile",
    "AgentFiles",
    "AgentLifecycle",
    "AgentManager",
    "AgentRecord",
    "AgentRegistry",
    "AgentResult",
    "AgentState",
    "CostEstimate",
    "Template",
    "builtin_agents",
    "builtin_templates",
    "find_template",
    "parse_agent",
]
