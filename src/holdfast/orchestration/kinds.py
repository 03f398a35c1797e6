"""How runs that are no agent's are named in the queue."""

from __future__ import annotations

from typing import Final

LOOP_AGENT: Final = "loop"
"""The name under which a loop's run stands in the queue; no agent answers to it."""
AGENT_PREFIX: Final = "workflow:"
"""Marks a run as one of a workflow, in the field that names its agent."""
