"""What becomes a line of the audit trail: calls, consents, policies, network, keys, of any run.

Lines are made from stored events alone, so the same event makes the same line, whoever makes it
and when; that is how the trail is checked against the journal.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from holdfast._version import __version__
from holdfast.canonical import JsonObject
from holdfast.journal import Event, Payload
from holdfast.mcp import McpInvoked
from holdfast.messages import ToolPart
from holdfast.observability import AuditEntry
from holdfast.sessions import MessageCreated, MessagePartUpdated
from holdfast.tools import NestedCallEnded, ToolStarted
from holdfast.tools.egress import EgressClosed, EgressOpened, EgressRefused

_NETWORK_TOOLS: Final = frozenset({"webfetch", "websearch", "codesearch"})
_EXCHANGES: Final = frozenset({MessageCreated.kind, MessagePartUpdated.kind, NestedCallEnded.kind})
AUDITED_ROOMS: Final = (
    "approval.",
    "artifact.shared",
    "artifact.unshared",
    "agent.registered",
    "agent.removed",
    "debug.",
    "egress.",
    "hook.decided",
    "identity.",
    "journal.",
    "mcp.",
    "permission.",
    "policy.",
    "session.deleted",
    "session.rules_added",
    "tool.answered",
    "tool.outcome_decided",
    "tool.parked",
    "tool.started",
    "tool.unknown_outcome",
    "trigger.created",
    "trigger.removed",
    "webhook.added",
    "webhook.removed",
)
"""Kinds of events, or how they begin, each of which is a line."""
_ACTORS: Final = ("by", "decided_by", "answered_by", "asked_by", "principal")


def is_audited(event: Event) -> bool:
    """Say whether an event can make a line."""
    return event.kind in _EXCHANGES or event.kind.startswith(AUDITED_ROOMS)


def make_entry(event: Event, *, tenant: str, owner: str) -> AuditEntry | None:
    """Return the line of an event, `None` if it makes none.

    `owner` is the subject of the event's session; who acted may be said more exactly.
    """
    fact = event.decode()
    if event.kind in _EXCHANGES:
        return _make_exchange(event, fact, tenant=tenant, owner=owner)
    detail = _make_detail(fact)
    actors = [str(detail[name]) for name in _ACTORS if detail.get(name)]
    entry = _begin(event, event.kind, tenant=tenant, actor=actors[0] if actors else owner)
    if isinstance(fact, ToolStarted):
        intent = fact.intent
        return msgspec.structs.replace(
            entry,
            tool=intent.tool,
            tool_version=intent.version,
            source_hash=fact.source_hash,
            outcome="started",
            is_network=intent.tool in _NETWORK_TOOLS,
            detail={"call_id": intent.call_id, "effect": fact.effect},
        )
    if isinstance(fact, McpInvoked):
        # The seeds' name for it, which operators look for.
        entry = msgspec.structs.replace(entry, action="mcp_invoke", is_network=True)
    if isinstance(fact, EgressOpened | EgressClosed | EgressRefused):
        entry = msgspec.structs.replace(entry, is_network=True)
    said = [detail.get(name) for name in ("outcome", "verdict", "action")]
    return msgspec.structs.replace(
        entry,
        tool=str(detail.get("tool", "")),
        outcome=next((one for one in said if isinstance(one, str)), ""),
        detail=detail,
    )


def is_same(line: AuditEntry, expected: AuditEntry, *, is_redacted: bool) -> bool:
    """Compare a line with the one that its event makes now.

    Of a redacted event only the shape is left: there the line is bound by its hash alone.
    """
    line = msgspec.structs.replace(line, holdfast_version=expected.holdfast_version)
    if not is_redacted:
        return line == expected
    named = ("seq", "kind", "session_id", "session_seq", "run_id", "hash", "time", "agent")
    return all(getattr(line, name) == getattr(expected, name) for name in named)


def make_bare_entry(event: Event, *, tenant: str) -> AuditEntry:
    """Return what every line of an event says, whatever is left of its content."""
    return _begin(event, event.kind, tenant=tenant, actor="")


def _make_exchange(event: Event, fact: Payload, *, tenant: str, owner: str) -> AuditEntry | None:
    """Return the line of a call of a tool that has ended, or of a model that has answered."""
    if isinstance(fact, MessageCreated):
        message = fact.message
        if message.role != "assistant" or not message.provider:
            return None
        usage = message.usage
        detail: JsonObject = {
            "message_id": message.id,
            "provider": message.provider,
            "model": message.model,
            "input_tokens": usage.input if usage else 0,
            "output_tokens": usage.output if usage else 0,
        }
        entry = _begin(event, "model.call", tenant=tenant, actor=owner)
        return msgspec.structs.replace(
            entry,
            outcome=message.stop_reason,
            is_network=message.provider != "offline",
            detail=detail,
        )
    assert isinstance(fact, MessagePartUpdated | NestedCallEnded)
    part = fact.part
    if not isinstance(part, ToolPart) or part.state == "pending":
        return None
    entry = _begin(event, "tool.call", tenant=tenant, actor=owner)
    took_s = (part.time_end or 0.0) - (part.time_start or 0.0)
    return msgspec.structs.replace(
        entry,
        tool=part.tool,
        tool_version=str(part.metadata.get("tool_version", "")),
        source_hash=str(part.metadata.get("source_hash", "")),
        outcome=part.state,
        is_network=part.tool in _NETWORK_TOOLS,
        detail={"call_id": part.call_id, "duration_s": round(max(took_s, 0.0), 6)},
    )


def _begin(event: Event, action: str, *, tenant: str, actor: str) -> AuditEntry:
    return AuditEntry(
        time=datetime.fromtimestamp(event.time, UTC).isoformat(timespec="microseconds"),
        seq=event.seq,
        kind=event.kind,
        action=action,
        tenant=tenant,
        # Without a subject it is the owner of the state directory.
        actor=actor or "owner",
        agent=event.agent_path,
        session_id=event.session_id,
        session_seq=event.session_seq,
        run_id=event.run_id,
        hash=event.hash,
        holdfast_version=__version__,
    )


def _make_detail(fact: Payload) -> JsonObject:
    """Return what retention would leave of a fact: ids and shape."""
    kept = fact.redacted() if fact.has_content else fact
    found: JsonObject = msgspec.to_builtins(kept)
    return found


__all__ = ["is_audited", "is_same", "make_bare_entry", "make_entry"]
