"""What every section of the settings is."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


def name_variable(variable: str) -> dict[str, Any]:
    """Name the variable that a setting is read from."""
    return {"variable": variable}


class SettingsSection(BaseModel):
    """Frozen, and closed to names that it does not define."""

    # Built with the whole, once, by the process that loads settings first.
    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True
    )
