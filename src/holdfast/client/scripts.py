"""Hooks that are programs: found in files, trusted, executed in the sandbox."""

from __future__ import annotations

import asyncio

from holdfast.client.hooks import HookMethods
from holdfast.client.policies import PolicyMethods
from holdfast.hooks import Hook, Hooks
from holdfast.runs.hook_files import ConfinedScripts, HookFile, HookFiles, register_files
from holdfast.sessions import SessionManager
from holdfast.skills import TrustStore


class ScriptMethods(HookMethods, PolicyMethods):
    """What the client can do with hooks that are programs."""

    _hook_files: HookFiles | None = None
    _scripts: ConfinedScripts | None = None
    _file_hooks: tuple[Hook, ...] | None = None

    @property
    def hooks(self) -> Hooks:
        """The hooks of this client; register before or while it is open."""
        hooks = super().hooks
        if self._scripts is None:
            self._scripts = ConfinedScripts(
                self._confinement, self.settings.workspace, self._files_of_hooks()
            )
            hooks.scripts = self._scripts
        return hooks

    async def list_hooks(self) -> list[HookFile]:
        """Return the hooks of files, trusted or not, with what is wrong with them."""
        return await asyncio.to_thread(self._files_of_hooks().find)

    async def trust_hooks(self, *, revoke: bool = False) -> list[HookFile]:
        """Vouch for the project's hooks as they are now, or take that back.

        They take part in runs that begin from now on.

        Raises:
            NotFound: the project has none.
        """
        found = await asyncio.to_thread(self._files_of_hooks().trust, revoke=revoke)
        for hook in self._file_hooks or ():
            self.hooks.off(hook)
        self._file_hooks = None
        await self._ready()
        return found

    async def close(self) -> None:
        """Close, then end the sandbox of hooks."""
        await super().close()
        if self._scripts is not None:
            await self._scripts.aclose()

    async def _ready(self) -> SessionManager:
        if self._file_hooks is None:
            self._file_hooks = ()
            if self._files_of_hooks().has_any():
                self._file_hooks = register_files(self.hooks, await self.list_hooks())
        return await super()._ready()

    def _files_of_hooks(self) -> HookFiles:
        if self._hook_files is None:
            self._hook_files = HookFiles(
                self.settings.workspace,
                user_folder=self.settings.user_dir / "hooks",
                trust=TrustStore(self.base_dir),
            )
        return self._hook_files
