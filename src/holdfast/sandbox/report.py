"""Say which sandbox this machine has, by trying it."""

from __future__ import annotations

import tempfile

import msgspec

from holdfast.errors import SandboxFailed
from holdfast.sandbox.options import LevelChoice, SandboxOptions
from holdfast.sandbox.profiles import Profile
from holdfast.sandbox.runner import SandboxRunner
from holdfast.sandbox.workspace import Workspace


class SandboxReport(msgspec.Struct, frozen=True, kw_only=True):
    """What confines commands here: the active one, and what was found for each.

    `active` is empty if unattended commands are refused.
    """

    active: str
    bubblewrap: str
    landlock: str

    @property
    def is_confined(self) -> bool:
        """Whether commands can run unattended."""
        return bool(self.active)


async def describe_sandbox(
    root: str | None = None, *, profile: Profile = "workspace-write"
) -> SandboxReport:
    """Try both levels for real in a workspace (by default an empty one) and report."""
    with tempfile.TemporaryDirectory(prefix="holdfast-doctor-") as empty:
        workspace = Workspace(root or empty)
        levels: tuple[LevelChoice, ...] = ("bubblewrap", "landlock")
        found = {level: await _try(workspace, level, profile) for level in levels}
    active = next((name for name, _ in found.values() if name), "")
    told = {level: name or f"does not work: {because}" for level, (name, because) in found.items()}
    return SandboxReport(active=active, bubblewrap=told["bubblewrap"], landlock=told["landlock"])


async def _try(workspace: Workspace, level: LevelChoice, profile: Profile) -> tuple[str, str]:
    runner = SandboxRunner(workspace, SandboxOptions(level=level, profile=profile))
    try:
        return await runner.start(), ""
    except SandboxFailed:
        return "", runner.objections.get(level, "")
    finally:
        await runner.aclose()


__all__ = ["SandboxReport", "describe_sandbox"]
