"""Holdfast: an agent runtime in which every step is kept and every action passes one gate.

Names are loaded when they are first used, so `import holdfast` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from holdfast._version import __version__

if TYPE_CHECKING:
    from holdfast.agents import AgentResult as AgentResult
    from holdfast.agents import RunContext as RunContext
    from holdfast.cli.approve import ask_in_terminal as ask_in_terminal
    from holdfast.client import AsyncClient as AsyncClient
    from holdfast.errors import HoldfastError as HoldfastError
    from holdfast.errors import RunFailed as RunFailed
    from holdfast.errors import RunInterrupted as RunInterrupted
    from holdfast.errors import TellModel as TellModel
    from holdfast.front import RunnableAgent as Agent
    from holdfast.messages import Audio as Audio
    from holdfast.messages import File as File
    from holdfast.messages import Image as Image
    from holdfast.messages import Message as Message
    from holdfast.sync import Client as Client
    from holdfast.tools import Injected as Injected
    from holdfast.tools import ToolContext as ToolContext
    from holdfast.tools import tool as tool
    from holdfast.tools import toolset as toolset

_HOME = {
    "Agent": "holdfast.front:RunnableAgent",
    "AgentResult": "holdfast.agents",
    "AsyncClient": "holdfast.client",
    "Audio": "holdfast.messages",
    "Client": "holdfast.sync",
    "File": "holdfast.messages",
    "HoldfastError": "holdfast.errors",
    "Image": "holdfast.messages",
    "Injected": "holdfast.tools",
    "Message": "holdfast.messages",
    "RunContext": "holdfast.agents",
    "RunFailed": "holdfast.errors",
    "RunInterrupted": "holdfast.errors",
    "TellModel": "holdfast.errors",
    "ToolContext": "holdfast.tools",
    "ask_in_terminal": "holdfast.cli.approve",
    "tool": "holdfast.tools",
    "toolset": "holdfast.tools",
}

__all__ = [
    "Agent",
    "AgentResult",
    "AsyncClient",
    "Audio",
    "Client",
    "File",
    "HoldfastError",
    "Image",
    "Injected",
    "Message",
    "RunContext",
    "RunFailed",
    "RunInterrupted",
    "TellModel",
    "ToolContext",
    "__version__",
    "ask_in_terminal",
    "tool",
    "toolset",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    module, _, called = home.partition(":")
    value: object = getattr(importlib.import_module(module), called or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
