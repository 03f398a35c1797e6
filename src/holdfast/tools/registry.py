"""The tools that a run may use: layered, versioned, never global."""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from holdfast.canonical import JsonObject
from holdfast.errors import AlreadyExists, NotFound, UsageError
from holdfast.hooks import select_points
from holdfast.messages import ToolSpec
from holdfast.tools.definition import Tool
from holdfast.tools.dependencies import Need
from holdfast.tools.export import to_json_schema, to_openapi

ENTRY_POINT_GROUP = "holdfast.tools"
_LONGEST_NAME = 64
_MOST_LAYERS = 64
Makers: TypeAlias = Mapping[str, Callable[[], Tool]]
"""Tools by name that are made when they are first looked for."""


class ToolRegistry:
    """Tools by name and version, on top of those of a parent.

    Layers are made with `child`: built-in below project below session. A name that is
    taken, here or below, is refused, so that nothing can pose as another tool; the caller that
    means to put another tool in its place says so with `replace=True`. Names that
    differ only by underscores, hyphens or capitals are the same name, because they are
    the same permission.
    """

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        *,
        parent: ToolRegistry | None = None,
        scope: str = "session",
        makers: Makers | None = None,
    ) -> None:
        """Start with some tools; `scope` is a word for rules, messages and listings.

        `makers` make further tools, each when it is first looked for.
        """
        self.scope = scope
        self._makers = {_make_key(name): (name, make) for name, make in (makers or {}).items()}
        self._parent = parent
        self._own: dict[str, dict[str, Tool]] = {}
        self._newest: dict[str, Tool] = {}
        self._changes = 0
        self._cached_at: tuple[int, ...] = ()
        self._tools: Mapping[str, Tool] = MappingProxyType({})
        self._specs: tuple[ToolSpec, ...] = ()
        self._layers: dict[tuple[str | int, ...], ToolRegistry] = {}
        self._layers_at: tuple[int, ...] = ()
        self.needs: tuple[Need, ...] = ()
        """What these tools ask for by type, where this is the choice for a run."""
        for tool in tools:
            self.register(tool)

    # --- changing -------------------------------------------------------------------

    def register(self, tool: Tool, *, replace: bool = False) -> Tool:
        """Add a tool and return it; another version of a tool of this layer is welcome.

        With `replace`, it is the only one of its name from then on: neither other versions
        in this layer nor those below are found any more.

        Raises:
            AlreadyExists: the name (with this version) is taken here or in a layer below.
        """
        if not isinstance(tool, Tool):
            raise UsageError(detail=f"{tool!r} is not a Tool; decorate the function with @tool.")
        key = _make_key(tool.name)
        if self._makers:
            self._make(key)
        versions = {} if replace else self._own.get(key, {})
        if not replace:
            below = self._parent.find(tool.name) if self._parent is not None else None
            if below is not None or tool.version in versions:
                raise AlreadyExists(kind="tool", value=f"{tool.name}@{tool.version}")
            if any(other.name != tool.name for other in versions.values()):
                raise AlreadyExists(kind="tool", value=next(iter(versions.values())).name)
        self._set(key, {**versions, tool.version: tool})
        return tool

    def unregister(self, name: str) -> None:
        """Remove a tool of this layer, or one version of it (`name@version`).

        Raises:
            NotFound: this layer has no such tool.
        """
        plain, _, version = name.partition("@")
        self._make(_make_key(plain))
        versions = self._own.get(_make_key(plain), {})
        if not versions or (version and version not in versions):
            raise NotFound(kind="tool", value=name)
        kept = {key: tool for key, tool in versions.items() if version and key != version}
        self._set(_make_key(plain), kept)

    def load_entry_points(
        self, group: str = ENTRY_POINT_GROUP, *, packages: Collection[str] | None = None
    ) -> tuple[Tool, ...]:
        """Import and register the tools that installed packages offer; only when asked.

        An entry point names a Tool, or an iterable of tools. With `packages`, only theirs.

        Raises:
            UsageError: an entry point holds something else, or cannot be loaded.
            AlreadyExists: a name is taken; the tools before it stay registered.
        """
        loaded: list[Tool] = []
        points = select_points(importlib.metadata.entry_points(group=group), packages)
        for point in sorted(points, key=lambda one: (one.name, one.value)):
            try:
                value: object = point.load()
            except Exception as error:
                # Others' code may raise anything when it is imported.
                detail = f"cannot be loaded: {type(error).__name__}: {error}"
                raise UsageError(detail=f"The entry point {point.value!r} {detail}") from error
            found = [value] if isinstance(value, Tool) else value
            if not isinstance(found, Iterable):
                raise UsageError(detail=f"The entry point {point.value!r} is no tool.")
            for one in found:
                if not isinstance(one, Tool):
                    raise UsageError(detail=f"The entry point {point.value!r} is no tool.")
                loaded.append(self.register(one))
        return tuple(loaded)

    def child(
        self, tools: Iterable[Tool] = (), *, scope: str = "session", makers: Makers | None = None
    ) -> ToolRegistry:
        """Return a layer on top of this one; adding there changes nothing here."""
        return ToolRegistry(tools, parent=self, scope=scope, makers=makers)

    def select(self, names: Iterable[str]) -> ToolRegistry:
        """Return a registry with these tools alone, each in a layer of the scope that it has here.

        Names that are not known are left out.
        """
        wanted = set(map(_make_key, names))
        layers = [self]
        while (below := layers[-1]._parent) is not None:
            layers.append(below)
        chosen: ToolRegistry | None = None
        for layer in reversed(layers):
            own = [key for key in wanted if layer._make(key)]
            if own or layer is self:
                chosen = ToolRegistry(parent=chosen, scope=layer.scope)
            for key in own:
                assert chosen is not None
                chosen._set(key, layer._own[key])
        assert chosen is not None
        return chosen

    def names(self) -> frozenset[str]:
        """The names of all tools; none of them is made for that."""
        own = {tool.name for tool in self._newest.values()}
        own.update(name for name, _make in self._makers.values())
        return frozenset(own) | (self._parent.names() if self._parent is not None else frozenset())

    def layer(self, tools: tuple[Tool, ...], *, scope: str) -> ToolRegistry:
        """Return what `child` returns, the same one while nothing changes; no caller adds to it.

        Raises:
            AlreadyExists: a name is taken here or in a layer below.
        """
        state = self.state
        if state != self._layers_at or len(self._layers) >= _MOST_LAYERS:
            self._layers, self._layers_at = {}, state
        key: tuple[str | int, ...] = (scope, *map(id, tools))
        known = self._layers.get(key)
        if known is None:
            # It holds the tools, so their identities stay their own.
            known = self._layers[key] = self.child(tools, scope=scope)
        return known

    # --- looking --------------------------------------------------------------------

    def get(self, name: str) -> Tool:
        """Return a tool by `name` (its latest version) or `name@version`.

        Raises:
            NotFound: no layer has it.
        """
        tool = self.find(name)
        if tool is None:
            raise NotFound(kind="tool", value=name)
        return tool

    def find(self, name: str) -> Tool | None:
        """Return a tool as `get` does, or None."""
        plain, _, version = name.partition("@")
        if len(plain) > _LONGEST_NAME:
            return None
        key = _make_key(plain)
        layer: ToolRegistry | None = self
        while layer is not None:
            found = layer._newest.get(key)
            if found is None and layer._makers and layer._make(key):
                found = layer._newest[key]
            if found is not None:
                # What a layer above has replaced is out of reach, by version too.
                return layer._own[key].get(version) if version else found
            layer = layer._parent
        return None

    def versions(self, name: str) -> tuple[str, ...]:
        """All versions of a tool in the topmost layer that has it, oldest first."""
        self._make(_make_key(name))
        versions = self._own.get(_make_key(name))
        if versions:
            return tuple(sorted(versions, key=_sort_version))
        return self._parent.versions(name) if self._parent is not None else ()

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The latest version of every tool, layers merged, sorted by name; read-only."""
        state = self.state
        if state != self._cached_at:
            self._refresh(state)
        return self._tools

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a model sees them, in a stable order; built once per change."""
        state = self.state
        if state != self._cached_at:
            self._refresh(state)
        return self._specs

    def find_scope(self, name: str) -> str:
        """The word of the layer in which a tool is found; empty if nowhere."""
        key = _make_key(name.partition("@")[0])
        layer: ToolRegistry | None = self
        while layer is not None:
            if key in layer._own or key in layer._makers:
                return layer.scope
            layer = layer._parent
        return ""

    def json_schema(self) -> JsonObject:
        """One JSON document with the schemas of all tools."""
        return to_json_schema(self.tools.values())

    def openapi(self, *, title: str = "Holdfast tools", version: str = "1.0.0") -> JsonObject:
        """An OpenAPI 3.1 document with one operation per tool."""
        return to_openapi(self.tools.values(), title=title, version=version)

    def __contains__(self, name: object) -> bool:
        """Say whether a name is known."""
        return isinstance(name, str) and self.find(name) is not None

    def __iter__(self) -> Iterator[Tool]:
        """Iterate over the latest version of every tool, by name."""
        return iter(self.tools.values())

    def __len__(self) -> int:
        """How many names there are."""
        return len(self.tools)

    def _make(self, key: str) -> bool:
        """Make the tool of a name if that is still to be done; says whether this layer has it."""
        _name, make = self._makers.pop(key, ("", None))
        if make is not None:
            made = make()
            # What is found here stays the same, so that nothing has changed.
            self._own[key], self._newest[key] = {made.version: made}, made
        return key in self._own

    def _set(self, key: str, versions: dict[str, Tool]) -> None:
        """Keep the versions of one name; none means that the name is gone."""
        self._own[key] = versions
        if versions:
            self._newest[key] = versions[max(versions, key=_sort_version)]
        else:
            del self._own[key], self._newest[key]
        self._changes += 1

    @property
    def state(self) -> tuple[int, ...]:
        """How often this layer and those below have changed: another value after each change."""
        changes = [self._changes]
        layer = self._parent
        while layer is not None:
            changes.append(layer._changes)
            layer = layer._parent
        return tuple(changes)

    def _refresh(self, state: tuple[int, ...]) -> None:
        for key in tuple(self._makers):
            self._make(key)
        below = self._parent.tools if self._parent is not None else {}
        merged = {_make_key(name): tool for name, tool in below.items()}
        merged.update(self._newest)
        ordered = sorted(merged.values(), key=lambda tool: tool.name)
        self._tools = MappingProxyType({tool.name: tool for tool in ordered})
        self._specs = tuple(tool.spec for tool in ordered)
        self._cached_at = state


@functools.lru_cache(maxsize=4_096)
def _make_key(name: str) -> str:
    return re.sub(r"[_-]", "", name).lower()


def _sort_version(version: str) -> tuple[tuple[int, ...], bool, str]:
    """Numbers by value; a version with a suffix (`1.0.0-beta`) comes before the plain one."""
    numbers, _, suffix = version.partition("-")
    parts = tuple(int(part) for part in numbers.split("."))
    return parts + (0,) * (4 - len(parts)), not suffix, suffix
