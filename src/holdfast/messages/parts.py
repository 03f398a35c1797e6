"""The ten kinds of message parts, with the spec of the tools that one of them calls."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject

ToolState: TypeAlias = Literal["pending", "running", "completed", "error"]
ARTIFACT_SCHEME: Final = "artifact:"
"""How the address of a file begins that lies in the store of artifacts."""


class _Part(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False
):
    """A part can be named, so that it can be replaced while a message grows."""

    id: str = ""


class Citation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Where something in a text comes from, as the model's provider says; it is not checked."""

    kind: str
    """The provider's own word: `url_citation`, `file_citation`, `char_location` and others."""
    title: str = ""
    url: str = ""
    quote: str = ""
    """The words of the source."""
    start: int | None = None
    """The first character of the text that it is for; none where it is for all of it."""
    end: int | None = None
    """The place behind the last one."""
    details: JsonObject = msgspec.field(default_factory=dict)
    """What else the provider says: ids of files, pages and places in a document."""


class TextPart(_Part, frozen=True, kw_only=True, omit_defaults=True, tag="text"):
    """Plain or Markdown text. `is_synthetic`: written by the runtime, not by a person."""

    text: str
    is_synthetic: bool = False
    citations: tuple[Citation, ...] = ()


class ReasoningPart(_Part, frozen=True, kw_only=True, omit_defaults=True, tag="reasoning"):
    """What the model thought aloud.

    `signature` and `encrypted` must go back to the provider unchanged; they mean
    nothing to any other caller.
    """

    text: str
    signature: str = ""
    encrypted: str = ""


class FilePart(_Part, frozen=True, kw_only=True, omit_defaults=True, tag="file"):
    """An image or another file, inline (`data`) or by reference (`url`).

    Exactly one of the two is set. `data` is base64 in JSON. `artifact:ID` is the address of a file
    in the store of artifacts: what is added to a session inline is kept there, and read back for
    the model.
    """

    media_type: str
    name: str = ""
    data: bytes | None = None
    url: str = ""

    @property
    def artifact_id(self) -> str:
        """The artifact that holds the content; empty if none does."""
        return self.url[len(ARTIFACT_SCHEME) :] if self.url.startswith(ARTIFACT_SCHEME) else ""


class ToolPart(_Part, frozen=True, kw_only=True, omit_defaults=True, tag="tool"):
    """One tool call.

    In an assistant message it is the request (`state` is pending); in a tool message
    it is the answer with the same `call_id` (completed or error). `raw_input` holds
    the model's text when it was no JSON object.
    """

    call_id: str
    tool: str
    state: ToolState = "pending"
    input: JsonObject = msgspec.field(default_factory=dict)
    raw_input: str = ""
    output: str = ""
    error: str = ""
    title: str = ""
    time_start: float | None = None
    time_end: float | None = None
    attachments: tuple[FilePart, ...] = ()
    metadata: JsonObject = msgspec.field(default_factory=dict)


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Name, purpose and JSON Schema of the arguments; nothing that executes."""

    name: str
    description: str
    parameters: JsonObject


class SnapshotPart(_Part, frozen=True, kw_only=True, omit_defaults=True, tag="snapshot"):
    """The state of the workspace at this point, by its content hash."""

    snapshot: str


class PatchPart(_Part, frozen=True, kw_only=True, omit_defaults=True, tag="patch"):
    """Files that changed since the last snapshot."""

    hash: str
    files: tuple[str, ...]


class AgentPart(_Part, frozen=True, kw_only=True, omit_defaults=True, tag="agent"):
    """A mention that asks for an agent by name."""

    name: str


class SubtaskPart(_Part, frozen=True, kw_only=True, omit_defaults=True, tag="subtask"):
    """Work handed to a sub-agent; `session_id` is the child session."""

    prompt: str
    description: str
    agent: str
    session_id: str = ""


class RetryPart(_Part, frozen=True, kw_only=True, omit_defaults=True, tag="retry"):
    """A model call that failed and was tried again; `error` is an error's `to_dict`."""

    attempt: int
    error: JsonObject
    time: float


class CompactionPart(_Part, frozen=True, kw_only=True, omit_defaults=True, tag="compaction"):
    """The summary that stands for everything up to a message in the model's view.

    `is_extractive`: picked out of the conversation by rules, not written by a model.
    """

    summary: str
    is_automatic: bool = True
    up_to_session_seq: int = 0
    up_to_message_id: str = ""
    is_extractive: bool = False


Part: TypeAlias = (
    TextPart
    | ReasoningPart
    | FilePart
    | ToolPart
    | SnapshotPart
    | PatchPart
    | AgentPart
    | SubtaskPart
    | RetryPart
    | CompactionPart
)
