"""Points that are facts: hooks that hear of them shortly after they are stored.

They follow from the journal's feed, so they also tell of what other processes do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.canonical import JsonObject
from holdfast.hooks.bus import EventBus
from holdfast.hooks.names import BusEvent
from holdfast.hooks.points import (
    HookPayload,
    SessionCheckpoint,
    SessionEnd,
    SessionRestore,
    SessionSave,
    SessionStart,
    SystemConfigurationChange,
    SystemResourceLimit,
    SystemSecurityViolation,
)
from holdfast.hooks.registry import Hooks
from holdfast.hooks.subscription import Subscription

FACT_POINTS: tuple[type[HookPayload], ...] = (
    SessionStart,
    SessionEnd,
    SessionRestore,
    SessionCheckpoint,
    SessionSave,
    SystemConfigurationChange,
    SystemResourceLimit,
    SystemSecurityViolation,
)
"""Points that need the feed."""

_LIMITS = ("budget.exceeded", "rate.limited")


_ENDS = ("run.completed", "run.parked", "run.failed", "run.cancelled")


async def follow_facts(bus: EventBus, hooks: Hooks) -> Subscription:
    """Fire the points that are facts, from now on."""

    async def tell(event: BusEvent) -> None:
        make = _MAKERS.get(event.name)
        told = make(event, event.data) if make is not None else None
        if told is not None:
            await hooks.notify(told)
        if event.name in _ENDS:
            status = event.name.removeprefix("run.")
            await hooks.notify(SessionCheckpoint(**_read_ids(event), status=status))

    # Every hook has a time limit of its own; several of them may need theirs in full.
    return await bus.subscribe(tuple({**_MAKERS, **dict.fromkeys(_ENDS)}), tell, name="hooks")


def _read_ids(event: BusEvent) -> dict[str, str]:
    return {
        "session_id": event.session_id,
        "run_id": event.run_id,
        "agent": event.agent_path.rsplit("/", 1)[-1],
    }


def _tell_started(event: BusEvent, data: JsonObject) -> HookPayload:
    return SessionStart(**_read_ids(event), title=str(data.get("title", "")))


def _tell_archived(event: BusEvent, data: JsonObject) -> HookPayload:
    return SessionEnd(**_read_ids(event), how="archived", reason=str(data.get("reason", "")))


def _tell_deleted(event: BusEvent, data: JsonObject) -> HookPayload:
    where = {**_read_ids(event), "session_id": str(data.get("session_id", ""))}
    return SessionEnd(**where, how="deleted", reason=str(data.get("reason", "")))


def _tell_state_changed(event: BusEvent, data: JsonObject) -> HookPayload:
    how = str(data.get("state", ""))
    return SessionEnd(**_read_ids(event), how=how, reason=str(data.get("reason", "")))


def _tell_restored(event: BusEvent, data: JsonObject) -> HookPayload:
    return SessionRestore(**_read_ids(event), reason=str(data.get("reason", "")))


def _tell_saved(event: BusEvent, data: JsonObject) -> HookPayload:
    changes = data.get("changes")
    changed = tuple(sorted(changes)) if isinstance(changes, dict) else ()
    return SessionSave(**_read_ids(event), changed=changed)


def _tell_registered(event: BusEvent, data: JsonObject) -> HookPayload:
    name = str(data.get("agent", {}).get("name", ""))
    return SystemConfigurationChange(what="agent", name=name, change="registered", agent=name)


def _tell_removed(event: BusEvent, data: JsonObject) -> HookPayload:
    name = str(data.get("name", ""))
    return SystemConfigurationChange(what="agent", name=name, change="removed", agent=name)


def _tell_failed(event: BusEvent, data: JsonObject) -> HookPayload | None:
    error = data.get("error", {})
    code = str(error.get("code", ""))
    if not code.startswith(_LIMITS):
        return None
    return SystemResourceLimit(**_read_ids(event), limit=code, detail=str(error.get("message", "")))


def _tell_rate_limited(event: BusEvent, data: JsonObject) -> HookPayload:
    detail = f"{data.get('provider', '')}:{data.get('model', '')} {data.get('rule', '')}".strip()
    return SystemResourceLimit(**_read_ids(event), limit=event.name, detail=detail)


def _make_denied(event: BusEvent, data: JsonObject) -> HookPayload:
    return SystemSecurityViolation(
        **_read_ids(event),
        tool=str(data.get("tool", "")),
        permission=str(data.get("permission", "")),
        targets=tuple(str(target) for target in data.get("targets", ())),
        because=str(data.get("because", "")),
    )


def _tell_violated(event: BusEvent, data: JsonObject) -> HookPayload | None:
    # What rules refuse is told by `permission.denied` already.
    if data.get("source") not in ("tool", "sandbox"):
        return None
    return _make_denied(event, data)


_MAKERS: dict[str, Callable[[BusEvent, Any], HookPayload | None]] = {
    "session.created": _tell_started,
    "session.archived": _tell_archived,
    "session.deleted": _tell_deleted,
    "session.state_changed": _tell_state_changed,
    "session.restored": _tell_restored,
    "session.updated": _tell_saved,
    "agent.registered": _tell_registered,
    "agent.removed": _tell_removed,
    "run.failed": _tell_failed,
    "provider.rate_limited": _tell_rate_limited,
    "permission.denied": _make_denied,
    "policy.violation": _tell_violated,
}
