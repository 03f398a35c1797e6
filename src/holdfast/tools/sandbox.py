"""The sandbox as other rooms see it: only this room may look into that one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import holdfast.sandbox
from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.sandbox import PATH as PATH
    from holdfast.sandbox import SYSTEM_PATHS as SYSTEM_PATHS
    from holdfast.sandbox import PathRules as PathRules
    from holdfast.sandbox import Profile as Profile
    from holdfast.sandbox import SandboxLimits as SandboxLimits
    from holdfast.sandbox import SandboxOptions as SandboxOptions
    from holdfast.sandbox import SandboxReport as SandboxReport
    from holdfast.sandbox import SandboxRunner as SandboxRunner
    from holdfast.sandbox import SandboxStream as SandboxStream
    from holdfast.sandbox import ServesEgress as ServesEgress
    from holdfast.sandbox import Workspace as Workspace
    from holdfast.sandbox import describe_sandbox as describe_sandbox
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        holdfast.sandbox.__name__,
        {
            "launch": "ServesEgress",
            "path_rules": "PathRules",
            "profiles": "PATH Profile SYSTEM_PATHS SandboxLimits",
            "report": "SandboxReport describe_sandbox",
            "runner": "SandboxOptions SandboxRunner",
            "stream": "SandboxStream",
            "workspace": "Workspace",
        },
    )
