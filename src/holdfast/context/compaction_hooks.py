"""What hooks may say about making room, and the conversation they say it about."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from holdfast.context.history import after_compaction
from holdfast.errors import HookRefused
from holdfast.hooks import (
    Cancel,
    ContextAfterCompaction,
    ContextBeforeCompaction,
    Hooks,
    Replace,
    read_text_of,
)
from holdfast.messages import Message, read_compaction
from holdfast.sessions import Session

Reason: TypeAlias = Literal["overflow", "refused", "requested"]


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A session with its messages, and the run that is under way in it.

    Making room gives a new one.
    """

    session: Session
    messages: tuple[Message, ...]
    run_id: str = ""
    unread: int = 0
    """So many messages came before these, and were not read: they cannot fit."""


class CompactionWish(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of the hooks: what to pay attention to, a summary, or a refusal."""

    focus: str = ""
    summary: str = ""
    refused: HookRefused | None = None


class CompactionHooks(msgspec.Struct, frozen=True, kw_only=True):
    """Asks hooks before room is made, and tells them afterwards."""

    hooks: Hooks = msgspec.field(default_factory=Hooks)
    agent: str = ""

    async def before(
        self, conversation: Conversation, reason: Reason, tokens: int, focus: str = ""
    ) -> CompactionWish:
        """Ask whether, and with which summary."""
        if not self.hooks.has(ContextBeforeCompaction):
            return CompactionWish(focus=focus)
        asked = ContextBeforeCompaction(
            reason=reason,
            messages=tuple(after_compaction(conversation.messages)),
            tokens=tokens,
            focus=focus,
            session_id=conversation.session.id,
            run_id=conversation.run_id,
            agent=self.agent,
        )
        fired = await self.hooks.fire(asked)
        if isinstance(fired.verdict, Cancel):
            refused = HookRefused(hook=fired.hook, point=asked.point, reason=fired.verdict.reason)
            return CompactionWish(refused=refused)
        summary = read_text_of(fired.verdict.value) if isinstance(fired.verdict, Replace) else ""
        return CompactionWish(focus=fired.payload.focus, summary=summary.strip())

    async def after(
        self, old: Conversation, new: Conversation, reason: Reason, tokens: tuple[int, int]
    ) -> None:
        """Tell what the model sees from now on, and how many tokens it took and takes."""
        if not self.hooks.has(ContextAfterCompaction):
            return
        part = read_compaction(new.messages[-1]) if len(new.messages) > len(old.messages) else None
        told = ContextAfterCompaction(
            reason=reason,
            summary=part.summary if part is not None else "",
            tokens_before=tokens[0],
            tokens_after=tokens[1],
            session_id=old.session.id,
            run_id=old.run_id,
            agent=self.agent,
        )
        await self.hooks.notify(told)


NO_HOOKS = CompactionHooks()
