"""What admins see of a running process: tasks, slow requests, memory, a profile.

Off unless `server.debug` is on, and then only for callers with the scope `debug:read`. Each look
is journalled: a profile shows what others do.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import pstats
import sys
import tracemalloc
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from holdfast.canonical import JsonObject
from holdfast.clock import SYSTEM
from holdfast.errors import RequestInvalid
from holdfast.journal import SYSTEM_SESSION
from holdfast.operations import Caller
from holdfast.runtime import DebugUsed
from holdfast.server.app import HttpApplication
from holdfast.server.http import ServerRequest, ServerResponse
from holdfast.server.pages import to_json

_SLOW_S: Final = 0.5
_MOST_SLOW: Final = 100
_LONGEST_LOOK_S: Final = 30.0
_MOST_LINES: Final = 50


def add_debug_pages(app: HttpApplication) -> None:
    """Let an application show its inside to admins."""
    slow: deque[JsonObject] = deque(maxlen=_MOST_SLOW)

    def observe(name: str, status: int, taken: float) -> None:
        if taken >= _SLOW_S:
            slow.append({"time": SYSTEM.now(), "name": name, "status": status, "seconds": taken})

    app.observers.append(observe)

    async def show_slow(request: ServerRequest) -> JsonObject:
        return {"items": list(slow)}

    _add(app, "tasks", _show_tasks)
    _add(app, "slow", show_slow)
    _add(app, "memory", _show_memory)
    _add(app, "profile", _show_profile)


def _add(
    app: HttpApplication, name: str, show: Callable[[ServerRequest], Awaitable[JsonObject]]
) -> None:
    async def answer(
        request: ServerRequest, caller: Caller | None, request_id: str
    ) -> ServerResponse:
        known = await app.authenticate(request)
        app.check_operator(known, "debug:read")
        runtime = await app.runtimes.runtime_for(known)
        looked = DebugUsed(by=known.subject, what=name, request_id=request_id)
        await runtime.journal.append(SYSTEM_SESSION, [looked])
        return to_json(await show(request))

    app.pages[("GET", f"/v1/debug/{name}")] = answer


async def _show_tasks(request: ServerRequest) -> JsonObject:
    """Every task of the event loop, with where it waits; no values of variables."""
    return {"items": [_describe_task(task) for task in asyncio.all_tasks()]}


def _describe_task(task: asyncio.Task[Any]) -> JsonObject:
    frames = task.get_stack(limit=5)
    places = [f"{one.f_code.co_filename}:{one.f_lineno} {one.f_code.co_name}" for one in frames]
    return {"name": task.get_name(), "is_done": task.done(), "stack": places}


async def _show_memory(request: ServerRequest) -> JsonObject:
    """Where memory is taken in the next `?seconds=`; counting slows everything, so it ends then."""
    seconds = _read_seconds(request)
    async with _profiling:
        is_ours = not tracemalloc.is_tracing()
        if is_ours:
            tracemalloc.start()
        try:
            await asyncio.sleep(seconds)
            current, peak = tracemalloc.get_traced_memory()
            snapshot = await asyncio.to_thread(tracemalloc.take_snapshot)
        finally:
            if is_ours:
                tracemalloc.stop()
    top = snapshot.statistics("lineno")[:_MOST_LINES]
    return {
        "seconds": seconds,
        "bytes": current,
        "peak_bytes": peak,
        "items": [{"at": str(one.traceback), "bytes": one.size, "count": one.count} for one in top],
    }


_profiling = asyncio.Lock()


async def _show_profile(request: ServerRequest) -> JsonObject:
    """What the event loop does in the next `?seconds=`, at most half a minute."""
    seconds = _read_seconds(request)
    async with _profiling:
        profile = cProfile.Profile()
        if sys.getprofile() is not None:
            raise RequestInvalid(detail="the process is being profiled already")
        profile.enable()
        try:
            await asyncio.sleep(seconds)
        finally:
            profile.disable()
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("cumulative").print_stats(_MOST_LINES)
    return {"seconds": seconds, "profile": text.getvalue()}


def _read_seconds(request: ServerRequest) -> float:
    try:
        seconds = float(dict(request.read_query()).get("seconds", "5"))
    except ValueError:
        raise RequestInvalid(detail="seconds is a number") from None
    if not 0 < seconds <= _LONGEST_LOOK_S:
        raise RequestInvalid(detail=f"seconds lies between 0 and {_LONGEST_LOOK_S:g}")
    return seconds


__all__ = ["add_debug_pages"]
