"""What was accepted of each server: the digests of its tools, kept in the state directory.

A server that showed harmless tools when it was set up may show others later. What it offers
the first time is written down; whatever differs from that is held back until a person says
that it is meant to be so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from holdfast.mcp.definitions import RemoteTool
from holdfast.private_files import PrivateJsonFile

FILE = "mcp_pins.json"

Verdict: TypeAlias = Literal["accepted", "new", "changed"]
_Pins: TypeAlias = dict[str, dict[str, str]]


class PinBook:
    """The accepted tools of all servers of one state directory; every call blocks a moment."""

    def __init__(self, state_dir: str | os.PathLike[str]) -> None:
        """Keep them in this directory; nothing is created before the first one."""
        self._pins = PrivateJsonFile(Path(state_dir) / FILE, _Pins, empty=dict)

    def judge(self, endpoint: str, tools: Sequence[RemoteTool]) -> dict[str, Verdict]:
        """Say of each tool, by the server's name for it, whether it is what was accepted.

        The first offer of a server is accepted as it is.

        Raises:
            StorageError: the file cannot be read or written; nothing is accepted.
            StorageDamaged: it holds something else; nothing is accepted.
        """
        known = self._pins.read().get(endpoint)
        if known is None:
            self.accept(endpoint, tools, is_whole=True)
            return {tool.remote: "accepted" for tool in tools}
        return {tool.remote: _make_verdict(known.get(tool.remote), tool) for tool in tools}

    def accept(self, endpoint: str, tools: Iterable[RemoteTool], *, is_whole: bool = False) -> None:
        """Write tools down as they are now; `is_whole` forgets those that are not among them.

        Raises:
            StorageError: it could not be written; nothing is accepted.
        """
        digests = {tool.remote: tool.digest for tool in tools}

        def change(pins: _Pins) -> None:
            pins[endpoint] = digests if is_whole else {**pins.get(endpoint, {}), **digests}

        self._pins.change(change)

    def forget(self, endpoint: str) -> None:
        """Forget a server; what it offers next is accepted as the first offer."""

        def change(pins: _Pins) -> None:
            pins.pop(endpoint, None)

        if endpoint in self._pins.read():
            self._pins.change(change)


def _make_verdict(known: str | None, tool: RemoteTool) -> Verdict:
    if known is None:
        return "new"
    return "accepted" if known == tool.digest else "changed"


__all__ = ["FILE", "PinBook", "Verdict"]
