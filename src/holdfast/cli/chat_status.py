"""Where a chat stands, in one line; and a sign when it waits for the person."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Final

from holdfast.cli.output import make_printable
from holdfast.tools import describe_sandbox

LONG_S: Final = 10.0
"""A user who waited longer than this has looked away: the end of the turn is told."""


class SandboxName:
    """Which sandbox confines commands here, found out meanwhile: to try them takes a moment."""

    def __init__(self) -> None:
        """Begin to find out."""
        self.text = "…"
        threading.Thread(target=self._find, name="holdfast-sandbox", daemon=True).start()

    def _find(self) -> None:
        report = asyncio.run(describe_sandbox())
        self.text = report.active.partition("/")[0] or "none: no commands"


def format_status(
    *, agent: str, model: str, used: int, window: int, cost_usd: float, sandbox: str
) -> str:
    """Return the status line: who answers, how full the context is, cost, sandbox."""
    share = f"{100 * used // window}%" if window else "?"
    parts = [
        agent,
        model,
        f"context {share} of {format_count(window)}",
        f"${cost_usd:.4f}",
        f"sandbox {sandbox}",
    ]
    return make_printable(" · ".join(parts))


def format_count(number: int) -> str:
    """Return a number of tokens as people say it."""
    if number >= 1_000_000:
        return f"{number / 1_000_000:.3g}M"
    return f"{number / 1_000:.3g}k" if number >= 1_000 else str(number)


def notify(text: str) -> None:
    """Ring the bell, and let the terminal show a note if it can (OSC 9)."""
    sys.stderr.write(f"\x1b]9;Holdfast: {make_printable(text)[:100]}\x07\a")
    sys.stderr.flush()


__all__ = ["LONG_S", "SandboxName", "format_count", "format_status", "notify"]
