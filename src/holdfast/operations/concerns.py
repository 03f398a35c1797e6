"""Which agents a request concerns: what a scope that is limited to one agent is held against.

Asked only for callers whose scope is limited. A request of which this cannot be said is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from holdfast.runtime import Runtime

AgentsOf: TypeAlias = Callable[[Runtime, Mapping[str, Any]], Awaitable[set[str]]]
"""Takes the runtime and the arguments of a request; no agents means: none that is known."""


async def find_named_agents(runtime: Runtime, arguments: Mapping[str, Any]) -> set[str]:
    """Return the agent that the request names."""
    return {str(arguments.get("name") or arguments.get("agent") or "")} - {""}


async def find_agents_of_run(runtime: Runtime, arguments: Mapping[str, Any]) -> set[str]:
    """Return the agent of the run that the request names."""
    run = await runtime.turns.find(str(arguments["run_id"]))
    return set() if run is None else {run.agent or runtime.settings.default_agent}


async def find_agents_of_request(runtime: Runtime, arguments: Mapping[str, Any]) -> set[str]:
    """Return the agent that is to work, and that of the run which the same id already has.

    A message that could be handed to another run of the session, or end it, concerns an agent
    that is not known beforehand.
    """
    on_busy = arguments.get("on_busy") or runtime.settings.sessions.on_busy
    session_id = str(arguments.get("session_id") or "")
    name = arguments.get("agent_name") or ""
    if not isinstance(name, str) or (session_id and on_busy in ("steer", "interrupt")):
        return set()
    if not name and session_id:
        name = (await runtime.sessions.get_session(session_id)).agent
    known = await find_agents_of_run(runtime, arguments) if arguments.get("run_id") else set()
    return {name or runtime.settings.default_agent, *known}


__all__ = ["AgentsOf", "find_named_agents", "find_agents_of_request", "find_agents_of_run"]
