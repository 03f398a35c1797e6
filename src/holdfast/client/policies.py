"""Policies: the operator's ceiling over every run of this client."""

from __future__ import annotations

from holdfast.client.base import ClientBase
from holdfast.policy import PolicyBundle, PolicyStore, Reload
from holdfast.runs.confinement import Confinement
from holdfast.tools.safe_http import SafeHttpClient


class PolicyMethods(ClientBase):
    """How the client comes to its policies."""

    _policies: PolicyStore | None = None
    _confined: tuple[PolicyBundle, Confinement] | None = None
    _http: SafeHttpClient | None = None

    async def policies(self) -> PolicyStore:
        """Return the policies in force, read with the first call.

        Raises:
            PolicyInvalid: a policy file is wrong, or one of the candidate's in
                `policies.shadow_dir`; no run begins until it is corrected.
        """
        await self._ready()
        if self._policies is None:
            store = PolicyStore(
                self.settings.policies.dir,
                is_net_allowed=self.settings.network.allow_net,
                journal=self._journal,
                gaps=self._gaps,
            )
            await store.load()
            if self.settings.policies.shadow_dir is not None:
                await store.watch_candidate(self.settings.policies.shadow_dir)
            self._policies = store
        return self._policies

    async def reload_policies(self, *, asked_by: str = "") -> Reload:
        """Read the policy files again; wrong ones change nothing, and say so."""
        return await (await self.policies()).reload(asked_by=asked_by)

    async def close(self) -> None:
        """Journal what a candidate would have decided, then close the rest."""
        if self._policies is not None and self._is_open:
            await self._policies.settle()
        await super().close()

    async def _confinement(self) -> Confinement:
        """What confines every run; made again when the policies were."""
        store = self._policies or await self.policies()
        if self._confined is None or self._confined[0] is not store.bundle:
            # One for all: it knows how often each host was asked, also before a reload.
            self._http = self._http or SafeHttpClient(lambda: store.bundle.network_rules)
            confinement = Confinement(
                policies=store,
                http=self._http,
                hidden=self._hidden,
                read_only=self._read_only,
                gaps=self._gaps,
            )
            self._confined = (store.bundle, confinement)
        return self._confined[1]
