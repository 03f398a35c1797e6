"""`client.triggers`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, triggers


class TriggerNamespace(Surface[Mode]):
    """Triggers: events and schedules that start runs."""

    add = triggers.add
    list = triggers.list_
    remove = triggers.remove
    firings = triggers.firings
    run = triggers.run
