"""Who goes on with a session: wake-ups, workers that take them, and dead letters.

The unit is the session. A wake-up says that something waits in its inbox; the worker that takes it
holds the session's lease while it works, so that a wake-up too many does no harm and the order of
turns is kept. In one process wake-ups are a queue in memory; on Postgres they are jobs of
procrastinate, stored by the transaction that appended the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.dispatch.dispatcher import DeadLetter as DeadLetter
    from holdfast.dispatch.dispatcher import Dispatcher as Dispatcher
    from holdfast.dispatch.dispatcher import Progress as Progress
    from holdfast.dispatch.dispatcher import WakeHandler as WakeHandler
    from holdfast.dispatch.dispatcher import WorkerOptions as WorkerOptions
    from holdfast.dispatch.dispatcher import WorkerStatus as WorkerStatus
    from holdfast.dispatch.registry import open_dispatcher as open_dispatcher
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "dispatcher": "DeadLetter Dispatcher Progress WakeHandler WorkerOptions WorkerStatus",
            "registry": "open_dispatcher",
        },
    )
