"""Define tools, keep them in registries, and offer the built-in ones.

A `Tool` is a frozen definition made by `@tool`; a `ToolRegistry` holds those that a
project or a session may use. What runs a tool gets everything it may touch from a
`ToolContext`.
"""

from holdfast.sandbox import (
    PathRules,
    Profile,
    SandboxLimits,
    SandboxOptions,
    SandboxReport,
    SandboxRunner,
    SandboxStream,
    Workspace,
    describe_sandbox,
)
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool, ToolOptions, tool
from holdfast.tools.effects import Effect, Intent, Reconciliation
from holdfast.tools.registry import ToolRegistry
from holdfast.tools.result import Outcome, Parked, ToolResult
from holdfast.tools.target import (
    Target,
    command_target,
    host_target,
    path_target,
    paths_target,
    text_target,
)

__all__ = [
    "Effect",
    "Intent",
    "SandboxLimits",
    "Outcome",
    "Parked",
    "PathRules",
    "Profile",
    "Reconciliation",
    "SandboxOptions",
    "SandboxReport",
    "SandboxRunner",
    "SandboxStream",
    "Target",
    "Tool",
    "ToolContext",
    "ToolOptions",
    "ToolRegistry",
    "ToolResult",
    "Workspace",
    "command_target",
    "describe_sandbox",
    "host_target",
    "path_target",
    "paths_target",
    "text_target",
    "tool",
]
