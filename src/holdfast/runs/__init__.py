"""How an agent works: the turn, its tools, its spending, its children, its streams."""

from holdfast.runs.instrumentation import Instrumentation
from holdfast.runs.runtime import AgentRuntime
from holdfast.runs.turn import Listener

__all__ = ["AgentRuntime", "Instrumentation", "Listener"]
