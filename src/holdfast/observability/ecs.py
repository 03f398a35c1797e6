"""Field names of lines: short ones for people, those of the Elastic Common Schema in JSON.

Rooms write short names; this table is the only place that knows the others. What has no name in
the schema stands below `holdfast.` (ours) or `labels.` (of other libraries), so that no index gets
a field of two types.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from holdfast._version import __version__

ECS_VERSION: Final = "8.11.0"
ECS_NAMES: Final[Mapping[str, str]] = {
    "timestamp": "@timestamp",
    "level": "log.level",
    "logger": "log.logger",
    "exception": "error.stack_trace",
    "stack": "error.stack_trace",
    "error": "error.code",
    "detail": "error.message",
    "reason": "event.reason",
    "outcome": "event.outcome",
    "request_id": "http.request.id",
    "status_code": "http.response.status_code",
    "trace_id": "trace.id",
    "tenant": "organization.id",
    "by": "user.name",
    "run_id": "holdfast.run.id",
    "run": "holdfast.run.id",
    "session_id": "holdfast.session.id",
    "session": "holdfast.session.id",
    "agent": "gen_ai.agent.name",
    "provider": "gen_ai.provider.name",
    "model": "gen_ai.request.model",
    "stop_reason": "gen_ai.response.finish_reasons",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "tool": "gen_ai.tool.name",
    "call_id": "gen_ai.tool.call.id",
    "text": "gen_ai.output.messages",
    "arguments": "gen_ai.tool.call.arguments",
}
"""Short names, and what they are called in JSON."""
_MEANT_FOR_JSON: Final = frozenset({"trace_id", "call_id", "seq"})
"""What every line has and a person hardly needs."""


def rename_fields(entry: Mapping[str, object], *, is_ours: bool) -> dict[str, object]:
    """Return the fields of a line under the schema's names.

    Seconds become the schema's nanoseconds, and what is empty is left out.
    """
    event = entry.get("event", "")
    made: dict[str, object] = {
        "@timestamp": entry.get("timestamp", ""),
        "log.level": entry.get("level", ""),
        "message": event,
        "ecs.version": ECS_VERSION,
        "service.name": "holdfast",
        "service.version": __version__,
        "process.pid": os.getpid(),
    }
    if is_ours:
        made["event.action"] = event
    for name, value in entry.items():
        if name in ("event", "timestamp", "level") or value is None or value == "":
            continue
        if name == "duration_s" and isinstance(value, int | float):
            made["event.duration"] = int(value * 1e9)
            continue
        known = ECS_NAMES.get(name)
        if known is None:
            known = f"holdfast.{name}" if is_ours else f"labels.{name}"
            if not is_ours and not isinstance(value, str | int | float | bool):
                value = str(value)
        made[known] = value
    return made


def render_for_people(event: str, fields: Mapping[str, object]) -> str:
    """Return a line without time and level: what happened, then what a person asks first."""
    shown = [event]
    for name, value in fields.items():
        if value is None or value in ("", 0) or name in _MEANT_FOR_JSON:
            continue
        if name == "tenant" and value == "default":
            continue
        if isinstance(value, float):
            value = f"{value:.3f}" if name.endswith("_s") else f"{value:.6g}"
        text = str(value)
        shown.append(f'{name}="{text}"' if " " in text else f"{name}={text}")
    # A value must not look like a line of its own.
    return " ".join(shown).replace("\n", "\\n")


__all__ = ["ECS_NAMES", "ECS_VERSION", "rename_fields", "render_for_people"]
