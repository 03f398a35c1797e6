"""Define tools, keep them in registries, execute them behind the one gate.

A `Tool` is a frozen definition made by `@tool`; a `ToolRegistry` holds those that a project or a
session may use. `ToolExecutionManager` executes calls: validated, admitted by the `Gate`, with
the intent of every effect in the journal before it happens (idempotency key, reconciliation after
a crash). What runs a tool gets everything it may touch from a `ToolContext`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.tools.approval_broker import ApprovalAnswer as ApprovalAnswer
    from holdfast.tools.approval_broker import ApprovalRequest as ApprovalRequest
    from holdfast.tools.approval_broker import Approver as Approver
    from holdfast.tools.approval_broker import AutoConfirm as AutoConfirm
    from holdfast.tools.approval_broker import NoApprover as NoApprover
    from holdfast.tools.artifacts import LABELS_KEY as LABELS_KEY
    from holdfast.tools.artifacts import RunArtifacts as RunArtifacts
    from holdfast.tools.artifacts import load_kept_output as load_kept_output
    from holdfast.tools.artifacts import redact_text as redact_text
    from holdfast.tools.base_tool import BaseTool as BaseTool
    from holdfast.tools.builtin import GRANTS_KEY as GRANTS_KEY
    from holdfast.tools.builtin import SearchHit as SearchHit
    from holdfast.tools.builtin import SearchProvider as SearchProvider
    from holdfast.tools.builtin import SearxngSearch as SearxngSearch
    from holdfast.tools.builtin import builtin_tools as builtin_tools
    from holdfast.tools.builtin import restore_grants as restore_grants
    from holdfast.tools.builtin.search import make_codesearch_tool as make_codesearch_tool
    from holdfast.tools.builtin.search import make_searxng_tools as make_searxng_tools
    from holdfast.tools.builtin.search import make_websearch_tool as make_websearch_tool
    from holdfast.tools.bundles import LocalToolManager as LocalToolManager
    from holdfast.tools.bundles import read_manifest as read_manifest
    from holdfast.tools.bundles import register_bundles as register_bundles
    from holdfast.tools.calls import Call as Call
    from holdfast.tools.child_limits import ChildLimits as ChildLimits
    from holdfast.tools.child_limits import give_no_limit as give_no_limit
    from holdfast.tools.command_runner import UnconfinedRunner as UnconfinedRunner
    from holdfast.tools.context import ToolContext as ToolContext
    from holdfast.tools.definition import Tool as Tool
    from holdfast.tools.definition import ToolOptions as ToolOptions
    from holdfast.tools.definition import tool as tool
    from holdfast.tools.dependencies import DepsT as DepsT
    from holdfast.tools.dependencies import Injected as Injected
    from holdfast.tools.dependencies import Need as Need
    from holdfast.tools.dependencies import check_needs as check_needs
    from holdfast.tools.dependencies import fill as fill
    from holdfast.tools.dependencies import read_need as read_need
    from holdfast.tools.diffs import make_unified_diff as make_unified_diff
    from holdfast.tools.effects import Effect as Effect
    from holdfast.tools.effects import Intent as Intent
    from holdfast.tools.effects import Reconciliation as Reconciliation
    from holdfast.tools.egress import EgressClosed as EgressClosed
    from holdfast.tools.egress import EgressLimits as EgressLimits
    from holdfast.tools.egress import EgressOpened as EgressOpened
    from holdfast.tools.egress import EgressProxy as EgressProxy
    from holdfast.tools.egress import EgressRefusal as EgressRefusal
    from holdfast.tools.egress import EgressRefused as EgressRefused
    from holdfast.tools.egress import EgressRules as EgressRules
    from holdfast.tools.egress import HostGrant as HostGrant
    from holdfast.tools.egress import check_network_rights as check_network_rights
    from holdfast.tools.egress import read_grant as read_grant
    from holdfast.tools.events import FilesRestored as FilesRestored
    from holdfast.tools.events import NestedCallEnded as NestedCallEnded
    from holdfast.tools.events import PermissionRefused as PermissionRefused
    from holdfast.tools.events import ToolAnswered as ToolAnswered
    from holdfast.tools.events import ToolOutcomeDecided as ToolOutcomeDecided
    from holdfast.tools.events import ToolOutcomeUnknown as ToolOutcomeUnknown
    from holdfast.tools.events import ToolParked as ToolParked
    from holdfast.tools.events import ToolStarted as ToolStarted
    from holdfast.tools.export import describe as describe
    from holdfast.tools.file_walk import FileWalk as FileWalk
    from holdfast.tools.gate import GIVEN as GIVEN
    from holdfast.tools.gate import GIVEN_BY_HAND as GIVEN_BY_HAND
    from holdfast.tools.gate import Gate as Gate
    from holdfast.tools.gate import ToolPermissionFilter as ToolPermissionFilter
    from holdfast.tools.gate import choose_default_action as choose_default_action
    from holdfast.tools.git_commands import make_git_environment as make_git_environment
    from holdfast.tools.hooked import ToolHooks as ToolHooks
    from holdfast.tools.host_rates import HostRates as HostRates
    from holdfast.tools.labels import ContextLabels as ContextLabels
    from holdfast.tools.labels import Label as Label
    from holdfast.tools.labels import find_new_labels as find_new_labels
    from holdfast.tools.labels import find_result_labels as find_result_labels
    from holdfast.tools.labels import keep_labels as keep_labels
    from holdfast.tools.labels import list_missing_labels as list_missing_labels
    from holdfast.tools.labels import read_kept_labels as read_kept_labels
    from holdfast.tools.labels import sort_labels as sort_labels
    from holdfast.tools.ledger import NOTHING_KNOWN as NOTHING_KNOWN
    from holdfast.tools.ledger import CallRecord as CallRecord
    from holdfast.tools.ledger import fold_records as fold_records
    from holdfast.tools.ledger import read_records as read_records
    from holdfast.tools.lsp import LanguageServer as LanguageServer
    from holdfast.tools.lsp import LanguageServers as LanguageServers
    from holdfast.tools.lsp.program import ServerProgram as ServerProgram
    from holdfast.tools.lsp.program import find_server_program as find_server_program
    from holdfast.tools.manager import CallLimits as CallLimits
    from holdfast.tools.manager import ToolExecutionManager as ToolExecutionManager
    from holdfast.tools.manager import spend_freely as spend_freely
    from holdfast.tools.peer import LogLevel as LogLevel
    from holdfast.tools.peer import Peer as Peer
    from holdfast.tools.peer import PeerAbility as PeerAbility
    from holdfast.tools.peer import PeerRequest as PeerRequest
    from holdfast.tools.peer import ask_folders as ask_folders
    from holdfast.tools.peer import ask_form as ask_form
    from holdfast.tools.peer import ask_model as ask_model
    from holdfast.tools.peer import attach_peer as attach_peer
    from holdfast.tools.peer import find_peer as find_peer
    from holdfast.tools.recording import Recorder as Recorder
    from holdfast.tools.registry import ToolRegistry as ToolRegistry
    from holdfast.tools.result import NestedCallWaits as NestedCallWaits
    from holdfast.tools.result import Outcome as Outcome
    from holdfast.tools.result import Parked as Parked
    from holdfast.tools.result import ToolResult as ToolResult
    from holdfast.tools.safe_http import Lookup as Lookup
    from holdfast.tools.safe_http import SafeHttpClient as SafeHttpClient
    from holdfast.tools.safe_http import look_up_host as look_up_host
    from holdfast.tools.sandbox import PATH as PATH
    from holdfast.tools.sandbox import SYSTEM_PATHS as SYSTEM_PATHS
    from holdfast.tools.sandbox import PathRules as PathRules
    from holdfast.tools.sandbox import Profile as Profile
    from holdfast.tools.sandbox import SandboxLimits as SandboxLimits
    from holdfast.tools.sandbox import SandboxOptions as SandboxOptions
    from holdfast.tools.sandbox import SandboxReport as SandboxReport
    from holdfast.tools.sandbox import SandboxRunner as SandboxRunner
    from holdfast.tools.sandbox import SandboxStream as SandboxStream
    from holdfast.tools.sandbox import ServesEgress as ServesEgress
    from holdfast.tools.sandbox import Workspace as Workspace
    from holdfast.tools.sandbox import describe_sandbox as describe_sandbox
    from holdfast.tools.sandboxed_commands import SandboxedCommands as SandboxedCommands
    from holdfast.tools.schema import Signature as Signature
    from holdfast.tools.services import Attendant as Attendant
    from holdfast.tools.services import Cancellation as Cancellation
    from holdfast.tools.services import ClosedNetwork as ClosedNetwork
    from holdfast.tools.services import Command as Command
    from holdfast.tools.services import CommandResult as CommandResult
    from holdfast.tools.services import CommandRunner as CommandRunner
    from holdfast.tools.services import HttpClient as HttpClient
    from holdfast.tools.services import HttpRequest as HttpRequest
    from holdfast.tools.services import MemoryArtifacts as MemoryArtifacts
    from holdfast.tools.services import NestedCalls as NestedCalls
    from holdfast.tools.services import NoAttendant as NoAttendant
    from holdfast.tools.services import NoCommands as NoCommands
    from holdfast.tools.services import NoNestedCalls as NoNestedCalls
    from holdfast.tools.services import OpensReader as OpensReader
    from holdfast.tools.services import Option as Option
    from holdfast.tools.services import Program as Program
    from holdfast.tools.services import ProgressSink as ProgressSink
    from holdfast.tools.services import ProgressUpdate as ProgressUpdate
    from holdfast.tools.services import Question as Question
    from holdfast.tools.services import ToolArtifacts as ToolArtifacts
    from holdfast.tools.services import ignore_progress as ignore_progress
    from holdfast.tools.services import refuse_processes as refuse_processes
    from holdfast.tools.state_access import GateStateAccess as GateStateAccess
    from holdfast.tools.target import Target as Target
    from holdfast.tools.target import make_command_target as make_command_target
    from holdfast.tools.target import make_host_target as make_host_target
    from holdfast.tools.target import make_path_target as make_path_target
    from holdfast.tools.target import make_paths_target as make_paths_target
    from holdfast.tools.target import make_text_target as make_text_target
    from holdfast.tools.threads import ToolThreads as ToolThreads
    from holdfast.tools.threads import share_threads as share_threads
    from holdfast.tools.toolsets import TOOLSETS as TOOLSETS
    from holdfast.tools.toolsets import stands_for_builtin as stands_for_builtin
    from holdfast.tools.toolsets import toolset as toolset
    from holdfast.tools.tracker import ToolExecution as ToolExecution
    from holdfast.tools.tracker import ToolExecutionTracker as ToolExecutionTracker
    from holdfast.tools.tracker import export_execution_files as export_execution_files
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "approval_broker": "ApprovalAnswer ApprovalRequest Approver AutoConfirm NoApprover",
            "artifacts": "LABELS_KEY RunArtifacts load_kept_output redact_text",
            "builtin": "GRANTS_KEY SearchHit SearchProvider SearxngSearch builtin_tools restore_grants",
            "builtin.search": "make_codesearch_tool make_searxng_tools make_websearch_tool",
            "bundles": "LocalToolManager read_manifest register_bundles",
            "calls": "Call",
            "child_limits": "ChildLimits give_no_limit",
            "command_runner": "UnconfinedRunner",
            "context": "ToolContext",
            "definition": "Tool ToolOptions tool",
            "diffs": "make_unified_diff",
            "effects": "Effect Intent Reconciliation",
            "egress": """
                EgressClosed EgressLimits EgressOpened EgressProxy EgressRefusal EgressRefused
                EgressRules HostGrant check_network_rights read_grant
            """,
            "events": """
                PermissionRefused ToolAnswered ToolOutcomeDecided ToolOutcomeUnknown ToolParked
                FilesRestored NestedCallEnded
                ToolStarted
            """,
            "export": "describe",
            "file_walk": "FileWalk",
            "gate": "GIVEN GIVEN_BY_HAND Gate ToolPermissionFilter choose_default_action",
            "git_commands": "make_git_environment",
            "hooked": "ToolHooks",
            "labels": "find_new_labels find_result_labels keep_labels list_missing_labels "
            "ContextLabels Label read_kept_labels sort_labels",
            "ledger": "CallRecord NOTHING_KNOWN fold_records read_records",
            "lsp": "LanguageServer LanguageServers",
            "lsp.program": "ServerProgram find_server_program",
            "manager": "CallLimits ToolExecutionManager spend_freely",
            "recording": "Recorder",
            "registry": "ToolRegistry",
            "peer": """
                LogLevel Peer PeerAbility PeerRequest ask_folders ask_form ask_model find_peer
                attach_peer
            """,
            "result": "NestedCallWaits Outcome Parked ToolResult",
            "host_rates": "HostRates",
            "safe_http": "Lookup SafeHttpClient look_up_host",
            "sandbox": """
                PATH PathRules Profile SYSTEM_PATHS SandboxLimits SandboxOptions SandboxReport SandboxRunner SandboxStream
                ServesEgress Workspace describe_sandbox
            """,
            "sandboxed_commands": "SandboxedCommands",
            "schema": "Signature",
            "services": """Cancellation ClosedNetwork HttpRequest MemoryArtifacts NoCommands NoNestedCalls ignore_progress refuse_processes
                ToolArtifacts Attendant Command CommandResult CommandRunner HttpClient NestedCalls
                NoAttendant OpensReader Option Program ProgressSink ProgressUpdate Question
            """,
            "state_access": "GateStateAccess",
            "target": "Target make_command_target make_host_target make_path_target make_paths_target make_text_target",
            "threads": "ToolThreads share_threads",
            "toolsets": "TOOLSETS stands_for_builtin toolset",
            "base_tool": "BaseTool",
            "dependencies": "DepsT Injected Need check_needs fill read_need",
            "tracker": "ToolExecution ToolExecutionTracker export_execution_files",
        },
    )
