"""What a run does, as an editor shows it: texts, thoughts, calls with diffs, the plan."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import acp
from acp import schema

from holdfast.messages import FilePart, Message, ReasoningPart, TextPart, ToolPart

_KINDS: Final[dict[str, schema.ToolKind]] = {
    "read": "read",
    "list": "read",
    "lsp": "read",
    "write": "edit",
    "edit": "edit",
    "multiedit": "edit",
    "glob": "search",
    "grep": "search",
    "ast_grep_search": "search",
    "codesearch": "search",
    "websearch": "fetch",
    "webfetch": "fetch",
    "bash": "execute",
    "task": "think",
    "plan_enter": "switch_mode",
    "plan_exit": "switch_mode",
}
_PATHS: Final = ("file_path", "path", "notebook_path")
_MOST_SHOWN: Final = 20_000
_MOST_TITLE: Final = 200
_STATES: Final[dict[str, schema.PlanEntryStatus]] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "completed",
    "cancelled": "completed",
}
TODO: Final = "todowrite"


def start_call(part: ToolPart, folder: str) -> schema.ToolCallStart:
    """Return that a call has been asked for."""
    return acp.start_tool_call(
        part.call_id,
        _make_title(part),
        kind=find_kind(part.tool),
        status="pending",
        content=list(list_diffs(part, folder)) or None,
        locations=list_locations(part, folder) or None,
        raw_input=part.input,
    )


def end_call(part: ToolPart, folder: str) -> schema.ToolCallProgress:
    """Return that a call has ended, with what came of it."""
    is_done = part.state == "completed"
    content: list[Any] = list(list_diffs(part, folder)) if is_done else []
    text = part.output if is_done else part.error
    if text and not content:
        content.append(acp.tool_content(acp.text_block(text[:_MOST_SHOWN])))
    for file in part.attachments:
        if file.data is not None and file.media_type.startswith("image/"):
            data = base64.b64encode(file.data).decode()
            content.append(acp.tool_content(acp.image_block(data, file.media_type)))
    return acp.update_tool_call(
        part.call_id,
        title=_make_title(part),
        status="completed" if is_done else "failed",
        content=content or None,
        locations=list_locations(part, folder) or None,
        raw_output={"output": text[:_MOST_SHOWN]} if text else None,
    )


def find_kind(tool: str) -> schema.ToolKind:
    """Return what kind of call a tool is, for its sign."""
    return _KINDS.get(tool, "other")


def list_locations(part: ToolPart, folder: str) -> list[schema.ToolCallLocation]:
    """Return the files that a call is about, so that the editor can follow."""
    found = []
    for name in _PATHS:
        path = part.input.get(name)
        if isinstance(path, str) and path:
            offset = part.input.get("offset")
            line = offset if isinstance(offset, int) and offset > 0 else None
            found.append(schema.ToolCallLocation(path=_make_absolute(path, folder), line=line))
    return found


def list_diffs(part: ToolPart, folder: str) -> Iterator[schema.FileEditToolCallContent]:
    """Yield what a call changes, as old and new text."""
    path = part.input.get("file_path")
    if not isinstance(path, str) or part.tool not in ("write", "edit", "multiedit"):
        return
    place = _make_absolute(path, folder)
    if part.tool == "write":
        yield acp.tool_diff_content(place, str(part.input.get("content", "")))
        return
    edits = part.input.get("edits") if part.tool == "multiedit" else [part.input]
    for edit in edits if isinstance(edits, list) else []:
        if isinstance(edit, dict):
            old, new = str(edit.get("old_string", "")), str(edit.get("new_string", ""))
            yield acp.tool_diff_content(place, new, old)


def make_plan(part: ToolPart) -> schema.AgentPlanUpdate | None:
    """Return the plan that a call has written; `None` if it wrote none."""
    todos = part.metadata.get("todos")
    if part.tool != TODO or part.state != "completed" or not isinstance(todos, list):
        return None
    return acp.update_plan(
        acp.plan_entry(
            str(one.get("content", "")),
            priority=_find_priority(one.get("priority")),
            status=_STATES.get(str(one.get("status")), "pending"),
        )
        for one in todos
        if isinstance(one, dict)
    )


def replay_message(message: Message, folder: str) -> Iterator[Any]:
    """Yield the updates that show a message of an earlier time."""
    for part in message.parts:
        if isinstance(part, TextPart) and part.text:
            if message.role == "user":
                yield acp.update_user_message_text(part.text)
            elif message.role == "assistant":
                yield acp.update_agent_message_text(part.text)
        elif isinstance(part, ReasoningPart) and part.text:
            yield acp.update_agent_thought_text(part.text)
        elif isinstance(part, FilePart) and part.data and part.media_type.startswith("image/"):
            block = acp.image_block(base64.b64encode(part.data).decode(), part.media_type)
            yield acp.update_user_message(block)
        elif isinstance(part, ToolPart) and message.role == "assistant":
            yield start_call(part, folder)
            if part.state in ("completed", "error"):
                yield end_call(part, folder)


def _find_priority(given: object) -> schema.PlanEntryPriority:
    return given if given in ("high", "medium", "low") else "medium"


def _make_title(part: ToolPart) -> str:
    if part.tool == "bash" and isinstance(part.input.get("command"), str):
        return f"`{part.input['command']}`"[:_MOST_TITLE]
    about = part.title or next((str(part.input[n]) for n in _PATHS if part.input.get(n)), "")
    return f"{part.tool} {about}".strip()[:_MOST_TITLE]


def _make_absolute(path: str, folder: str) -> str:
    return str(Path(folder) / path)


__all__ = ["end_call", "find_kind", "list_diffs", "list_locations", "make_plan"]
__all__ += ["replay_message", "start_call"]
