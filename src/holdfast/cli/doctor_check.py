"""What a check of `holdfast doctor` says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.clock import SYSTEM, Clock
from holdfast.settings import LoadedSettings

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, kw_only=True)
class DoctorCheck:
    """The result of one check.

    `found` says what is there, `means` what follows from it, `fix` how to get more;
    the last two may be empty when all is well. Only what Holdfast cannot do without
    has the status `fail`.
    """

    name: str
    status: Status
    found: str
    means: str = ""
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class Patient:
    """What is examined: this machine, seen with these settings."""

    loaded: LoadedSettings
    clock: Clock = SYSTEM

    @property
    def state_dir(self) -> Path:
        """Where the records are kept."""
        return self.loaded.settings.storage.state_dir

    def find_state_place(self) -> Path:
        """The state directory, or the nearest directory above it that exists."""
        place = self.state_dir
        while not place.is_dir() and place != place.parent:
            place = place.parent
        return place
