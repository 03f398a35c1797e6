"""Everything built once: services, the surroundings of a call, opening and closing.

`Runtime` is the only place that puts services together, `CallEnvironment` the only one that puts
the surroundings of a call together, `ProcessEnvironment` the only one that confines a process.
Faces reach it through `holdfast.operations`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.runtime.approvals import ApprovalDetails as ApprovalDetails
    from holdfast.runtime.approvals import ClientResult as ClientResult
    from holdfast.runtime.approvals import OpenQuestion as OpenQuestion
    from holdfast.runtime.artifacts import LOCAL_USER as LOCAL_USER
    from holdfast.runtime.audit import TrailFinding as TrailFinding
    from holdfast.runtime.backups import BackupReport as BackupReport
    from holdfast.runtime.backups import back_up as back_up
    from holdfast.runtime.calls import CallEnvironment as CallEnvironment
    from holdfast.runtime.egress import EgressService as EgressService
    from holdfast.runtime.hand_calls import ToolCallResult as ToolCallResult
    from holdfast.runtime.identity_events import KeyChanged as KeyChanged
    from holdfast.runtime.identity_events import LoginEnded as LoginEnded
    from holdfast.runtime.identity_events import TenantChanged as TenantChanged
    from holdfast.runtime.identity_events import UserErased as UserErased
    from holdfast.runtime.import_rights import HELD_RUNS as HELD_RUNS
    from holdfast.runtime.loops import LoopItem as LoopItem
    from holdfast.runtime.loops import read_news as read_news
    from holdfast.runtime.models import ReadyModel as ReadyModel
    from holdfast.runtime.plugins import Plugin as Plugin
    from holdfast.runtime.plugins import inspect_plugin as inspect_plugin
    from holdfast.runtime.plugins import list_plugins as list_plugins
    from holdfast.runtime.plugins import normalize_name as normalize_name
    from holdfast.runtime.processes import ProcessEnvironment as ProcessEnvironment
    from holdfast.runtime.recorded_calls import read_recorded_calls as read_recorded_calls
    from holdfast.runtime.request_events import DebugUsed as DebugUsed
    from holdfast.runtime.request_events import KeptKey as KeptKey
    from holdfast.runtime.run_kinds import name_begun_session as name_begun_session
    from holdfast.runtime.runtime import Runtime as Runtime
    from holdfast.runtime.runtime import make_forked_error as make_forked_error
    from holdfast.runtime.sent_trace import SentTrace as SentTrace
    from holdfast.runtime.storage import UsageReport as UsageReport
    from holdfast.runtime.storage import open_whole_file as open_whole_file
    from holdfast.runtime.storage import write_whole as write_whole
    from holdfast.runtime.tenants import ErasedUser as ErasedUser
    from holdfast.runtime.tenants import delete_records as delete_records
    from holdfast.runtime.tenants import erase_user as erase_user
    from holdfast.runtime.tenants import export_tenant as export_tenant
    from holdfast.runtime.tenants import make_tenant_runtime as make_tenant_runtime
    from holdfast.runtime.tenants import open_tenant as open_tenant
    from holdfast.runtime.transfer import export_session as export_session
    from holdfast.runtime.transfer import import_session as import_session
    from holdfast.runtime.undo import UndoReport as UndoReport
    from holdfast.runtime.work_metrics import WorkMetrics as WorkMetrics
    from holdfast.runtime.work_metrics import format_metrics as format_metrics
    from holdfast.runtime.workflows import OnWait as OnWait
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "approvals": "ApprovalDetails ClientResult OpenQuestion",
            "artifacts": "LOCAL_USER",
            "audit": "TrailFinding",
            "calls": "CallEnvironment",
            "hand_calls": "ToolCallResult",
            "identity_events": "KeyChanged LoginEnded TenantChanged UserErased",
            "loops": "LoopItem read_news",
            "models": "ReadyModel",
            "egress": "EgressService",
            "processes": "ProcessEnvironment",
            "recorded_calls": "read_recorded_calls",
            "request_events": "DebugUsed KeptKey",
            "run_kinds": "name_begun_session",
            "runtime": "Runtime make_forked_error",
            "storage": "UsageReport open_whole_file write_whole",
            "backups": "BackupReport back_up",
            "tenants": "ErasedUser delete_records erase_user export_tenant make_tenant_runtime "
            "open_tenant",
            "plugins": "Plugin inspect_plugin list_plugins normalize_name",
            "sent_trace": "SentTrace",
            "import_rights": "HELD_RUNS",
            "transfer": "export_session import_session",
            "undo": "UndoReport",
            "work_metrics": "WorkMetrics format_metrics",
            "workflows": "OnWait",
        },
    )
