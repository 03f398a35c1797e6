"""How talking to a server can fail, inside this room."""

from __future__ import annotations


class Lost(Exception):
    """The connection is gone; `str()` says why."""


class NoAnswer(Exception):
    """The server did not answer in time; the connection may still be good."""


class Refusal(Exception):
    """The server answered with an error; `str()` is its message."""


__all__ = ["Lost", "NoAnswer", "Refusal"]
