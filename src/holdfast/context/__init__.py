"""Choose what the model sees next; make room when it gets too much."""

from holdfast.context.account import AccountLine, ContextAccount, Section
from holdfast.context.builder import AgentContext, BuildsContext, ContextBuilder
from holdfast.context.compaction import Compactor
from holdfast.context.compaction_hooks import CompactionHooks, Conversation
from holdfast.context.events import ContextPruned, SessionCompacted
from holdfast.context.history import HistoryView, for_model
from holdfast.context.steps import (
    AgentLike,
    ContextDraft,
    ContextStep,
    EnvironmentStep,
    HistoryStep,
    InstructionsStep,
    MemoriesStep,
    MemoryLike,
    PromptStep,
    RecallStep,
    SkillsStep,
    ToolsStep,
    default_steps,
)

__all__ = [
    "AccountLine",
    "AgentContext",
    "AgentLike",
    "BuildsContext",
    "CompactionHooks",
    "Compactor",
    "ContextAccount",
    "ContextBuilder",
    "ContextDraft",
    "ContextPruned",
    "ContextStep",
    "Conversation",
    "EnvironmentStep",
    "HistoryStep",
    "HistoryView",
    "InstructionsStep",
    "MemoriesStep",
    "MemoryLike",
    "PromptStep",
    "RecallStep",
    "Section",
    "SessionCompacted",
    "SkillsStep",
    "ToolsStep",
    "default_steps",
    "for_model",
]
