"""Call the code of others: with a time limit, off the loop if it is a plain function."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import Any


async def call_limited(function: Callable[..., Any], *args: object, timeout_s: float) -> object:
    """Call a function, plain or `async`, and return what it returns.

    A plain function runs in a thread of its own, so that it may block, and may use the
    blocking client. When its time is up no caller waits for it any longer.

    Raises:
        TimeoutError: it took too long.
        Exception: whatever it raised; an attempt to end the program, or to cancel a task
            that no caller cancelled, becomes a `RuntimeError`.
    """
    try:
        async with asyncio.timeout(timeout_s):
            if _is_async(function):
                return await function(*args)
            answer = await _run_in_thread(function, *args)
            return await answer if inspect.isawaitable(answer) else answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("it cancelled itself") from error
    except SystemExit as error:
        raise RuntimeError(f"it tried to end the program: {error}") from error


def _is_async(function: Callable[..., Any]) -> bool:
    call = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async one
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def _run_in_thread(function: Callable[..., Any], *args: object) -> object:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[object] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: object, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> None:
        result: object = None
        failure: BaseException | None = None
        try:
            result = context.run(function, *args)
        except StopIteration as error:
            failure = RuntimeError(f"it raised {error!r}")
        except BaseException as error:  # noqa: BLE001 - the waiting task gets it
            failure = error
        # The loop may have ended while the function hung.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failure)

    # A daemon: a function that hangs must not keep the program from ending.
    threading.Thread(target=work, name="holdfast-hook", daemon=True).start()
    return await future
