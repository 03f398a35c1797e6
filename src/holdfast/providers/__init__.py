"""Talk to one model or embedder: wire codecs, registry, resilience, accounting.

Names are loaded when they are first used, so that importing this room costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.providers.config import ProviderConfig as ProviderConfig
    from holdfast.providers.model import Model as Model
    from holdfast.providers.model import ModelRequest as ModelRequest
    from holdfast.providers.offline import OfflineModel as OfflineModel
    from holdfast.providers.registry import ProviderRegistry as ProviderRegistry
    from holdfast.providers.resolve import Resolution as Resolution
    from holdfast.providers.resolve import create_model as create_model
    from holdfast.providers.resolve import registry_from as registry_from
    from holdfast.providers.resolve import resolve_model as resolve_model
    from holdfast.providers.tool_modes import ToolModeModel as ToolModeModel
    from holdfast.providers.tool_probe import probe_tool_mode as probe_tool_mode

_HOME = {
    "Model": "holdfast.providers.model",
    "ModelRequest": "holdfast.providers.model",
    "OfflineModel": "holdfast.providers.offline",
    "ProviderConfig": "holdfast.providers.config",
    "ProviderRegistry": "holdfast.providers.registry",
    "Resolution": "holdfast.providers.resolve",
    "ToolModeModel": "holdfast.providers.tool_modes",
    "create_model": "holdfast.providers.resolve",
    "probe_tool_mode": "holdfast.providers.tool_probe",
    "registry_from": "holdfast.providers.resolve",
    "resolve_model": "holdfast.providers.resolve",
}

__all__ = [
    "Model",
    "ModelRequest",
    "OfflineModel",
    "ProviderConfig",
    "ProviderRegistry",
    "Resolution",
    "ToolModeModel",
    "create_model",
    "probe_tool_mode",
    "registry_from",
    "resolve_model",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast.providers' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
