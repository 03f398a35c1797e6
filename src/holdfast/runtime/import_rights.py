"""What an import changes at once, so that a file from anywhere brings no rights.

An export is taken for hostile: its chain says only that it is as its author wrote it. Rules
that allow, granted directories, consent, calls that are said to have been let through, and runs
that would go on by themselves are facts of another machine, and must not count on this one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.canonical import JsonObject
from holdfast.journal import Event, Payload
from holdfast.messages import ToolPart
from holdfast.policy import APPROVALS, Approval, ApprovalUsed
from holdfast.runs import LINEAGE_KEY
from holdfast.sessions import (
    ENDED,
    RUNS,
    MessageCreated,
    MessagePartUpdated,
    PermissionRule,
    Run,
    RunCancelled,
    RunParked,
    RunQueued,
    RunWoken,
    SessionChanges,
    SessionCreated,
    SessionRulesAdded,
    SessionUpdated,
)
from holdfast.state import StateChanged, ToolStateSet
from holdfast.tools import GRANTS_KEY, ContextLabels, ToolOutcomeDecided, fold_records

IMPORTED_RULES: Final = "imported_rules"
"""Where the metadata of an imported session keep the rules that are inert until trusted."""
HELD_RUNS: Final = "held_runs"
"""Where they keep the runs that go on only when they are asked to."""
_RIGHTS: Final = frozenset(
    one.kind for one in (SessionCreated, SessionRulesAdded, SessionUpdated, StateChanged)
)
_WIDEST: Final = "workspace-write"
_OFFLINE: Final = frozenset(("read-only", _WIDEST))
_SPOKEN: Final = frozenset((MessageCreated.kind, RunQueued.kind))
_WITH_PARTS: Final = frozenset((MessageCreated.kind, MessagePartUpdated.kind))


def list_import_facts(
    events: Sequence[Event], *, workspace: str, as_new: bool = False
) -> list[Payload]:
    """Return the facts that stand behind an import that is not trusted.

    It works in this workspace, or below it. A copy (`as_new`) has no runs, and so nothing of
    theirs that could go on.
    """
    facts = [
        *_list_inert_rights(events),
        *_list_bounds(events, os.path.realpath(workspace)),
        *_list_new_labels(events),
    ]
    if not as_new:
        facts += [*_list_used_up(events), *_list_given_up(events), *_list_held(events)]
    return facts


def _list_inert_rights(events: Sequence[Event]) -> list[Payload]:
    """Return the facts that set aside what an export allows; nothing if it allows nothing."""
    rules: tuple[PermissionRule, ...] = ()
    grants: StateChanged | None = None
    granted_at, is_marked = 0, False
    for event in events:
        fact = event.decode() if event.kind in _RIGHTS else None
        if isinstance(fact, SessionCreated):
            rules, is_marked = fact.permission, IMPORTED_RULES in fact.metadata
        elif isinstance(fact, SessionRulesAdded):
            rules += fact.rules
        elif isinstance(fact, SessionUpdated):
            if fact.changes.permission is not msgspec.UNSET:
                rules = fact.changes.permission
            if fact.changes.metadata is not msgspec.UNSET:
                is_marked |= IMPORTED_RULES in fact.changes.metadata
        elif isinstance(fact, StateChanged) and (fact.scope, fact.key) == ("session", GRANTS_KEY):
            grants, granted_at = fact, event.session_seq
    facts: list[Payload] = []
    inert = [rule for rule in rules if rule.action not in ("ask", "deny")]
    if inert or is_marked:
        kept = tuple(rule for rule in rules if rule.action in ("ask", "deny"))
        told: JsonObject = {IMPORTED_RULES: [msgspec.to_builtins(rule) for rule in inert] or None}
        facts.append(SessionUpdated(changes=SessionChanges(permission=kept, metadata=told)))
    if grants is not None and grants.data:
        removed = StateChanged(
            key=grants.key,
            version=grants.version + 1,
            scope=grants.scope,
            scope_id=grants.scope_id,
            previous=granted_at,
        )
        facts.append(removed)
    return facts


def _list_bounds(events: Sequence[Event], workspace: str) -> list[Payload]:
    """Return the fact that bounds where a session works, and what its commands reach.

    The directory of a session is what file tools may read, and its lineage says as what a person
    speaks in it: a file could name the home directory, and the network.
    """
    directory, lineage = "", None
    for event in events:
        fact = event.decode() if event.kind in _RIGHTS else None
        if isinstance(fact, SessionCreated):
            directory, lineage = fact.directory, fact.metadata.get(LINEAGE_KEY)
        elif isinstance(fact, SessionUpdated):
            changes = fact.changes
            if changes.directory is not msgspec.UNSET:
                directory = changes.directory
            if changes.metadata is not msgspec.UNSET:
                lineage = changes.metadata.get(LINEAGE_KEY, lineage)
    place = os.path.realpath(directory) if directory else workspace
    is_within = place == workspace or place.startswith(f"{workspace.rstrip('/')}/")
    bounds = SessionChanges()
    if not is_within:
        bounds = msgspec.structs.replace(bounds, directory=workspace)
    if isinstance(lineage, dict) and lineage.get("sandbox", _WIDEST) not in _OFFLINE:
        bounds = msgspec.structs.replace(
            bounds, metadata={LINEAGE_KEY: {**lineage, "sandbox": _WIDEST}}
        )
    return [SessionUpdated(changes=bounds)] if bounds != SessionChanges() else []


def _list_new_labels(events: Sequence[Event]) -> list[Payload]:
    """Return the facts that label what was said elsewhere as words of strangers (taint).

    What an export says of its own labels is the word of its author.
    """
    if not any(event.kind in _SPOKEN for event in events):
        return []
    labels = ContextLabels()
    labels.add(("untrusted",))
    known = {event.expect(ToolStateSet).key for event in events if event.kind == ToolStateSet.kind}
    return [fact for fact in labels.list_unkept() if fact.key not in known]


def _list_used_up(events: Sequence[Event]) -> list[Payload]:
    """Return the facts that use up every request for consent but those that were refused.

    Also those without an answer: an export could show a person one call and be sealed to
    another. A run that waits for such an answer is woken, so that it asks anew when it goes on.
    """
    rows: dict[str, Approval] = {}
    parked: set[str] = set()
    for event in events:
        if event.kind == RunParked.kind:
            parked.add(event.expect(RunParked).run_id)
        if event.kind in APPROVALS.kinds:
            fact = event.decode()
            key = APPROVALS.key(event, fact)
            row = APPROVALS.apply(rows.get(key), event, fact)
            if row is not None:
                rows[key] = row
    found: list[Payload] = []
    for row in rows.values():
        if not row.is_used and row.status != "denied":
            found.append(ApprovalUsed(approval_id=row.id, call_id=row.call_id, seal=row.seal))
            if row.status == "open" and row.run_id in parked:
                found.append(RunWoken(run_id=row.run_id, cause=f"{row.id} was imported"))
    return found


def _list_given_up(events: Sequence[Event]) -> list[Payload]:
    """Return the facts that give up every call which is said to have begun, and has no result.

    What had begun goes on without being judged again, as its verdict and its arguments were
    recorded: those of a foreign record are not ours. The model is told, and may ask anew.
    """
    ended: dict[str, bool] = {}
    for event in events:
        fact = event.decode() if event.kind in _WITH_PARTS and not event.is_redacted else None
        parts = fact.message.parts if isinstance(fact, MessageCreated) else ()
        if isinstance(fact, MessagePartUpdated) and fact.part is not None:
            parts = (fact.part,)
        for part in parts:
            if isinstance(part, ToolPart):
                ended[part.call_id] = part.state != "pending"
    return [
        ToolOutcomeDecided(call_id=call_id, verdict="abort", decided_by="The import")
        for call_id, record in fold_records(events).items()
        if not ended.get(call_id.partition(".")[0], False)
        # One that only waits for an answer has not been let through yet.
        and (record.started or record.unknown or record.decided or record.answered)
    ]


def _list_held(events: Sequence[Event]) -> list[Payload]:
    """Return the facts that keep runs from going on by themselves: their words are a stranger's.

    One that had never begun is cancelled, or the next message would have it executed first.
    """
    rows: dict[str, Run] = {}
    for event in events:
        if event.kind in RUNS.kinds:
            fact = event.decode()
            key = RUNS.key(event, fact)
            row = RUNS.apply(rows.get(key), event, fact)
            if row is not None:
                rows[key] = row
    open_runs = [run for run in rows.values() if run.status not in ENDED]
    reason = "it was only queued where it was exported"
    facts: list[Payload] = [
        RunCancelled(run_id=run.id, reason=reason) for run in open_runs if not run.has_started
    ]
    if held := [run.id for run in open_runs if run.has_started]:
        facts.append(SessionUpdated(changes=SessionChanges(metadata={HELD_RUNS: held})))
    return facts


__all__ = ["HELD_RUNS", "IMPORTED_RULES", "list_import_facts"]
