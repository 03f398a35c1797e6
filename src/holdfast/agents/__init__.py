"""What an agent is: its definition, registry, factory, templates, files, and its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.agents.as_tool import RUN_TIMEOUT_S as RUN_TIMEOUT_S
    from holdfast.agents.builtin import list_builtin_agents as list_builtin_agents
    from holdfast.agents.definition import Agent as Agent
    from holdfast.agents.definition import AgentRecord as AgentRecord
    from holdfast.agents.definition import Sandbox as Sandbox
    from holdfast.agents.definition import ToolReference as ToolReference
    from holdfast.agents.definition import UnlimitedAgent as UnlimitedAgent
    from holdfast.agents.definition import is_named as is_named
    from holdfast.agents.delegation import Delegation as Delegation
    from holdfast.agents.delegation import make_outcome as make_outcome
    from holdfast.agents.factory import AgentBuilder as AgentBuilder
    from holdfast.agents.factory import AgentConfig as AgentConfig
    from holdfast.agents.factory import AgentFactory as AgentFactory
    from holdfast.agents.files import MAX_BYTES as MAX_BYTES
    from holdfast.agents.files import AgentFile as AgentFile
    from holdfast.agents.files import AgentFiles as AgentFiles
    from holdfast.agents.files import parse_agent as parse_agent
    from holdfast.agents.handoff import HANDED_TO as HANDED_TO
    from holdfast.agents.handoff import STATE_KEY as STATE_KEY
    from holdfast.agents.handoff import HandedOff as HandedOff
    from holdfast.agents.handoff import HandoffInput as HandoffInput
    from holdfast.agents.handoff import HandoffPayload as HandoffPayload
    from holdfast.agents.handoff import Transform as Transform
    from holdfast.agents.handoff import digest_handoff as digest_handoff
    from holdfast.agents.handoff import find_handed_over_answer as find_handed_over_answer
    from holdfast.agents.handoff import transfer_to as transfer_to
    from holdfast.agents.handoff import transform as transform
    from holdfast.agents.instructions import Instructions as Instructions
    from holdfast.agents.instructions import RunContext as RunContext
    from holdfast.agents.instructions import write_instructions as write_instructions
    from holdfast.agents.layout import export_agent_files as export_agent_files
    from holdfast.agents.lifecycle import AgentLifecycle as AgentLifecycle
    from holdfast.agents.lifecycle import AgentManager as AgentManager
    from holdfast.agents.lifecycle import AgentState as AgentState
    from holdfast.agents.lifecycle import Resource as Resource
    from holdfast.agents.output import OutputT as OutputT
    from holdfast.agents.output import OutputType as OutputType
    from holdfast.agents.registry import AGENTS as AGENTS
    from holdfast.agents.registry import AgentEntry as AgentEntry
    from holdfast.agents.registry import AgentRegistry as AgentRegistry
    from holdfast.agents.registry import AgentWarning as AgentWarning
    from holdfast.agents.request import NO_CLIENT as NO_CLIENT
    from holdfast.agents.request import UNLIMITED as UNLIMITED
    from holdfast.agents.request import WAITING_FOR_MCP as WAITING_FOR_MCP
    from holdfast.agents.request import WAITING_FOR_MODEL as WAITING_FOR_MODEL
    from holdfast.agents.request import ClientOptions as ClientOptions
    from holdfast.agents.request import KeptRequest as KeptRequest
    from holdfast.agents.request import OnOutage as OnOutage
    from holdfast.agents.request import RunExecutor as RunExecutor
    from holdfast.agents.request import RunRequest as RunRequest
    from holdfast.agents.request import Starter as Starter
    from holdfast.agents.request import make_title as make_title
    from holdfast.agents.result import AgentResult as AgentResult
    from holdfast.agents.result import ChildPiece as ChildPiece
    from holdfast.agents.result import HandedTo as HandedTo
    from holdfast.agents.result import Listener as Listener
    from holdfast.agents.result import RunOutcome as RunOutcome
    from holdfast.agents.result import hear_nothing as hear_nothing
    from holdfast.agents.templates import CostEstimate as CostEstimate
    from holdfast.agents.templates import Template as Template
    from holdfast.agents.templates import find_template as find_template
    from holdfast.agents.templates import list_builtin_templates as list_builtin_templates
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "output": "OutputT OutputType",
            "instructions": "Instructions RunContext write_instructions",
            "handoff": "HANDED_TO HandedOff HandoffInput HandoffPayload STATE_KEY Transform find_handed_over_answer digest_handoff transfer_to transform",
            "as_tool": "RUN_TIMEOUT_S",
            "request": "make_title KeptRequest OnOutage RunExecutor RunRequest Starter UNLIMITED "
            "WAITING_FOR_MCP WAITING_FOR_MODEL ClientOptions NO_CLIENT",
            "delegation": "Delegation make_outcome",
            "layout": "export_agent_files",
            "builtin": "list_builtin_agents",
            "definition": "Sandbox is_named Agent AgentRecord ToolReference UnlimitedAgent",
            "factory": "AgentBuilder AgentConfig AgentFactory",
            "files": "MAX_BYTES AgentFile AgentFiles parse_agent",
            "lifecycle": "Resource AgentLifecycle AgentManager AgentState",
            "registry": "AGENTS AgentEntry AgentRegistry AgentWarning",
            "result": "HandedTo ChildPiece Listener RunOutcome hear_nothing AgentResult",
            "templates": "CostEstimate Template list_builtin_templates find_template",
        },
    )
