"""The public test kit: what Holdfast's own tests use, for the tests of its users.

Shipping code never imports this room. Names are loaded when they are first used: the pytest
plugin of the crash kit is part of every test run, and must cost nothing there.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.cassette import Cassette as Cassette
    from holdfast.testing.clock import FakeClock as FakeClock
    from holdfast.testing.models import Answer as Answer
    from holdfast.testing.models import FunctionModel as FunctionModel
    from holdfast.testing.models import ModelReply as ModelReply
    from holdfast.testing.models import ScriptedModel as ScriptedModel
    from holdfast.testing.models import tool_call as tool_call
    from holdfast.testing.surroundings import run_services as run_services
    from holdfast.testing.surroundings import tool_context as tool_context

_HOME = {
    "Answer": "holdfast.testing.models",
    "Cassette": "holdfast.testing.cassette",
    "FakeClock": "holdfast.testing.clock",
    "FunctionModel": "holdfast.testing.models",
    "ModelReply": "holdfast.testing.models",
    "ScriptedModel": "holdfast.testing.models",
    "run_services": "holdfast.testing.surroundings",
    "tool_call": "holdfast.testing.models",
    "tool_context": "holdfast.testing.surroundings",
}

__all__ = [
    "Answer",
    "Cassette",
    "FakeClock",
    "FunctionModel",
    "ModelReply",
    "ScriptedModel",
    "run_services",
    "tool_call",
    "tool_context",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
