"""Choose what the model sees next."""

from holdfast.context.builder import AgentContext, AgentLike, ContextBuilder
from holdfast.context.history import for_model

__all__ = ["AgentContext", "AgentLike", "ContextBuilder", "for_model"]
