"""Triggers: agents and workflows that start on an event or on a schedule, exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.orchestration.triggers.book import FIRINGS as FIRINGS
    from holdfast.orchestration.triggers.book import TRIGGER_PROJECTIONS as TRIGGER_PROJECTIONS
    from holdfast.orchestration.triggers.book import TRIGGERS as TRIGGERS
    from holdfast.orchestration.triggers.book import Firing as Firing
    from holdfast.orchestration.triggers.book import TriggerBook as TriggerBook
    from holdfast.orchestration.triggers.book import TriggerRow as TriggerRow
    from holdfast.orchestration.triggers.events import FiringStatus as FiringStatus
    from holdfast.orchestration.triggers.loop import LABELS as LABELS
    from holdfast.orchestration.triggers.loop import LOOK_S as LOOK_S
    from holdfast.orchestration.triggers.loop import MOST_CHAIN as MOST_CHAIN
    from holdfast.orchestration.triggers.loop import TRIGGER_KEY as TRIGGER_KEY
    from holdfast.orchestration.triggers.loop import End as End
    from holdfast.orchestration.triggers.loop import Start as Start
    from holdfast.orchestration.triggers.loop import Starter as Starter
    from holdfast.orchestration.triggers.loop import TriggerLoop as TriggerLoop
    from holdfast.orchestration.triggers.trigger import EventPattern as EventPattern
    from holdfast.orchestration.triggers.trigger import Timetable as Timetable
    from holdfast.orchestration.triggers.trigger import Trigger as Trigger
    from holdfast.orchestration.triggers.trigger import read_trigger as read_trigger
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "events": "FiringStatus",
            "book": "FIRINGS Firing TRIGGERS TRIGGER_PROJECTIONS TriggerBook TriggerRow",
            "loop": "LABELS LOOK_S End MOST_CHAIN Start Starter TRIGGER_KEY TriggerLoop",
            "trigger": "EventPattern Timetable Trigger read_trigger",
        },
    )
