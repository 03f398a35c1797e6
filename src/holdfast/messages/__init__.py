"""What a model reads and writes: messages, their parts, tool specs, usage.

Frozen data without behaviour. Everything above (journal, providers, tools, agents)
speaks in these types, so none of those rooms needs another one to talk.
"""

from holdfast.messages.message import (
    GrowingMessages,
    JoinedMessages,
    Message,
    Role,
    TokenUsage,
    compose,
    has_file,
    read_compaction,
    split_parts,
    strip_session,
    sum_usage,
)
from holdfast.messages.parts import (
    ARTIFACT_SCHEME,
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
    ToolSpec,
    ToolState,
)

__all__ = [
    "ARTIFACT_SCHEME",
    "AgentPart",
    "CompactionPart",
    "FilePart",
    "GrowingMessages",
    "JoinedMessages",
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
    "compose",
    "has_file",
    "read_compaction",
    "split_parts",
    "strip_session",
    "sum_usage",
]
