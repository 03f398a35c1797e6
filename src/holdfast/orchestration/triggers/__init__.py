"""Triggers: agents and workflows that start on an event or on a schedule, exactly once."""

from holdfast.orchestration.triggers.book import (
    FIRINGS,
    TRIGGER_PROJECTIONS,
    TRIGGERS,
    Firing,
    TriggerBook,
    TriggerRow,
)
from holdfast.orchestration.triggers.loop import (
    MOST_CHAIN,
    TRIGGER_KEY,
    End,
    Start,
    Starter,
    TriggerLoop,
)
from holdfast.orchestration.triggers.trigger import (
    EventPattern,
    Timetable,
    Trigger,
    read_trigger,
)

__all__ = [
    "FIRINGS",
    "MOST_CHAIN",
    "TRIGGERS",
    "TRIGGER_KEY",
    "TRIGGER_PROJECTIONS",
    "End",
    "EventPattern",
    "Firing",
    "Start",
    "Starter",
    "Timetable",
    "Trigger",
    "TriggerBook",
    "TriggerLoop",
    "TriggerRow",
    "read_trigger",
]
