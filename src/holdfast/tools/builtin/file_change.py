"""What the file-changing tools share: the edited text, the result, the reconciliation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

from holdfast.canonical import JsonObject, hash_sha256
from holdfast.errors import FileMissing, HoldfastError
from holdfast.sandbox import FileChange
from holdfast.tools.context import ToolContext
from holdfast.tools.diffs import make_unified_diff
from holdfast.tools.effects import Intent, Reconciliation
from holdfast.tools.encoding import decode_file, encode_file
from holdfast.tools.result import ToolResult


def on_text(path: str, change: Callable[[str], str]) -> Callable[[bytes | None], bytes]:
    """Make a change of text into a change of bytes; encoding and mark are kept."""

    def change_bytes(before: bytes | None) -> bytes:
        if before is None:
            raise FileMissing(path=path)
        text, form = decode_file(before, path)
        return encode_file(change(text), form)

    return change_bytes


def describe_change(change: FileChange, verb: str) -> ToolResult:
    """The result of a change: a sentence, a diff, and hashes for programs."""
    before = _render(change.before or b"", change.path)
    after = _render(change.after, change.path)
    metadata: JsonObject = {
        "path": change.path,
        "is_new": change.before is None,
        "before_hash": hash_sha256(change.before) if change.before is not None else "",
        "after_hash": hash_sha256(change.after),
    }
    if before is None or after is None:
        return ToolResult(f"{verb} {change.path}.", title=change.path, metadata=metadata)
    diff = make_unified_diff(before, after, change.path)
    metadata |= {"diff": diff.text, "added": diff.added, "removed": diff.removed}
    counts = f"+{diff.added} -{diff.removed}" if diff.text else "no change"
    text = f"{verb} {change.path} ({counts}).\n{diff.text}".rstrip()
    return ToolResult(text, title=change.path, metadata=metadata)


MOST_KEPT_BYTES: Final = 128 * 1024
"""Longest text of which the intent of a change keeps what it was before, for undo."""


async def note_change(
    context: ToolContext, path: str, change: Callable[[bytes | None], bytes]
) -> JsonObject:
    """What to write down before a change: a crash can be judged by it, and the change undone.

    Hashes of the file before (empty: there is none) and after, and the text before where it is
    text and not too long. The journal takes secrets out of it; by the hash that is noticed.
    """

    def compute() -> JsonObject:
        try:
            before = context.workspace.read(path)
        except FileMissing:
            return {"before": "", "after": hash_sha256(change(None))}
        noted: JsonObject = {"before": hash_sha256(before), "after": hash_sha256(change(before))}
        if len(before) <= MOST_KEPT_BYTES:
            with contextlib.suppress(UnicodeDecodeError):
                noted["text"] = before.decode()
        return noted

    return await context.look(compute)


async def preview_change(
    context: ToolContext, path: str, change: Callable[[bytes | None], bytes]
) -> str:
    """The diff that a change would make, for an approver who has to consent to it."""

    def compute() -> str:
        try:
            before = context.workspace.read(path)
        except FileMissing:
            before = None
        after = change(before)
        shown = _render(before or b"", path), _render(after, path)
        if shown[0] is None or shown[1] is None:
            return f"{path} is no text: {len(before or b'')} bytes become {len(after)}."
        return make_unified_diff(shown[0], shown[1], path).text

    return await context.look(compute)


async def reconcile_change(intent: Intent, context: ToolContext) -> Reconciliation:
    """Tell from the file's hash whether a change happened before a crash."""
    path = str(intent.arguments.get("file_path", ""))
    try:
        current = hash_sha256(await context.look(context.workspace.read, path))
    except HoldfastError as error:
        return Reconciliation(verdict="unknown", because=str(error))
    if current == intent.noted.get("after"):
        result = ToolResult(f"Edited {path}.", title=path, metadata={"path": path})
        return Reconciliation(
            verdict="happened", result=result, because="the file has the new content"
        )
    if current == intent.noted.get("before"):
        return Reconciliation(verdict="not_happened", because="the file has the old content")
    return Reconciliation(verdict="unknown", because="the file was changed since")


def _render(data: bytes, path: str) -> str | None:
    try:
        return decode_file(data, path)[0]
    except HoldfastError:
        return None
