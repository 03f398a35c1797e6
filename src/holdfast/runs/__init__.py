"""How an agent works: the turn, its tools, its spending, its children, its streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.runs.children import CHILDREN as CHILDREN
    from holdfast.runs.children import ChildRun as ChildRun
    from holdfast.runs.children import children_of as children_of
    from holdfast.runs.children import runs_below as runs_below
    from holdfast.runs.children import runs_below_session as runs_below_session
    from holdfast.runs.confinement import Confinement as Confinement
    from holdfast.runs.confinement import visible_tools as visible_tools
    from holdfast.runs.history import history_tool as history_tool
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
    from holdfast.runs.lineage import below as below
    from holdfast.runs.lineage import below_call as below_call
    from holdfast.runs.lineage import lineage_of as lineage_of
    from holdfast.runs.lineage import position_of as position_of
    from holdfast.runs.lineage import refresh_ancestor_rules as refresh_ancestor_rules
    from holdfast.runs.lineage import starter_options as starter_options
    from holdfast.runs.runtime import AgentRuntime as AgentRuntime
    from holdfast.runs.runtime import TakeOver as TakeOver
    from holdfast.runs.runtime import run_messages as run_messages
    from holdfast.runs.services import CallScope as CallScope
    from holdfast.runs.services import OpensCalls as OpensCalls
    from holdfast.runs.services import RunCalls as RunCalls
    from holdfast.runs.services import RunServices as RunServices
    from holdfast.runs.spending import Budgets as Budgets
    from holdfast.runs.spending import Spending as Spending
    from holdfast.runs.spending import session_budget as session_budget
    from holdfast.runs.streaming import StartedRun as StartedRun
    from holdfast.runs.streaming import StreamItem as StreamItem
    from holdfast.runs.streaming import streamed as streamed
    from holdfast.runs.tools import compact as compact
    from holdfast.runs.tools import plan_tools as plan_tools
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "hook_files": "ConfinedScripts HookFile HookFiles register_files",
            "spending": "Budgets Spending session_budget",
            "children": "CHILDREN ChildRun children_of runs_below runs_below_session",
            "tools": "compact plan_tools",
            "lineage": "starter_options LINEAGE_KEY Lineage PropagatingApprover RunPosition add_rules_above below below_call lineage_of position_of refresh_ancestor_rules",
            "history": "history_tool",
            "confinement": "Confinement visible_tools",
            "streaming": "StartedRun StreamItem streamed",
            "instrumentation": "Instrumentation",
            "runtime": "TakeOver run_messages AgentRuntime",
            "services": "CallScope OpensCalls RunCalls RunServices",
        },
    )
