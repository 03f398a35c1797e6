"""Log lines of what this process does: a projection of the facts that it stores.

No place that acts has to remember to log: whatever reaches the journal makes its line, in the
task that stored it, so that fields which are bound there (the id of an HTTP request) are on it.
Facts that other processes store make their lines there. What is no fact is logged where it is
noticed: leases by `turns`, a slow store here, the length of the queue by `LoadWatch`.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from holdfast.journal import SYSTEM_SESSION, Draft, Event, Payload
from holdfast.messages import ToolPart
from holdfast.observability import EVENTS_LOGGER, LogEvent, Logger, make_trace_id, read_log_fields
from holdfast.providers import ModelRetried
from holdfast.sessions import (
    MessageCreated,
    MessagePartUpdated,
    RunFailure,
    RunParked,
    RunQueued,
    RunResumed,
)
from holdfast.settings import Settings
from holdfast.tools import NestedCallEnded, PermissionRefused

_DEBUG, _INFO, _WARNING, _ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR
LEVELS: Final[Mapping[str, int]] = {
    "run.queued": _DEBUG,
    "run.started": _INFO,
    "run.resumed": _INFO,
    "run.parked": _INFO,
    "run.completed": _INFO,
    "run.cancelled": _INFO,
    "run.cancel_requested": _INFO,
    "run.failed": _ERROR,
    "message.created": _INFO,
    "message.part.updated": _INFO,
    "tool.nested_ended": _INFO,
    "tool.parked": _INFO,
    "tool.unknown_outcome": _WARNING,
    "tool.outcome_decided": _INFO,
    "permission.denied": _INFO,
    "approval.requested": _INFO,
    "approval.answered": _INFO,
    "policy.loaded": _INFO,
    "policy.reload_requested": _INFO,
    "policy.rejected": _ERROR,
    "policy.violation": _WARNING,
    "egress.refused": _WARNING,
    "mcp.connected": _INFO,
    "mcp.lost": _WARNING,
    "mcp.invoke": _DEBUG,
    "mcp.granted": _INFO,
    "mcp.elicited": _INFO,
    "model.retried": _WARNING,
    "model.fallback": _WARNING,
    "provider.rate_limited": _WARNING,
    "hook.failed": _WARNING,
    "loop.waited": _WARNING,
    "loop.reported": _INFO,
    "plan.refused": _WARNING,
    "workflow.completed": _INFO,
    "workflow.failed": _ERROR,
    "workflow.step_failed": _WARNING,
    "trigger.fired": _INFO,
    "identity.key_changed": _INFO,
    "identity.login_ended": _INFO,
    "identity.tenant_changed": _INFO,
    "identity.user_erased": _INFO,
    "session.deleted": _INFO,
    "journal.redacted": _INFO,
    "webhook.added": _INFO,
    "webhook.removed": _INFO,
}
"""How important a kind of fact is; what is not named is for `debug`.

`error`: work has ended without its result, or a file of the operator is not obeyed. `warning`: it
goes on, but not as it should. `info`: what an operator asks about later.
"""
_NAMES: Final = {
    "message.created": "model.called",
    "message.part.updated": "tool.called",
    "tool.nested_ended": "tool.called",
}
"""Names of lines that are not the kind of their fact."""
_REPORTS: Final = "holdfast.observability.error_reports"
_MOST_RUNS: Final = 10_000
_MOST_TEXT: Final = 2_000
_MOST_REASON: Final = 300
_log = Logger("holdfast.storage")
_broken = logging.getLogger("holdfast.logs")

Fields: TypeAlias = dict[str, object]


class _RunSoFar(msgspec.Struct):
    """What a run has done in this process."""

    trace_id: str
    began: float
    last: float
    agent: str = ""
    retries: int = 0
    model_calls: int = 0
    tool_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0


class LogLines:
    """Writes a line for each fact that is important enough; an observer of a journal."""

    def __init__(self, settings: Settings, tenant: str) -> None:
        """Write in the name of this tenant."""
        self._tenant = tenant
        self._has_content = settings.log.content
        self._slow_s = settings.log.slow_store_s
        self._runs: OrderedDict[str, _RunSoFar] = OrderedDict()
        self._loggers: dict[str, logging.Logger] = {}
        self._root = logging.getLogger(EVENTS_LOGGER)
        if not self._root.handlers:
            # An application without a log of its own gets no lines on its standard error.
            self._root.addHandler(logging.NullHandler())

    def note(self, drafts: Sequence[Draft], events: Sequence[Event], took_s: float) -> None:
        """Write what was stored; whatever goes wrong here, the run goes on."""
        reports = sys.modules.get(_REPORTS)
        has_reports = reports is not None and reports.has_error_reporters()
        is_low = has_reports or self._root.isEnabledFor(_INFO)
        try:
            for draft, event in zip(drafts, events, strict=True):
                # Below `info` lines are rare, and nothing has to be counted for them.
                level = LEVELS.get(event.kind, _DEBUG)
                if is_low or level > _INFO:
                    self._note_one(draft.value, event, level)
            if took_s > self._slow_s:
                kinds = ",".join(dict.fromkeys(event.kind for event in events))
                first = events[0]
                _log.warning(
                    "storage.slow",
                    duration_s=took_s,
                    kinds=kinds,
                    tenant=self._tenant,
                    run_id=first.run_id,
                    session_id=first.session_id,
                )
        except Exception:  # noqa: BLE001 - a line must not end a run
            _broken.exception("a log line could not be made")

    def _note_one(self, fact: Payload, event: Event, level: int) -> None:
        so_far = self._find_run(event)
        fields: Fields | None
        make = _MAKERS.get(event.kind)
        if make is not None:
            fields = make(fact, event, so_far, self._has_content)
            if fields is None:  # no news: a message of the user, a part that has not ended
                level, fields = _DEBUG, {}
            name = _NAMES.get(event.kind, event.kind) if fields else event.kind
        else:
            name, fields = event.kind, {}
        so_far.last = event.time
        if level >= _ERROR and (reports := sys.modules.get(_REPORTS)) is not None:
            told = _list_scalars(fact) if make is None else fields
            reports.report_error(name, self._add_ids(told, event, so_far))
        if not self._root.isEnabledFor(level):
            return
        if make is None:
            fields = _list_scalars(fact)
        self._write(level, name, fields, event, so_far)

    def _write(
        self, level: int, name: str, fields: Fields, event: Event, so_far: _RunSoFar
    ) -> None:
        room = name.partition(".")[0]
        logger = self._loggers.get(room)
        if logger is None:
            logger = self._loggers[room] = logging.getLogger(f"{EVENTS_LOGGER}.{room}")
        if not logger.isEnabledFor(level):
            return
        said = LogEvent(name, self._add_ids(fields, event, so_far), is_clean=True)
        # Not by `logger.log`, which looks for the line of code of the caller: here it says nothing.
        record = logger.makeRecord(logger.name, level, "", 0, said, (), None)
        record.created = event.time
        logger.handle(record)

    def _add_ids(self, fields: Fields, event: Event, so_far: _RunSoFar) -> Fields:
        """Return the fields with those that say where they belong."""
        session_id = "" if event.session_id == SYSTEM_SESSION else event.session_id
        return {
            **fields,
            "agent": event.agent_path or so_far.agent,
            "run_id": event.run_id or str(fields.get("run_id", "")),
            "session_id": session_id or str(fields.get("session_id", "")),
            "tenant": self._tenant,
            "trace_id": so_far.trace_id,
            "seq": event.seq,
            **read_log_fields(),
        }

    def _find_run(self, event: Event) -> _RunSoFar:
        known = self._runs.get(event.run_id)
        if known is None:
            root = event.correlation_id or event.run_id
            trace = make_trace_id(root).hex() if root else ""
            known = _RunSoFar(trace_id=trace, began=event.time, last=event.time)
            if event.run_id:
                self._runs[event.run_id] = known
                if len(self._runs) > _MOST_RUNS:
                    self._runs.popitem(last=False)
        if event.kind in _ENDS:
            self._runs.pop(event.run_id, None)
        return known


_ENDS: Final = frozenset({"run.completed", "run.failed", "run.cancelled", "run.parked"})
_Maker: TypeAlias = Callable[[Payload, Event, _RunSoFar, bool], "Fields | None"]


def _note_queued(fact: Payload, _event: Event, run: _RunSoFar, _content: bool) -> Fields:
    assert isinstance(fact, RunQueued)
    run.agent = fact.agent
    return {"agent": fact.agent, "is_urgent": fact.is_urgent or ""}


def _note_begin(fact: Payload, event: Event, _run: _RunSoFar, _content: bool) -> Fields:
    cause = fact.cause if isinstance(fact, RunResumed) else ""
    # The epoch is the fencing token of the lease that was taken with this fact.
    return {"cause": cause, "epoch": event.epoch}


def _note_end(fact: Payload, event: Event, run: _RunSoFar, _content: bool) -> Fields:
    fields: Fields = {
        "outcome": "failure" if isinstance(fact, RunFailure) else "success",
        "duration_s": max(event.time - run.began, 0.0),
        "model_calls": run.model_calls,
        "tool_calls": run.tool_calls,
        "input_tokens": run.input_tokens,
        "output_tokens": run.output_tokens,
        "cost_usd": run.cost_usd,
    }
    if isinstance(fact, RunFailure):
        fields["error"] = str(fact.error.get("code", "failed"))
        fields["detail"] = _cut(fact.error.get("message", ""))
    elif isinstance(fact, RunParked):
        fields["reason"], fields["outcome"] = fact.reason, "unknown"
    else:
        fields["reason"] = _cut(getattr(fact, "reason", ""))
    return fields


def _note_message(fact: Payload, event: Event, run: _RunSoFar, content: bool) -> Fields | None:
    assert isinstance(fact, MessageCreated)
    message = fact.message
    if message.role != "assistant" or not message.provider:
        return None
    usage = message.usage
    read = usage.input + usage.cache_read + usage.cache_write if usage is not None else 0
    written = usage.output + usage.reasoning if usage is not None else 0
    retries, run.retries = run.retries, 0
    run.model_calls += 1
    run.input_tokens += read
    run.output_tokens += written
    run.cost_usd += message.cost_usd
    fields: Fields = {
        "provider": message.provider,
        "model": message.model,
        "duration_s": max(event.time - run.last, 0.0),
        "input_tokens": read,
        "output_tokens": written,
        "cached_tokens": usage.cache_read if usage is not None else 0,
        "cost_usd": message.cost_usd,
        "stop_reason": message.stop_reason,
        "retries": retries or "",
    }
    if content:
        fields["text"] = message.text[:_MOST_TEXT]
    return fields


def _note_part(fact: Payload, _event: Event, run: _RunSoFar, content: bool) -> Fields | None:
    assert isinstance(fact, MessagePartUpdated | NestedCallEnded)
    part = fact.part
    if not isinstance(part, ToolPart) or part.state == "pending":
        return None
    run.tool_calls += 1
    fields: Fields = {
        "tool": part.tool,
        "outcome": "failure" if part.state == "error" else "success",
        "duration_s": max((part.time_end or 0.0) - (part.time_start or 0.0), 0.0),
        "call_id": part.call_id,
    }
    if content:
        fields["arguments"] = msgspec.json.encode(part.input).decode()[:_MOST_TEXT]
        fields["text"] = (part.error or part.output)[:_MOST_TEXT]
    return fields


def _note_denial(fact: Payload, _event: Event, _run: _RunSoFar, _content: bool) -> Fields:
    assert isinstance(fact, PermissionRefused)
    return {
        "tool": fact.tool,
        "permission": fact.permission,
        "targets": _cut(" ".join(fact.targets)),
        "reason": _cut(fact.because),
        "call_id": fact.call_id,
    }


def _note_retry(fact: Payload, _event: Event, run: _RunSoFar, _content: bool) -> Fields:
    assert isinstance(fact, ModelRetried)
    run.retries += 1
    return {
        "provider": fact.provider,
        "model": fact.model,
        "attempt": fact.attempt,
        "wait_s": fact.wait_s,
        "error": fact.error_code,
        "reason": _cut(fact.reason),
    }


_MAKERS: Final[Mapping[str, _Maker]] = {
    "run.queued": _note_queued,
    "run.started": _note_begin,
    "run.resumed": _note_begin,
    "run.parked": _note_end,
    "run.completed": _note_end,
    "run.failed": _note_end,
    "run.cancelled": _note_end,
    "message.created": _note_message,
    "message.part.updated": _note_part,
    "tool.nested_ended": _note_part,
    "permission.denied": _note_denial,
    "model.retried": _note_retry,
}
_RENAMED: Final = {
    "error_code": "error",
    "because": "reason",
    "asked_by": "by",
    "answered_by": "by",
}


def _list_scalars(fact: Payload) -> Fields:
    """Return what retention would leave of a fact, as far as it fits a line."""
    kept = fact.redacted() if fact.has_content else fact
    found: Fields = {}
    for name, value in msgspec.to_builtins(kept).items():
        if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
            value = "; ".join(value)
        if isinstance(value, str):
            # Of kinds that are not in the table any text may be a person's, such as a title.
            if fact.kind not in LEVELS and not name.endswith("_id"):
                continue
            value = _cut(value)
        if isinstance(value, str | int | float):
            found[_RENAMED.get(name, name)] = value
    return found


def _cut(text: object) -> str:
    plain = str(text)
    return plain if len(plain) <= _MOST_REASON else plain[: _MOST_REASON - 1] + "…"


__all__ = ["LEVELS", "LogLines"]
