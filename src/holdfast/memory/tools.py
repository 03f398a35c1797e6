"""The `remember` and `recall` tools, made for one manager."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import Field

from holdfast.canonical import hash_sha256
from holdfast.errors import AlreadyExists, TellModel, UsageError
from holdfast.ids import make_id
from holdfast.memory.entry import MemoryOptions, Provenance, Scope
from holdfast.tools import Tool, ToolContext, ToolResult, sort_labels, tool

if TYPE_CHECKING:
    from holdfast.memory.manager import MemoryManager

ManagerOf: TypeAlias = "Callable[[str], Awaitable[MemoryManager]]"
"""Returns the manager that acts for a session."""


def make_memory_tools(manager: MemoryManager | ManagerOf) -> tuple[Tool, Tool]:
    """Return `remember` and `recall` for the sessions of a manager, or of what finds it."""

    async def of(session_id: str) -> MemoryManager:
        return await manager(session_id) if callable(manager) else manager

    @tool(effect="idempotent", tags=("memory",))
    async def remember(
        content: Annotated[str, Field(min_length=1, max_length=20_000)],
        context: ToolContext,
        kind: Annotated[str, Field(max_length=40)] = "fact",
        importance: Annotated[float, Field(ge=0, le=1)] = 0.5,
        scope: Literal["session", "project", "user"] | None = None,
    ) -> ToolResult:
        """Keep something for later: a fact, a preference, a decision.

        Args:
            content: What to keep, complete in itself, with names and dates.
            kind: What it is, such as fact, preference, decision, lesson.
            importance: 0 for trivia, 1 for what must never be missed.
            scope: Who should find it: this project (default), this session only, or the user
                in every project; the last only where the user asks for it.
        """
        acting = await of(context.session_id)
        options = MemoryOptions(
            scope=scope or ("project" if acting.identity.project else "session"),
            kind=kind,
            importance=importance,
            provenance=Provenance(
                author=context.agent_path[-1] if context.agent_path else "",
                tool="remember",
                run_id=context.run_id,
                labels=tuple(sorted(context.labels.seen)),
            ),
        )
        memory_id = _get_id(context.idempotency_key)
        context.check_still_mine()
        try:
            await acting.store_memory(
                context.session_id,
                content,
                {},
                options=options,
                memory_id=memory_id,
                fence=context.fence,
            )
        except AlreadyExists:
            # The same call again after a crash: it is remembered already.
            return ToolResult(f"Remembered as {memory_id}.", metadata={"memory_id": memory_id})
        except UsageError as error:
            raise TellModel(str(error)) from error
        return ToolResult(f"Remembered as {memory_id}.", metadata={"memory_id": memory_id})

    @tool(effect="read", tags=("memory",), labels=("private",))
    async def recall(
        query: Annotated[str, Field(min_length=1, max_length=2_000)],
        context: ToolContext,
        limit: Annotated[int, Field(ge=1, le=50)] = 8,
        other_projects: bool = False,
    ) -> ToolResult:
        """Look for what was kept before, by words and by meaning.

        Args:
            query: What to look for, as a question or in key words.
            limit: How many memories to return at most.
            other_projects: Look also at what was kept for the user in every project.
        """
        scopes: tuple[Scope, ...] = ("session", "project", "user") if other_projects else ()
        try:
            acting = await of(context.session_id)
            found = await acting.search_memory(context.session_id, query, limit, scopes=scopes)
        except UsageError as error:
            raise TellModel(str(error)) from error
        # Taint outlives the session that it was read in.
        context.labels.add(sort_labels(one for entry in found for one in entry.labels))
        lines = [
            f"[{entry.id}] {entry.speaker + ': ' if entry.speaker else ''}{entry.content}"
            for entry in found
        ]
        return ToolResult(
            "\n".join(lines) or "Nothing was found.",
            title=f"{len(found)} memories",
            metadata={
                "memory_ids": [entry.id for entry in found],
                "scores": [round(entry.relevance_score, 4) for entry in found],
            },
        )

    return remember, recall


def _get_id(key: str) -> str:
    return f"mem_{hash_sha256(key.encode())[:26]}" if key else make_id("mem")


__all__ = ["make_memory_tools"]
