"""All operations by name; the modules of the namespaces are loaded when this is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, Final

from holdfast.operations.operation import LocalFunction, Operation, StreamOperation

NAMESPACES: Final = (
    "agents",
    "approvals",
    "artifacts",
    "audit",
    "events",
    "hooks",
    "keys",
    "loops",
    "mcp",
    "memory",
    "messages",
    "policies",
    "providers",
    "runs",
    "sessions",
    "skills",
    "state",
    "storage",
    "tenants",
    "tools",
    "triggers",
    "usage",
    "webhooks",
    "workers",
    "workflows",
)


def list_operations() -> dict[str, Operation[Any, Any] | StreamOperation[Any, Any]]:
    """Return every operation by its name, such as `sessions.create`."""
    return {
        found.name: found
        for found in _list_members()
        if isinstance(found, Operation | StreamOperation)
    }


def find_operation(name: str) -> Operation[Any, Any] | StreamOperation[Any, Any]:
    """Return one operation by its name; no other namespace is loaded.

    Raises:
        KeyError: there is none of this name.
    """
    module = importlib.import_module(f"holdfast.operations.{name.partition('.')[0]}")
    for found in vars(module).values():
        if isinstance(found, Operation | StreamOperation) and found.name == name:
            return found
    raise KeyError(name)


def list_local_functions() -> dict[str, LocalFunction[Any, Any]]:
    """Return what takes Python objects and cannot travel, with what to do instead."""
    return {found.name: found for found in _list_members() if isinstance(found, LocalFunction)}


def _list_members() -> Iterator[object]:
    for name in NAMESPACES:
        module = importlib.import_module(f"holdfast.operations.{name}")
        for found in vars(module).values():
            if getattr(found, "__module__", "") == module.__name__:
                yield found


__all__ = ["NAMESPACES", "find_operation", "list_local_functions", "list_operations"]
