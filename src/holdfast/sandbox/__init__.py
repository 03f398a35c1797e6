"""Touch a file or run a process without leaving the place it was given.

`Workspace` is the way to files: no path, link or race leads out of it. `SandboxRunner` is the way
to processes: namespaces and seccomp by bubblewrap, else landlock, else none at all. Only the
tools room looks in here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.sandbox.jobs import PipelineLike as PipelineLike
    from holdfast.sandbox.launch import EgressListener as EgressListener
    from holdfast.sandbox.launch import ServesEgress as ServesEgress
    from holdfast.sandbox.options import LevelChoice as LevelChoice
    from holdfast.sandbox.options import SandboxOptions as SandboxOptions
    from holdfast.sandbox.path_rules import PathRules as PathRules
    from holdfast.sandbox.process import ProcessLimits as ProcessLimits
    from holdfast.sandbox.process import ProcessResult as ProcessResult
    from holdfast.sandbox.process import run_process as run_process
    from holdfast.sandbox.profiles import FILTERED as FILTERED
    from holdfast.sandbox.profiles import PATH as PATH
    from holdfast.sandbox.profiles import SYSTEM_PATHS as SYSTEM_PATHS
    from holdfast.sandbox.profiles import Level as Level
    from holdfast.sandbox.profiles import Profile as Profile
    from holdfast.sandbox.profiles import SandboxLimits as SandboxLimits
    from holdfast.sandbox.profiles import can_write_workspace as can_write_workspace
    from holdfast.sandbox.profiles import clean_environment as clean_environment
    from holdfast.sandbox.profiles import has_network as has_network
    from holdfast.sandbox.profiles import select_passed_variables as select_passed_variables
    from holdfast.sandbox.report import SandboxReport as SandboxReport
    from holdfast.sandbox.report import describe_sandbox as describe_sandbox
    from holdfast.sandbox.runner import SandboxResult as SandboxResult
    from holdfast.sandbox.runner import SandboxRunner as SandboxRunner
    from holdfast.sandbox.stream import SandboxStream as SandboxStream
    from holdfast.sandbox.workspace import Entry as Entry
    from holdfast.sandbox.workspace import FileChange as FileChange
    from holdfast.sandbox.workspace import FileInfo as FileInfo
    from holdfast.sandbox.workspace import Workspace as Workspace
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "jobs": "PipelineLike",
            "launch": "EgressListener ServesEgress",
            "options": "LevelChoice SandboxOptions",
            "path_rules": "PathRules",
            "process": "ProcessLimits ProcessResult run_process",
            "profiles": """
                Level PATH Profile SYSTEM_PATHS SandboxLimits can_write_workspace clean_environment
                FILTERED has_network select_passed_variables
            """,
            "report": "SandboxReport describe_sandbox",
            "runner": "SandboxResult SandboxRunner",
            "stream": "SandboxStream",
            "workspace": "Entry FileChange FileInfo Workspace",
        },
    )
