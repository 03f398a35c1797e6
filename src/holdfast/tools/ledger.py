"""The effect ledger: what is known about calls that a crash or a wait left open.

The tool's declared effect decides how to go on. A read or an idempotent call runs again with
the same key; a tool that can reconcile is asked; anything else is put before a person.
Nothing is silently repeated, and nothing silently forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from holdfast.errors import HoldfastError, TellModel
from holdfast.journal import Event, Journal
from holdfast.messages import ToolPart
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool
from holdfast.tools.effects import Reconciliation
from holdfast.tools.events import (
    NestedCallEnded,
    ToolAnswered,
    ToolOutcomeDecided,
    ToolOutcomeUnknown,
    ToolParked,
    ToolStarted,
)
from holdfast.tools.invocation import ask_aside
from holdfast.tools.result import ToolResult

_KINDS = frozenset(
    cls.kind
    for cls in (
        NestedCallEnded,
        ToolAnswered,
        ToolOutcomeDecided,
        ToolOutcomeUnknown,
        ToolParked,
        ToolStarted,
    )
)
_PAGE = 500


class CallRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal knows about a call that has no result in the conversation yet.

    `ended` is the result of a call inside another call, such as a batch.
    """

    started: ToolStarted | None = None
    began_under: int = 0
    """The fence under which it began."""
    unknown: ToolOutcomeUnknown | None = None
    decided: ToolOutcomeDecided | None = None
    parked: ToolParked | None = None
    answered: ToolAnswered | None = None
    ended: ToolPart | None = None

    @property
    def is_waiting(self) -> bool:
        """Say whether an approver has been asked and has not answered."""
        if self.ended is not None:
            return False
        waits_for_verdict = self.unknown is not None and self.decided is None
        return waits_for_verdict or (self.parked is not None and self.answered is None)


NOTHING_KNOWN = CallRecord()


class Again(msgspec.Struct, frozen=True):
    """Call it, with the same idempotency key as before."""


class Known(msgspec.Struct, frozen=True):
    """The result is known without a call."""

    result: ToolResult


class AskPerson(msgspec.Struct, frozen=True):
    """Only a person can say."""

    question: str


Way: TypeAlias = Again | Known | AskPerson


async def read_records(
    journal: Journal, session_id: str, *, after: int = 0
) -> dict[str, CallRecord]:
    """Return what is known about calls since an event, by call id."""
    records: dict[str, CallRecord] = {}
    while page := await journal.read(session_id, after=after, limit=_PAGE, kinds=_KINDS):
        for event in page:
            _note(records, event)
        after = page[-1].session_seq
    return records


def fold_records(events: Iterable[Event]) -> dict[str, CallRecord]:
    """Return what events say about calls, by call id."""
    records: dict[str, CallRecord] = {}
    for event in events:
        if event.kind in _KINDS:
            _note(records, event)
    return records


async def choose_way_forward(tool: Tool, record: CallRecord, context: ToolContext) -> Way:
    """Say how to go on with a call that has begun and has no result.

    A tool that declares another effect than it did then is not trusted to know about the
    old call.
    """
    if record.answered is not None and record.answered.result is not None:
        return Known(record.answered.result)
    if record.decided is not None:
        return _decide(record.decided)
    if record.started is None:
        return Again()
    then = record.started.effect
    may_act = record.began_under <= context.unproved_fence
    if tool.effect == then and then in ("read", "idempotent"):
        return Again()
    if tool.effect == then and tool.reconcile is not None:
        intent = record.started.intent
        try:
            found = await ask_aside(tool, tool.reconcile, intent, context)
            return _reconcile(tool, found, may_act)
        except (TellModel, HoldfastError) as error:
            # A tool that cannot say is no tool that did nothing.
            return AskPerson(
                _make_question(tool, f"it could not find out itself: {error}", may_act)
            )
    return AskPerson(_make_question(tool, "its outcome was not recorded", may_act))


def _note(records: dict[str, CallRecord], event: Event) -> None:
    fact = event.decode()
    replace = msgspec.structs.replace
    match fact:
        case ToolStarted(intent=intent):
            # What was asked and said before was about an earlier attempt.
            records[intent.call_id] = replace(
                records.get(intent.call_id, NOTHING_KNOWN),
                started=fact,
                began_under=event.epoch,
                unknown=None,
                decided=None,
            )
        case NestedCallEnded(call_id=call_id, part=part):
            records[call_id] = replace(records.get(call_id, NOTHING_KNOWN), ended=part)
        case ToolOutcomeUnknown(call_id=call_id):
            records[call_id] = replace(records.get(call_id, NOTHING_KNOWN), unknown=fact)
        case ToolOutcomeDecided(call_id=call_id):
            records[call_id] = replace(records.get(call_id, NOTHING_KNOWN), decided=fact)
        case ToolParked(call_id=call_id):
            records[call_id] = replace(records.get(call_id, NOTHING_KNOWN), parked=fact)
        case ToolAnswered(call_id=call_id):
            records[call_id] = replace(records.get(call_id, NOTHING_KNOWN), answered=fact)


def _decide(decided: ToolOutcomeDecided) -> Way:
    if decided.verdict == "not_happened":
        return Again()
    if decided.verdict == "happened":
        return Known(decided.result or ToolResult(f"It happened, says {decided.decided_by}."))
    text = f"{decided.decided_by} gave this call up; do not try it again."
    return Known(ToolResult(text, is_error=True))


def _reconcile(tool: Tool, found: Reconciliation, may_act: bool) -> Way:
    if found.verdict == "not_happened":
        return Again()
    if found.verdict == "happened" and found.result is not None:
        return Known(found.result)
    return AskPerson(_make_question(tool, found.because or "the tool could not find out", may_act))


def _make_question(tool: Tool, because: str, may_act: bool) -> str:
    """Say what is known: `may_act` if nothing proves that the caller's process has ended."""
    if may_act:
        return (
            f"A call of {tool.name} was under way in another process, which lost its lease on the "
            f"session, and {because}. The other process may still be alive: the effect may yet "
            "happen. End that process or look at what the call changes, then say: did it happen?"
        )
    return (
        f"A call of {tool.name} was under way when its run was interrupted, and {because}. "
        "Did it happen?"
    )
