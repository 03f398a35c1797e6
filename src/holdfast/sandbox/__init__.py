"""Touch a file or run a process without leaving the place it was given.

`Workspace` is the way to files, `SandboxRunner` the way to processes. Only the tools room
looks in here.
"""

from holdfast.sandbox.path_rules import PathRules
from holdfast.sandbox.profiles import (
    Level,
    Profile,
    SandboxLimits,
    clean_environment,
    passed_variables,
)
from holdfast.sandbox.report import SandboxReport, describe_sandbox
from holdfast.sandbox.runner import SandboxOptions, SandboxResult, SandboxRunner
from holdfast.sandbox.stream import SandboxStream
from holdfast.sandbox.workspace import Entry, FileChange, FileInfo, Workspace

__all__ = [
    "Entry",
    "FileChange",
    "FileInfo",
    "Level",
    "SandboxLimits",
    "PathRules",
    "Profile",
    "SandboxOptions",
    "SandboxReport",
    "SandboxResult",
    "SandboxRunner",
    "SandboxStream",
    "Workspace",
    "clean_environment",
    "describe_sandbox",
    "passed_variables",
]
