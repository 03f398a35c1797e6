"""What a model reads and writes: messages, their parts, tool specs, usage.

Frozen data without behaviour. Everything above (journal, providers, tools, agents)
speaks in these types, so none of those rooms needs another one to talk.
"""

from holdfast.messages.message import Message, Role
from holdfast.messages.parts import (
    AgentPart,
    CompactionPart,
    FilePart,
    Part,
    PatchPart,
    ReasoningPart,
    RetryPart,
    SnapshotPart,
    SubtaskPart,
    TextPart,
    ToolPart,
    ToolState,
)
from holdfast.messages.tool_spec import ToolSpec
from holdfast.messages.usage import TokenUsage

__all__ = [
    "AgentPart",
    "CompactionPart",
    "FilePart",
    "Message",
    "Part",
    "PatchPart",
    "ReasoningPart",
    "RetryPart",
    "Role",
    "SnapshotPart",
    "SubtaskPart",
    "TextPart",
    "TokenUsage",
    "ToolPart",
    "ToolSpec",
    "ToolState",
]
