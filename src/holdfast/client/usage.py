"""Usage: tokens and dollars of runs, agents and sessions, each answer counted once."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from holdfast.client.base import ClientBase
from holdfast.messages import Message, TokenUsage
from holdfast.providers.accounting import PICO, Charge, LedgerScope, UsageLedger, UsageTotals
from holdfast.sessions.events import MessageCreated, SessionForked

_KINDS = frozenset({MessageCreated.kind, SessionForked.kind})
_PAGE = 500


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was used and what it cost: in total, and by agent, run, session and model."""

    total: UsageTotals
    by_agent: dict[str, UsageTotals]
    by_run: dict[str, UsageTotals]
    by_session: dict[str, UsageTotals]
    by_model: dict[str, UsageTotals]


class UsageMethods(ClientBase):
    """What the client can say about usage."""

    async def get_usage(self, session_id: str = "") -> UsageReport:
        """Return what a session used, or all sessions; read from the answers themselves.

        What a fork took over from its source counts there and not again. `cost_usd` of a
        total is `None` as soon as the price of one of its calls is not known.

        Raises:
            NotFound: there is no such session.
        """
        sessions = await self._ready()
        ledger = UsageLedger()
        if session_id:
            await self._count_session(ledger, (await sessions.get_session(session_id)).id)
        else:
            async for each in self._all_sessions():
                await self._count_session(ledger, each)
        scopes: tuple[LedgerScope, ...] = ("agent", "run", "session", "model")
        by = {f"by_{scope}": ledger.all_of(scope) for scope in scopes}
        return UsageReport(total=ledger.of("all"), **by)

    async def _all_sessions(self) -> AsyncGenerator[str, None]:
        cursor = ""
        while True:
            page = await self._sessions.list_sessions(
                sort="time_created", descending=False, limit=_PAGE, cursor=cursor
            )
            for session in page.items:
                yield session.id
            cursor = page.next_cursor
            if not cursor:
                return

    async def _count_session(self, ledger: UsageLedger, session_id: str) -> None:
        after = 0
        found: list[Message] = []
        while page := await self._journal.read(session_id, after=after, limit=_PAGE, kinds=_KINDS):
            after = page[-1].session_seq
            for event in page:
                fact = event.decode()
                if isinstance(fact, SessionForked):
                    found.clear()
                elif isinstance(fact, MessageCreated) and _was_paid(fact.message):
                    found.append(msgspec.structs.replace(fact.message, session_id=session_id))
        for message in found:
            ledger.add(message, _charge_of(message))


def _was_paid(message: Message) -> bool:
    """Answers, and the summaries that a model wrote for a compaction."""
    return message.role == "assistant" or message.usage is not None or message.cost_usd > 0


def _charge_of(message: Message) -> Charge:
    is_known = message.metadata.get("cost") != "unknown"
    return Charge(
        usage=message.usage or TokenUsage(),
        cost_pico_usd=round(message.cost_usd * PICO) if is_known else None,
        is_estimate=message.metadata.get("usage") == "estimate",
    )
