"""What a tool call gives back, made fit to be kept: sound, not too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec
import pydantic_core

from holdfast.canonical import JsonObject
from holdfast.errors import ToolError
from holdfast.messages import FilePart

if TYPE_CHECKING:
    from holdfast.tools.context import ToolContext

MOST_KEPT_BYTES = 64 * 1024 * 1024
_MOST_METADATA_BYTES = 256 * 1024
_LONGEST_TITLE = 200


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Text for the model, and what goes with it.

    `title` is a short line for people, `metadata` is for programs, `attachments` are
    images and files for the model. `is_error` says that the call failed although the
    tool did not raise.
    """

    output: str
    title: str = ""
    metadata: JsonObject = msgspec.field(default_factory=dict)
    attachments: tuple[FilePart, ...] = ()
    is_error: bool = False


class Parked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The call waits for somebody; the run parks and the answer becomes its result.

    `reason` names what is waited for (`question`), `request` is what to show.
    """

    reason: str
    request: JsonObject


Outcome: TypeAlias = ToolResult | Parked
_OUTCOMES = (ToolResult, Parked)


class NestedCallWaits(Exception):
    """A call that a call has made waits for somebody; the outer one is taken up again later."""

    def __init__(self, parked: Parked) -> None:
        """Carry what is waited for."""
        super().__init__(parked.reason)
        self.parked = parked


def to_outcome(value: object, tool: str) -> Outcome:
    """Turn whatever a tool function returned into an outcome.

    Text stays text, None becomes empty, everything else becomes JSON: pydantic models,
    dataclasses, msgspec structs, enums, dates, lists and dictionaries.

    Raises:
        ToolError: the value has no JSON form.
    """
    if isinstance(value, str):
        return ToolResult(value)
    if isinstance(value, _OUTCOMES):
        return value
    if value is None:
        return ToolResult("")
    try:
        return ToolResult(
            pydantic_core.to_json(value, fallback=_struct, bytes_mode="base64").decode()
        )
    except (pydantic_core.PydanticSerializationError, ValueError, RecursionError) as error:
        raise ToolError(
            tool=tool, detail=f"it returned a {type(value).__name__}, which has no JSON form"
        ) from error


def _struct(value: object) -> object:
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    raise TypeError(f"no JSON form for {type(value).__name__}")


def check_result(result: ToolResult, tool: str) -> ToolResult:
    """Return a result that can be stored as JSON.

    A tool may put anything into a result; what has no JSON form must not get as far as the
    journal.

    Raises:
        ToolError: output, metadata or attachments are not what they should be.
    """
    output: object = result.output
    title: object = result.title
    if not isinstance(output, str) or not isinstance(title, str):
        raise ToolError(tool=tool, detail="its result has an output or a title that is no text")
    if not (output.isascii() and title.isascii()):
        sound = _without_surrogates(output), _without_surrogates(title)
        result = msgspec.structs.replace(result, output=sound[0], title=sound[1])
    if len(title) > _LONGEST_TITLE:
        result = msgspec.structs.replace(result, title=result.title[:_LONGEST_TITLE])
    if result.metadata:
        result = msgspec.structs.replace(result, metadata=_metadata(result.metadata, tool))
    if result.attachments:
        _check_attachments(result.attachments, tool)
    return result


async def shorten(result: ToolResult, limit: int, context: ToolContext) -> ToolResult:
    """Return a result whose output has at most about `limit` characters.

    Nothing is lost: the whole (up to 64 MB) is saved, and its handle stands in the text and
    the metadata.
    """
    text = result.output
    if len(text) <= limit:
        return result
    data = text.encode(errors="replace")[:MOST_KEPT_BYTES]
    name = f"{context.call_id or 'call'}.txt"
    handle = await context.artifacts.save(name, data, media_type="text/plain")
    kept = f"artifact {handle}"
    return msgspec.structs.replace(
        result,
        output=_head_and_tail(text, limit, f"; the whole is {kept}"),
        metadata={**result.metadata, "artifact": handle, "full_length": len(text)},
    )


def clip(text: str, limit: int) -> str:
    """Return text that can be stored, with head and tail of one that is too long."""
    return _without_surrogates(text if len(text) <= limit else _head_and_tail(text, limit, ""))


def _metadata(metadata: object, tool: str) -> dict[str, object]:
    try:
        data = msgspec.json.encode(metadata)
        if len(data) > _MOST_METADATA_BYTES:
            return {"left_out": f"metadata of {len(data)} bytes"}
        return msgspec.json.decode(data, type=dict[str, object])
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ToolError(tool=tool, detail=f"its metadata has no JSON form: {error}") from error


def _check_attachments(attachments: object, tool: str) -> None:
    try:
        msgspec.json.decode(msgspec.json.encode(attachments), type=tuple[FilePart, ...])
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ToolError(tool=tool, detail=f"its attachments are no file parts: {error}") from error


def _head_and_tail(text: str, limit: int, where: str) -> str:
    head, tail = text[: limit * 2 // 3], text[-(limit // 3) :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n\n[... {left_out} characters left out{where} ...]\n\n{tail}"


def _without_surrogates(text: str) -> str:
    """Half characters cannot be stored as UTF-8; the same object comes back if there are none."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
