"""Loads the plugins of the packages that `plugins.enabled` names, when the runtime opens.

Without any, nothing of it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from holdfast.providers import Model, ProviderConfig
    from holdfast.runtime.runtime import Runtime

ALL: Final = "*"
ModelFactory: TypeAlias = "Callable[[str], Model]"
"""Makes a model of a provider by the name behind its colon."""


class PluginService:
    """Loads the plugins of the packages that the settings enable."""

    def __init__(self, enabled: tuple[str, ...]) -> None:
        """Know the packages; nothing is loaded yet."""
        self.enabled = enabled
        self.models: dict[str, ModelFactory] = {}
        """Providers that make models themselves, by name."""
        self.providers: dict[str, ProviderConfig] = {}
        self.sinks: dict[str, Callable[..., Any]] = {}
        """What takes the messages of webhooks, by the scheme of their addresses."""

    def load(self, runtime: Runtime) -> None:
        """Load what is enabled, all of it or none that takes effect before the error is told.

        Raises:
            UsageError: a package is not installed or offers nothing, or a plugin cannot be
                loaded or is not what its group wants.
            AlreadyExists: a tool has the name of another one.
        """
        # What reads metadata of packages takes long to load.
        from holdfast.runtime.plugins import (  # noqa: PLC0415
            list_plugins,
            load_point,
            normalize_name,
            select_enabled,
        )

        offered = {normalize_name(one.package) for one in list_plugins()}
        missing = {one for one in self.enabled if normalize_name(one) not in offered} - {ALL}
        if missing:
            raise UsageError(
                detail=f"plugins.enabled names {min(missing)!r}, which is not installed here or "
                "offers nothing; `holdfast plugins list` shows what there is."
            )
        for point in select_enabled("holdfast.providers", self.enabled):
            self._add_provider(point, load_point(point))
        for point in select_enabled("holdfast.webhook_sinks", self.enabled):
            sink = load_point(point)
            if not callable(sink) or point.name in ("http", "https"):
                raise UsageError(detail=f"The webhook sink {point.value!r} cannot be used.")
            self.sinks[point.name] = sink
        packages = frozenset(map(normalize_name, self.enabled))
        chosen = None if ALL in self.enabled else packages
        runtime.toolbox.registry.load_entry_points(packages=chosen)
        runtime.agents.load_entry_points(packages=chosen)
        runtime.hooks.hooks.load_entry_points(packages=chosen)

    def _add_provider(self, point: EntryPoint, value: object) -> None:
        from holdfast.providers import ProviderConfig  # noqa: PLC0415 - only for plugins

        if callable(value):
            self.models[point.name] = value
            return
        offered = value if isinstance(value, list | tuple) else [value]
        for one in offered:
            if not isinstance(one, ProviderConfig):
                raise UsageError(
                    detail=f"The entry point {point.value!r} is neither a ProviderConfig nor a "
                    "function that makes models."
                )
            self.providers[one.name] = one


__all__ = ["ALL", "ModelFactory", "PluginService"]
