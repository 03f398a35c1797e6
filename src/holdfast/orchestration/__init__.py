"""Several agents on one piece of work: delegation, workflows, and the autonomous loop.

Everything here starts runs through `RunExecutor` and keeps what it decides as facts in the
journal, so that a restart folds them and goes on. Nothing here calls a tool or a model itself.

This room has four doors: import from `holdfast.orchestration.workflows` and the like.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["delegation", "loop", "triggers", "workflows"]


def __getattr__(name: str) -> ModuleType:
    """Load one of the four when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
