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
    from holdfast.runtime.approvals import OpenQuestion as OpenQuestion
    from holdfast.runtime.calls import CallEnvironment as CallEnvironment
    from holdfast.runtime.egress import EgressService as EgressService
    from holdfast.runtime.hand_calls import ToolCallResult as ToolCallResult
    from holdfast.runtime.loops import LoopItem as LoopItem
    from holdfast.runtime.loops import read_news as read_news
    from holdfast.runtime.models import ReadyModel as ReadyModel
    from holdfast.runtime.processes import ProcessEnvironment as ProcessEnvironment
    from holdfast.runtime.runs import DEFAULT_AGENT as DEFAULT_AGENT
    from holdfast.runtime.runtime import Runtime as Runtime
    from holdfast.runtime.runtime import make_forked_error as make_forked_error
    from holdfast.runtime.storage import UsageReport as UsageReport
    from holdfast.runtime.storage import read_export as read_export
    from holdfast.runtime.storage import whole_file as whole_file
    from holdfast.runtime.storage import write_whole as write_whole
    from holdfast.runtime.workflows import OnWait as OnWait
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "approvals": "ApprovalDetails OpenQuestion",
            "calls": "CallEnvironment",
            "hand_calls": "ToolCallResult",
            "loops": "LoopItem read_news",
            "models": "ReadyModel",
            "egress": "EgressService",
            "processes": "ProcessEnvironment",
            "runs": "DEFAULT_AGENT",
            "runtime": "Runtime make_forked_error",
            "storage": "UsageReport read_export whole_file write_whole",
            "workflows": "OnWait",
        },
    )
