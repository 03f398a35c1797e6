"""Hooks, callbacks, the event bus, and the context that travels with a run.

Typed hook points (`points`), interceptors and observers (`Hooks`), script hooks, plain
callbacks, events for subscribers (`EventBus`), and `ExecutionContext`.
"""

from holdfast.hooks.breaker import HookLimits
from holdfast.hooks.bus import NOWHERE, Emitter, EventBus, EventSink, Silence, Where
from holdfast.hooks.callbacks import Callbacks
from holdfast.hooks.events import HookBroke, HookDecided
from holdfast.hooks.execution import ContextData, ExecutionContext
from holdfast.hooks.facts import FACT_POINTS, follow_facts
from holdfast.hooks.names import VIEWS, BusEvent, names_of
from holdfast.hooks.notices import Notification, Progress
from holdfast.hooks.points import HookPayload, all_points
from holdfast.hooks.registry import Fired, Hook, HookRecorder, Hooks, record_nothing
from holdfast.hooks.scripts import NoScripts, ScriptHook, ScriptOutcome, ScriptRunner
from holdfast.hooks.subscription import QueueOptions, Subscription, SubscriptionStats
from holdfast.hooks.verdicts import CONTINUE, Cancel, Continue, Modify, Replace, Retry, Verdict

__all__ = [
    "CONTINUE",
    "FACT_POINTS",
    "NOWHERE",
    "VIEWS",
    "BusEvent",
    "Callbacks",
    "Cancel",
    "ContextData",
    "Continue",
    "Emitter",
    "EventBus",
    "EventSink",
    "ExecutionContext",
    "Fired",
    "Hook",
    "HookBroke",
    "HookDecided",
    "HookLimits",
    "HookPayload",
    "HookRecorder",
    "Hooks",
    "Modify",
    "NoScripts",
    "Notification",
    "Progress",
    "QueueOptions",
    "Replace",
    "Retry",
    "ScriptHook",
    "ScriptOutcome",
    "ScriptRunner",
    "Silence",
    "Subscription",
    "SubscriptionStats",
    "Verdict",
    "Where",
    "all_points",
    "follow_facts",
    "names_of",
    "record_nothing",
]
