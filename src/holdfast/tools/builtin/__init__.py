"""The built-in tools.

Tools tagged `optional` are offered only to agents whose rules name them.
"""

from __future__ import annotations

from holdfast.tools.builtin.calculator import calculator
from holdfast.tools.builtin.edit import edit
from holdfast.tools.builtin.glob import glob
from holdfast.tools.builtin.grep import grep
from holdfast.tools.builtin.list import list_directory
from holdfast.tools.builtin.multiedit import multiedit
from holdfast.tools.builtin.read import read
from holdfast.tools.builtin.write import write
from holdfast.tools.registry import ToolRegistry


def builtin_tools() -> ToolRegistry:
    """Return a fresh registry with every built-in tool."""
    return ToolRegistry(
        (calculator, edit, glob, grep, list_directory, multiedit, read, write), scope="built-in"
    )
