"""`client.workers`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, workers


class WorkerNamespace(Surface[Mode]):
    """Workers: who goes on with sessions, and what was given up."""

    run = workers.run
    list = workers.list_
    list_dead = workers.list_dead
    retry = workers.retry
