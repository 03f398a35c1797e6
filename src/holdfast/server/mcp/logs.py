"""Lines for the log of an MCP client: from the level on that it wants."""

from __future__ import annotations

from typing import Any, Final, get_args
from weakref import WeakKeyDictionary

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdfast.server.mcp.requests import Context
from holdfast.tools import LogLevel

_LEVELS: Final[tuple[str, ...]] = get_args(LogLevel)


class LogLevels:
    """Who wants which lines: a connection says it once (2025-11-25), a request each time."""

    def __init__(self) -> None:
        """Nothing was said yet: then all lines are sent to connections, none to requests."""
        self._said: WeakKeyDictionary[Any, str] = WeakKeyDictionary()

    async def set(self, context: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
        """Note the level of a connection."""
        self._said[context.session._connection] = params.level
        return types.EmptyResult()

    async def send(self, context: Context, level: LogLevel, data: Any) -> None:  # noqa: ANN401 - any JSON
        """Send a line on the stream of a request."""
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            wanted = (context.meta or {}).get(types.LOG_LEVEL_META_KEY)
            if wanted not in _LEVELS:
                return
        else:
            wanted = self._said.get(context.session._connection, _LEVELS[0])
        if _LEVELS.index(level) < _LEVELS.index(str(wanted)):
            return
        params = types.LoggingMessageNotificationParams(level=level, data=data, logger="holdfast")
        line = types.LoggingMessageNotification(params=params)
        await context.session.send_notification(line, related_request_id=context.request_id)


__all__ = ["LogLevels"]
