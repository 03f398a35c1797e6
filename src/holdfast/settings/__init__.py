"""Settings: the only reader of the environment and of configuration files.

`load_settings` reads all sources, checks everything at once and returns frozen
`Settings` together with where each value came from. Names are loaded when they are
first used, so that importing this room costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.settings.definition import Settings as Settings
    from holdfast.settings.load import LoadedSettings as LoadedSettings
    from holdfast.settings.load import load_settings as load_settings

_HOME = {
    "LoadedSettings": "holdfast.settings.load",
    "Settings": "holdfast.settings.definition",
    "load_settings": "holdfast.settings.load",
}

__all__ = ["LoadedSettings", "Settings", "load_settings"]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'holdfast.settings' has no attribute {name!r}")
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
