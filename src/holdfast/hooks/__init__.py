"""Hooks, callbacks, the event bus, and the context that travels with a run.

Typed hook points (`points`), interceptors and observers (`Hooks`), script hooks, plain
callbacks, events for subscribers (`EventBus`), and `ExecutionContext`. Observers can neither
change nor break a run; what an interceptor decides is journaled. Names are loaded when they
are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# What is stored can be read whatever else is loaded: its kinds are declared with the room.
from holdfast.hooks import events as events
from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.hooks.breaker import HookLimits as HookLimits
    from holdfast.hooks.bus import NOWHERE as NOWHERE
    from holdfast.hooks.bus import Emitter as Emitter
    from holdfast.hooks.bus import EventBus as EventBus
    from holdfast.hooks.bus import EventSink as EventSink
    from holdfast.hooks.bus import Silence as Silence
    from holdfast.hooks.bus import Where as Where
    from holdfast.hooks.callbacks import Callbacks as Callbacks
    from holdfast.hooks.events import HookBroke as HookBroke
    from holdfast.hooks.events import HookDecided as HookDecided
    from holdfast.hooks.execution import ContextData as ContextData
    from holdfast.hooks.execution import ExecutionContext as ExecutionContext
    from holdfast.hooks.facts import FACT_POINTS as FACT_POINTS
    from holdfast.hooks.facts import follow_facts as follow_facts
    from holdfast.hooks.names import VIEWS as VIEWS
    from holdfast.hooks.names import BusEvent as BusEvent
    from holdfast.hooks.names import list_names as list_names
    from holdfast.hooks.notices import NOTIFICATIONS as NOTIFICATIONS
    from holdfast.hooks.notices import Notification as Notification
    from holdfast.hooks.notices import Progress as Progress
    from holdfast.hooks.notices import to_notification as to_notification
    from holdfast.hooks.notices import to_progress as to_progress
    from holdfast.hooks.points import AgentAfterExecution as AgentAfterExecution
    from holdfast.hooks.points import AgentAfterInit as AgentAfterInit
    from holdfast.hooks.points import AgentAfterShutdown as AgentAfterShutdown
    from holdfast.hooks.points import AgentBeforeExecution as AgentBeforeExecution
    from holdfast.hooks.points import AgentBeforeInit as AgentBeforeInit
    from holdfast.hooks.points import AgentBeforeShutdown as AgentBeforeShutdown
    from holdfast.hooks.points import AgentError as AgentError
    from holdfast.hooks.points import AgentResourceAcquired as AgentResourceAcquired
    from holdfast.hooks.points import AgentResourceReleased as AgentResourceReleased
    from holdfast.hooks.points import AgentStateChanged as AgentStateChanged
    from holdfast.hooks.points import ContextAfterBuild as ContextAfterBuild
    from holdfast.hooks.points import ContextAfterCompaction as ContextAfterCompaction
    from holdfast.hooks.points import ContextBeforeBuild as ContextBeforeBuild
    from holdfast.hooks.points import ContextBeforeCompaction as ContextBeforeCompaction
    from holdfast.hooks.points import EventAfterEmit as EventAfterEmit
    from holdfast.hooks.points import EventBeforeEmit as EventBeforeEmit
    from holdfast.hooks.points import EventHandlerError as EventHandlerError
    from holdfast.hooks.points import HookPayload as HookPayload
    from holdfast.hooks.points import ModelAfterResponse as ModelAfterResponse
    from holdfast.hooks.points import ModelBeforeRequest as ModelBeforeRequest
    from holdfast.hooks.points import ModelError as ModelError
    from holdfast.hooks.points import SessionCheckpoint as SessionCheckpoint
    from holdfast.hooks.points import SessionEnd as SessionEnd
    from holdfast.hooks.points import SessionRestore as SessionRestore
    from holdfast.hooks.points import SessionSave as SessionSave
    from holdfast.hooks.points import SessionStart as SessionStart
    from holdfast.hooks.points import StateAfterRead as StateAfterRead
    from holdfast.hooks.points import StateAfterWrite as StateAfterWrite
    from holdfast.hooks.points import StateBeforeRead as StateBeforeRead
    from holdfast.hooks.points import StateBeforeWrite as StateBeforeWrite
    from holdfast.hooks.points import StateConflictMet as StateConflictMet
    from holdfast.hooks.points import StateMigrated as StateMigrated
    from holdfast.hooks.points import SystemConfigurationChange as SystemConfigurationChange
    from holdfast.hooks.points import SystemResourceLimit as SystemResourceLimit
    from holdfast.hooks.points import SystemSecurityViolation as SystemSecurityViolation
    from holdfast.hooks.points import SystemShutdown as SystemShutdown
    from holdfast.hooks.points import SystemStartup as SystemStartup
    from holdfast.hooks.points import ToolAfterDiscovery as ToolAfterDiscovery
    from holdfast.hooks.points import ToolAfterExecution as ToolAfterExecution
    from holdfast.hooks.points import ToolBeforeDiscovery as ToolBeforeDiscovery
    from holdfast.hooks.points import ToolBeforeExecution as ToolBeforeExecution
    from holdfast.hooks.points import ToolFailure as ToolFailure
    from holdfast.hooks.points import ToolValidation as ToolValidation
    from holdfast.hooks.points import WorkflowAfterStage as WorkflowAfterStage
    from holdfast.hooks.points import WorkflowBeforeStage as WorkflowBeforeStage
    from holdfast.hooks.points import WorkflowBeforeStart as WorkflowBeforeStart
    from holdfast.hooks.points import WorkflowCheckpointReached as WorkflowCheckpointReached
    from holdfast.hooks.points import WorkflowComplete as WorkflowComplete
    from holdfast.hooks.points import WorkflowError as WorkflowError
    from holdfast.hooks.points import WorkflowRollback as WorkflowRollback
    from holdfast.hooks.points import WorkflowStageTransition as WorkflowStageTransition
    from holdfast.hooks.points import list_points as list_points
    from holdfast.hooks.points import match_points as match_points
    from holdfast.hooks.registry import Fired as Fired
    from holdfast.hooks.registry import Hook as Hook
    from holdfast.hooks.registry import HookRecorder as HookRecorder
    from holdfast.hooks.registry import Hooks as Hooks
    from holdfast.hooks.registry import read_text_of as read_text_of
    from holdfast.hooks.registry import record_nothing as record_nothing
    from holdfast.hooks.registry import select_points as select_points
    from holdfast.hooks.scripts import NoScripts as NoScripts
    from holdfast.hooks.scripts import ScriptHook as ScriptHook
    from holdfast.hooks.scripts import ScriptOutcome as ScriptOutcome
    from holdfast.hooks.scripts import ScriptRunner as ScriptRunner
    from holdfast.hooks.subscription import QueueOptions as QueueOptions
    from holdfast.hooks.subscription import Subscription as Subscription
    from holdfast.hooks.subscription import SubscriptionStats as SubscriptionStats
    from holdfast.hooks.verdicts import CONTINUE as CONTINUE
    from holdfast.hooks.verdicts import Cancel as Cancel
    from holdfast.hooks.verdicts import Continue as Continue
    from holdfast.hooks.verdicts import Modify as Modify
    from holdfast.hooks.verdicts import Replace as Replace
    from holdfast.hooks.verdicts import Retry as Retry
    from holdfast.hooks.verdicts import Verdict as Verdict
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "breaker": "HookLimits",
            "bus": "NOWHERE Emitter EventBus EventSink Silence Where",
            "callbacks": "Callbacks",
            "events": "HookBroke HookDecided",
            "execution": "ContextData ExecutionContext",
            "facts": "FACT_POINTS follow_facts",
            "names": "VIEWS BusEvent list_names",
            "notices": "NOTIFICATIONS Notification Progress to_notification to_progress",
            "points": (
                "AgentAfterExecution AgentAfterInit AgentAfterShutdown AgentBeforeExecution "
                "AgentBeforeInit AgentBeforeShutdown AgentError AgentResourceAcquired "
                "AgentResourceReleased AgentStateChanged ContextAfterBuild ContextAfterCompaction "
                "ContextBeforeBuild ContextBeforeCompaction EventAfterEmit EventBeforeEmit "
                "EventHandlerError HookPayload ModelAfterResponse ModelBeforeRequest ModelError "
                "SessionEnd SessionRestore SessionStart StateAfterRead StateAfterWrite StateBeforeRead "
                "StateBeforeWrite StateConflictMet StateMigrated SystemConfigurationChange "
                "SystemResourceLimit SystemSecurityViolation SystemShutdown SystemStartup "
                "ToolAfterDiscovery ToolAfterExecution ToolBeforeDiscovery ToolBeforeExecution "
                "ToolFailure ToolValidation WorkflowAfterStage WorkflowBeforeStage "
                "WorkflowBeforeStart WorkflowCheckpointReached WorkflowComplete WorkflowError "
                "WorkflowRollback WorkflowStageTransition SessionCheckpoint SessionSave "
                "list_points match_points"
            ),
            "registry": "Fired Hook HookRecorder Hooks record_nothing read_text_of select_points",
            "scripts": "NoScripts ScriptHook ScriptOutcome ScriptRunner",
            "subscription": "QueueOptions Subscription SubscriptionStats",
            "verdicts": "CONTINUE Cancel Continue Modify Replace Retry Verdict",
        },
    )
