"""Plugins: what installed packages add by entry points.

Nothing of them is imported to be listed. They are loaded where `plugins.enabled` names their
package, when the runtime opens: code of a plugin runs in this process with all its rights, so a
package that merely happens to be installed must not take part.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from holdfast.agents import Agent
from holdfast.canonical import JsonObject
from holdfast.errors import NotFound, UsageError
from holdfast.providers import ProviderConfig
from holdfast.runtime.plugin_service import ALL
from holdfast.tools import Tool

KINDS: Final[Mapping[str, str]] = {
    "holdfast.tools": "adds tools; every call passes the gate, its function runs in this process",
    "holdfast.agents": "adds agents; they get what rules and policies allow them",
    "holdfast.providers": "adds models; is sent prompts, and reads the keys that it names",
    "holdfast.hooks": "is told what happens, and may change or refuse it, as far as hooks may",
    "holdfast.webhook_sinks": "is handed the messages of webhooks whose address has its scheme",
    "holdfast.stores": "keeps all records, where storage.url has its scheme",
    "holdfast.memory_stores": "keeps memories, where storage.url has its scheme",
    "holdfast.artifact_stores": "keeps files, where artifacts.url has its scheme",
    "holdfast.server_middleware": "sees and may answer every request of the server, with its key",
}
"""Groups of entry points, and what a plugin of each may do."""
_BY_ADDRESS: Final = frozenset(name for name in KINDS if name.endswith("_stores")) | {
    "holdfast.stores",
    "holdfast.server_middleware",
}
"""What is used by its address, or by the server, and needs no enabling."""


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an installed package offers."""

    name: str
    kind: str
    package: str
    version: str
    value: str
    """Where it is: `package.module:object`."""
    may: str
    is_enabled: bool
    adds: tuple[JsonObject, ...] = ()
    """What it adds, once it was loaded to be shown: tools with their effects, agents, models."""


def list_plugins(enabled: Iterable[str] = ()) -> list[Plugin]:
    """Return what is installed, by package, kind and name; nothing is imported."""
    found = [
        Plugin(
            name=point.name,
            kind=group.removeprefix("holdfast."),
            package=_find_package(point),
            version=point.dist.version if point.dist is not None else "",
            value=point.value,
            may=may,
            is_enabled=group in _BY_ADDRESS or _is_enabled(point, enabled),
        )
        for group, may in KINDS.items()
        for point in importlib.metadata.entry_points(group=group)
    ]
    return sorted(found, key=lambda one: (one.package, one.kind, one.name))


def inspect_plugin(name: str, enabled: Iterable[str] = ()) -> list[Plugin]:
    """Return what a package, or a plugin of this name, adds; this imports it.

    Raises:
        NotFound: nothing of this name is installed.
        UsageError: it cannot be imported.
    """
    wanted = normalize_name(name)
    found = [
        one for one in list_plugins(enabled) if wanted in (normalize_name(one.package), one.name)
    ]
    if not found:
        raise NotFound(kind="plugin", value=name)
    return [msgspec.structs.replace(one, adds=_describe(one)) for one in found]


def _describe(plugin: Plugin) -> tuple[JsonObject, ...]:
    point = importlib.metadata.EntryPoint(plugin.name, plugin.value, f"holdfast.{plugin.kind}")
    value = load_point(point)
    offered = value if isinstance(value, list | tuple) else [value]
    rows: list[JsonObject] = []
    for one in offered:
        if isinstance(one, Tool):
            rows.append({"tool": one.name, "effect": one.effect, "about": one.description})
        elif isinstance(one, Agent):
            rows.append({"agent": one.name, "about": one.description})
        elif isinstance(one, ProviderConfig):
            rows.append({"provider": one.name, "address": one.base_url, "key": one.key_env})
        else:
            rows.append({"object": getattr(one, "__qualname__", type(one).__qualname__)})
    return tuple(rows)


def load_point(point: importlib.metadata.EntryPoint) -> object:
    """Return what an entry point names; raises UsageError."""
    try:
        found: object = point.load()
    except Exception as error:
        # Others' code may raise anything when it is imported.
        detail = f"cannot be loaded: {type(error).__name__}: {error}"
        raise UsageError(detail=f"The entry point {point.value!r} {detail}") from error
    return found


def select_enabled(group: str, enabled: Iterable[str]) -> list[importlib.metadata.EntryPoint]:
    """Return the entry points of a group whose packages are enabled."""
    found = importlib.metadata.entry_points(group=group)
    wanted = [point for point in found if _is_enabled(point, enabled)]
    return sorted(wanted, key=lambda one: (one.name, one.value))


def _find_package(point: importlib.metadata.EntryPoint) -> str:
    return point.dist.name if point.dist is not None else ""


def _is_enabled(point: importlib.metadata.EntryPoint, enabled: Iterable[str]) -> bool:
    names = set(enabled)
    return ALL in names or normalize_name(_find_package(point)) in set(map(normalize_name, names))


def normalize_name(name: str) -> str:
    """Return the name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


__all__ = [
    "KINDS",
    "Plugin",
    "inspect_plugin",
    "list_plugins",
    "load_point",
    "normalize_name",
    "select_enabled",
]
