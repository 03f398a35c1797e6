"""`client.tools`."""

from __future__ import annotations

from holdfast.operations import Mode, Surface, tools


class ToolNamespace(Surface[Mode]):
    """Tools: list, register, call by hand, see what was called."""

    register = tools.register
    registry = tools.registry
    list = tools.list_
    describe = tools.describe_
    call = tools.call
    use_search = tools.use_search
    history = tools.history
    output = tools.output
