"""A bar that grows while something long runs; only on a terminal."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.cli.frame import Invocation


@contextmanager
def show_progress_bar(invocation: Invocation, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that takes (done, total) and draws it, if a person is watching."""
    if not (invocation.is_text and sys.stderr.isatty()):
        yield lambda done, total: None
        return
    rich = importlib.import_module("rich.progress")
    console = importlib.import_module("rich.console").Console(stderr=True)
    with rich.Progress(console=console, transient=True) as bar:
        task = bar.add_task(unit, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
