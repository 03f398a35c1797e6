"""What an agent is: its definition, registry, factory, templates, files, and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.agents.builtin import builtin_agents as builtin_agents
    from holdfast.agents.definition import Agent as Agent
    from holdfast.agents.definition import AgentRecord as AgentRecord
    from holdfast.agents.factory import AgentBuilder as AgentBuilder
    from holdfast.agents.factory import AgentConfig as AgentConfig
    from holdfast.agents.factory import AgentFactory as AgentFactory
    from holdfast.agents.files import AgentFile as AgentFile
    from holdfast.agents.files import AgentFiles as AgentFiles
    from holdfast.agents.files import parse_agent as parse_agent
    from holdfast.agents.lifecycle import AgentLifecycle as AgentLifecycle
    from holdfast.agents.lifecycle import AgentManager as AgentManager
    from holdfast.agents.lifecycle import AgentState as AgentState
    from holdfast.agents.registry import AGENTS as AGENTS
    from holdfast.agents.registry import AgentEntry as AgentEntry
    from holdfast.agents.registry import AgentRegistry as AgentRegistry
    from holdfast.agents.result import AgentResult as AgentResult
    from holdfast.agents.templates import CostEstimate as CostEstimate
    from holdfast.agents.templates import Template as Template
    from holdfast.agents.templates import builtin_templates as builtin_templates
    from holdfast.agents.templates import find_template as find_template
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "builtin": "builtin_agents",
            "definition": "Agent AgentRecord",
            "factory": "AgentBuilder AgentConfig AgentFactory",
            "files": "AgentFile AgentFiles parse_agent",
            "lifecycle": "AgentLifecycle AgentManager AgentState",
            "registry": "AGENTS AgentEntry AgentRegistry",
            "result": "AgentResult",
            "templates": "CostEstimate Template builtin_templates find_template",
        },
    )
