"""How an agent works: the turn, its tools, its spending, its children, its streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.runs.instrumentation import Instrumentation as Instrumentation
    from holdfast.runs.runtime import AgentRuntime as AgentRuntime
    from holdfast.runs.services import CallScope as CallScope
    from holdfast.runs.services import OpensCalls as OpensCalls
    from holdfast.runs.services import RunCalls as RunCalls
    from holdfast.runs.services import RunServices as RunServices
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "instrumentation": "Instrumentation",
            "runtime": "AgentRuntime",
            "services": "CallScope OpensCalls RunCalls RunServices",
        },
    )
