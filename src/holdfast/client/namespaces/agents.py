"""`client.agents`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, agents


class AgentNamespace(Surface[Mode]):
    """Agents: register, find, remove."""

    register = agents.register
    get = agents.get
    list = agents.list_
    get_definition = agents.get_definition
    list_definitions = agents.list_definitions
    remove = agents.remove
    check = agents.check
    load_installed = agents.load_installed
    registry = agents.registry
    add_resource = agents.add_resource
    state = agents.state
