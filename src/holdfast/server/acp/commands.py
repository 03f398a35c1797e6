"""Slash commands of an editor: what is done with a session rather than asked of its agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from acp import schema

from holdfast.errors import HoldfastError
from holdfast.operations import OWNER, sessions
from holdfast.runtime import Runtime

Perform: TypeAlias = Callable[[Runtime, str, str], Awaitable[str]]


async def _compact(runtime: Runtime, session_id: str, focus: str) -> str:
    summary = await sessions.compact.perform(runtime, OWNER, session_id, focus=focus)
    return "There is nothing to summarise yet." if summary is None else "Summarised."


async def _undo(runtime: Runtime, session_id: str, _: str) -> str:
    report = await sessions.undo.perform(runtime, OWNER, session_id)
    files = ", ".join(report.restored) or "none"
    left = "".join(f"\n{path} stays: {why}" for path, why in report.left.items())
    return f"The last message is taken back. Files restored: {files}.{left}"


async def _status(runtime: Runtime, session_id: str, _: str) -> str:
    found = await sessions.get.perform(runtime, OWNER, session_id)
    return f"{found.id}: {found.message_count} messages, {found.total_cost:.4f} USD"


COMMANDS: Final[dict[str, tuple[str, str, Perform]]] = {
    "compact": ("Summarise the older part of this conversation", "what matters most", _compact),
    "undo": ("Take back the last message, and what it changed in files", "", _undo),
    "status": ("Show the length and the cost of this conversation", "", _status),
}
"""By name: what it does, what may be said behind it, how it is done."""


def list_commands() -> list[schema.AvailableCommand]:
    """Return the commands as an editor offers them."""
    return [
        schema.AvailableCommand(
            name=name,
            description=about,
            input=schema.AvailableCommandInput(root=schema.UnstructuredCommandInput(hint=hint))
            if hint
            else None,
        )
        for name, (about, hint, _) in COMMANDS.items()
    ]


async def perform_command(runtime: Runtime, session_id: str, text: str) -> str | None:
    """Perform the command that a prompt is, and return what to say; `None` if it is none."""
    name, _, rest = text.removeprefix("/").partition(" ")
    if not text.startswith("/") or name not in COMMANDS:
        return None
    try:
        return await COMMANDS[name][2](runtime, session_id, rest.strip())
    except HoldfastError as error:
        return f"{error} {error.hint}".strip()


__all__ = ["COMMANDS", "list_commands", "perform_command"]
