"""Loggers of Holdfast's own rooms: structlog's, loaded with the first line.

Most processes never write one, and structlog costs more to load than a room.
"""

from __future__ import annotations


class Logger:
    """Writes lines under a name, where and how the application has set its log up."""

    def __init__(self, name: str) -> None:
        """Take a name; nothing is loaded yet."""
        self._name = name

    def warning(self, event: str, **fields: object) -> None:
        """Write that something went wrong and was got over."""
        import structlog  # noqa: PLC0415 - 0.1 s, for a line that most processes never write

        structlog.get_logger(self._name).warning(event, **fields)


__all__ = ["Logger"]
