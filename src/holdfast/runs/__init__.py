"""How an agent works: the turn, its tools, its spending, its children, its streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.runs.children import CHILDREN as CHILDREN
    from holdfast.runs.children import ChildRun as ChildRun
    from holdfast.runs.children import list_children_of as list_children_of
    from holdfast.runs.children import list_runs_below as list_runs_below
    from holdfast.runs.children import list_runs_below_session as list_runs_below_session
    from holdfast.runs.client_tools import CLIENT_CALL as CLIENT_CALL
    from holdfast.runs.client_tools import check_client_tools as check_client_tools
    from holdfast.runs.confinement import Confinement as Confinement
    from holdfast.runs.confinement import select_visible_tools as select_visible_tools
    from holdfast.runs.files import LOCAL_USER as LOCAL_USER
    from holdfast.runs.files import MessageFiles as MessageFiles
    from holdfast.runs.files import OpensArtifacts as OpensArtifacts
    from holdfast.runs.files import make_session_actor as make_session_actor
    from holdfast.runs.history import make_history_tool as make_history_tool
    from holdfast.runs.hook_files import ConfinedScripts as ConfinedScripts
    from holdfast.runs.hook_files import HookFile as HookFile
    from holdfast.runs.hook_files import HookFiles as HookFiles
    from holdfast.runs.hook_files import register_files as register_files
    from holdfast.runs.instrumentation import Instrumentation as Instrumentation
    from holdfast.runs.lineage import LINEAGE_KEY as LINEAGE_KEY
    from holdfast.runs.lineage import Lineage as Lineage
    from holdfast.runs.lineage import PropagatingApprover as PropagatingApprover
    from holdfast.runs.lineage import RunPosition as RunPosition
    from holdfast.runs.lineage import add_rules_above as add_rules_above
    from holdfast.runs.lineage import derive_call_lineage as derive_call_lineage
    from holdfast.runs.lineage import list_below as list_below
    from holdfast.runs.lineage import locate_run as locate_run
    from holdfast.runs.lineage import make_starter_options as make_starter_options
    from holdfast.runs.lineage import read_lineage as read_lineage
    from holdfast.runs.lineage import refresh_ancestor_rules as refresh_ancestor_rules
    from holdfast.runs.runtime import AgentRuntime as AgentRuntime
    from holdfast.runs.runtime import TakeOver as TakeOver
    from holdfast.runs.runtime import run_messages as run_messages
    from holdfast.runs.runtime import summarize as summarize
    from holdfast.runs.services import CallScope as CallScope
    from holdfast.runs.services import OpensCalls as OpensCalls
    from holdfast.runs.services import RunCalls as RunCalls
    from holdfast.runs.services import RunServices as RunServices
    from holdfast.runs.spending import Budgets as Budgets
    from holdfast.runs.spending import Spending as Spending
    from holdfast.runs.spending import read_session_budget as read_session_budget
    from holdfast.runs.streaming import StartedRun as StartedRun
    from holdfast.runs.streaming import StreamItem as StreamItem
    from holdfast.runs.streaming import stream_model as stream_model
    from holdfast.runs.tools import compact as compact
    from holdfast.runs.tools import plan_tools as plan_tools
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "hook_files": "ConfinedScripts HookFile HookFiles register_files",
            "spending": "Budgets Spending read_session_budget",
            "children": "CHILDREN ChildRun list_children_of list_runs_below list_runs_below_session",
            "client_tools": "CLIENT_CALL check_client_tools",
            "tools": "compact plan_tools",
            "lineage": "make_starter_options LINEAGE_KEY Lineage PropagatingApprover RunPosition add_rules_above list_below derive_call_lineage read_lineage locate_run refresh_ancestor_rules",
            "files": "LOCAL_USER MessageFiles OpensArtifacts make_session_actor",
            "history": "make_history_tool",
            "confinement": "Confinement select_visible_tools",
            "streaming": "StartedRun StreamItem stream_model",
            "instrumentation": "Instrumentation",
            "runtime": "TakeOver run_messages summarize AgentRuntime",
            "services": "CallScope OpensCalls RunCalls RunServices",
        },
    )
