"""Choose what the model sees next; make room when it gets too much.

`ContextBuilder` makes a request's context of named steps; `Compactor` prunes old tool output
and summarises before the window is full. Foreign text (instructions of a project, memories)
stands in tags that it cannot close, against prompt injection. Names are loaded when they are
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# What is stored can be read whatever else is loaded: its kinds are declared with the room.
from holdfast.context import events as events
from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.context.account import AccountLine as AccountLine
    from holdfast.context.account import ContextAccount as ContextAccount
    from holdfast.context.account import Section as Section
    from holdfast.context.builder import AgentContext as AgentContext
    from holdfast.context.builder import BuildsContext as BuildsContext
    from holdfast.context.builder import ContextBuilder as ContextBuilder
    from holdfast.context.builder import ContextView as ContextView
    from holdfast.context.compaction import MOST_ATTEMPTS as MOST_ATTEMPTS
    from holdfast.context.compaction import Compactor as Compactor
    from holdfast.context.compaction import Room as Room
    from holdfast.context.compaction import compute_room as compute_room
    from holdfast.context.compaction import count_enough as count_enough
    from holdfast.context.compaction_hooks import CompactionHooks as CompactionHooks
    from holdfast.context.compaction_hooks import Conversation as Conversation
    from holdfast.context.events import ContextPruned as ContextPruned
    from holdfast.context.events import SessionCompacted as SessionCompacted
    from holdfast.context.history import HistoryView as HistoryView
    from holdfast.context.history import prepare_for_model as prepare_for_model
    from holdfast.context.state_prompt import STATE_MARK as STATE_MARK
    from holdfast.context.state_prompt import render_state as render_state
    from holdfast.context.steps import AgentLike as AgentLike
    from holdfast.context.steps import ContextDraft as ContextDraft
    from holdfast.context.steps import ContextStep as ContextStep
    from holdfast.context.steps import EnvironmentStep as EnvironmentStep
    from holdfast.context.steps import HistoryStep as HistoryStep
    from holdfast.context.steps import InstructionsStep as InstructionsStep
    from holdfast.context.steps import MemoriesStep as MemoriesStep
    from holdfast.context.steps import MemoryLike as MemoryLike
    from holdfast.context.steps import PromptStep as PromptStep
    from holdfast.context.steps import RecallStep as RecallStep
    from holdfast.context.steps import SkillsStep as SkillsStep
    from holdfast.context.steps import ToolsStep as ToolsStep
    from holdfast.context.steps import list_default_steps as list_default_steps
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "account": "AccountLine ContextAccount Section",
            "builder": "AgentContext BuildsContext ContextBuilder ContextView",
            "compaction": "MOST_ATTEMPTS Compactor Room compute_room count_enough",
            "compaction_hooks": "CompactionHooks Conversation",
            "events": "ContextPruned SessionCompacted",
            "history": "HistoryView prepare_for_model",
            "state_prompt": "STATE_MARK render_state",
            "steps": (
                "AgentLike ContextDraft ContextStep EnvironmentStep HistoryStep InstructionsStep "
                "MemoriesStep MemoryLike PromptStep RecallStep SkillsStep ToolsStep list_default_steps"
            ),
        },
    )
