"""Lists of tasks: filtered, what changed last first, in pages."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any, Final

from holdfast.canonical import JsonObject
from holdfast.operations import Caller, runs
from holdfast.runtime import Runtime
from holdfast.server.a2a.asked import read_count, read_flag, read_id
from holdfast.server.a2a.failures import A2aRefused
from holdfast.server.a2a.tasks import STATES, make_task
from holdfast.sessions import Run

_MOST_RUNS: Final = 1_000
_MOST_PAGE: Final = 100
_PAGE: Final = 50
_MOST_HISTORY: Final = 100
_WAITING: Final = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")
_STATES: Final = frozenset({*STATES.values(), *_WAITING, "TASK_STATE_REJECTED"})


async def list_tasks(
    runtime: Runtime, caller: Caller, agent: str, params: dict[str, Any]
) -> JsonObject:
    """Return a page of the tasks that a caller may see, of the newest thousand runs."""
    size = read_count(params, "pageSize", _MOST_PAGE)
    if size == 0:
        raise A2aRefused("INVALID_PARAMS", "a page has at least one task", "pageSize")
    history = read_count(params, "historyLength", _MOST_HISTORY)
    with_artifacts = read_flag(params, "includeArtifacts")
    context = read_id(params, "contextId", is_needed=False)
    state = read_id(params, "status", is_needed=False)
    if state == "TASK_STATE_UNSPECIFIED":
        state = ""
    if state and state not in _STATES:
        raise A2aRefused("INVALID_PARAMS", f"there is no state {state!r}", "status")
    after = _read_time(params)
    before = _read_token(read_id(params, "pageToken", is_needed=False))
    found = await runs.list_.perform(runtime, caller, kind="agent", is_top=True, limit=_MOST_RUNS)
    kept = [
        run
        for run in found
        if (not agent or run.agent == agent)
        and (not context or run.session_id == context)
        and (not after or _find_time(run) >= after)
    ]
    kept.sort(key=_order, reverse=True)
    if state:
        kept = [run for run in kept if await _has_state(runtime, caller, run, state)]
    left = [run for run in kept if before is None or _order(run) < before]
    page = left[: size or _PAGE]
    tasks = [
        await make_task(
            runtime,
            caller,
            run,
            history=history if history is not None else 0,
            with_artifacts=with_artifacts,
        )
        for run in page
    ]
    token = _make_token(page[-1]) if len(left) > len(page) else ""
    return {
        "tasks": tasks,
        "nextPageToken": token,
        "pageSize": size or _PAGE,
        "totalSize": len(kept),
    }


async def _has_state(runtime: Runtime, caller: Caller, run: Run, state: str) -> bool:
    if run.status != "parked":
        return STATES[run.status] == state
    task = await make_task(runtime, caller, run, history=0, with_artifacts=False)
    return bool(task["status"]["state"] == state)


def _find_time(run: Run) -> float:
    return run.time_ended or run.time_started or run.time_queued


def _order(run: Run) -> tuple[float, str]:
    return _find_time(run), run.id


def _read_time(params: dict[str, Any]) -> float:
    given = read_id(params, "statusTimestampAfter", is_needed=False)
    if not given:
        return 0.0
    try:
        found = datetime.fromisoformat(given)
    except ValueError as error:
        said = "a time is written as 2026-01-31T12:00:00Z"
        raise A2aRefused("INVALID_PARAMS", said, "statusTimestampAfter") from error
    return found.timestamp()


def _make_token(run: Run) -> str:
    at, id = _order(run)
    return base64.urlsafe_b64encode(f"{at!r} {id}".encode()).decode()


def _read_token(token: str) -> tuple[float, str] | None:
    if not token:
        return None
    try:
        at, _, id = base64.urlsafe_b64decode(token).decode().partition(" ")
        return float(at), id
    except (binascii.Error, ValueError) as error:
        raise A2aRefused("INVALID_PARAMS", "this is no token of ours", "pageToken") from error


__all__ = ["list_tasks"]
