"""Run what is asynchronous to its end, or to its orderly end after Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from holdfast.cli.interrupts import INTERRUPTS
from holdfast.cli.output import say

_T = TypeVar("_T")
_STOPPING = "Stopping; Ctrl-C again in a moment leaves at once."


def run_async(
    work: Coroutine[Any, Any, _T], *, wind_down: Callable[[], object] | None = None
) -> _T:
    """Run the work on a loop of its own and return its result.

    Ctrl-C cancels it, once: its clean-up is not disturbed by others (see `interrupts`). With
    `wind_down` the first Ctrl-C calls that, on the loop, and the next one cancels.

    Raises:
        KeyboardInterrupt: the work was cancelled by Ctrl-C, and has ended.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        tasks: list[asyncio.Task[Any]] = []

        def on_loop(call: Callable[[], object]) -> Callable[[], None]:
            def hand_over() -> None:
                # A loop that is closed has nothing left to end.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(call)

            return hand_over

        def cancel() -> None:
            say(_STOPPING, err=True)
            for task in tasks:
                task.cancel()

        async def whole() -> _T:
            tasks.extend(filter(None, [asyncio.current_task()]))
            if INTERRUPTS.is_ending:
                raise asyncio.CancelledError
            return await work

        winding = on_loop(wind_down) if wind_down is not None else None
        # Until the loop is closed: what comes then finds nothing left to cancel.
        with INTERRUPTS.cancelling(on_loop(cancel), wind_down=winding):
            try:
                return runner.run(whole())
            except asyncio.CancelledError:
                if INTERRUPTS.is_ending:
                    raise KeyboardInterrupt from None
                raise
            finally:
                work.close()
                runner.close()
