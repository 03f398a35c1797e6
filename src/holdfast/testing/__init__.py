"""The public test kit: what Holdfast's own tests use, for the tests of its users.

Shipping code never imports this room.
"""

from holdfast.testing.cassette import Cassette
from holdfast.testing.clock import FakeClock
from holdfast.testing.models import Answer, FunctionModel, Reply, ScriptedModel, tool_call

__all__ = [
    "Answer",
    "Cassette",
    "FakeClock",
    "FunctionModel",
    "Reply",
    "ScriptedModel",
    "tool_call",
]
