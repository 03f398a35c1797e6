"""The proxies of sandboxed programs: on whose account, by which rules, where it is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from holdfast.clock import Clock
from holdfast.journal import SYSTEM_SESSION, Journal, Origin, Payload
from holdfast.policy import Rights, join_port
from holdfast.runs import Confinement
from holdfast.tools import HostRates, Lookup, look_up_host

if TYPE_CHECKING:
    from holdfast.tools import EgressProxy, HostGrant


class EgressService:
    """Opens the proxy of a run, or of an MCP server; the operator's rules hold for each.

    Every proxy asks the policies anew for each request. The rates of `network.yaml` are shared
    by all of them. What is asked of the network stands in the journal's system chain, as
    `egress.opened`, `egress.closed` and `egress.refused`.
    """

    def __init__(
        self,
        journal: Journal,
        confinement: Confinement,
        clock: Clock,
        lookup: Lookup = look_up_host,
        rates: HostRates | None = None,
    ) -> None:
        """Keep facts in this journal, and hold programs to the operator's rules."""
        self._journal = journal
        self._confinement = confinement
        self._clock = clock
        self._lookup = lookup
        self._rates = rates or HostRates(clock)

    def open_for_run(self, run_id: str, agent_path: tuple[str, ...], rights: Rights) -> EgressProxy:
        """Return the proxy of a run's commands: what the policies and the agent's rules allow."""
        from holdfast.tools import check_network_rights  # noqa: PLC0415 - few runs are filtered

        path = "/".join(agent_path)

        def judge(name: str, port: int) -> None:
            ceiling = self._confinement.policies.bundle.find_ceiling(path)
            check_network_rights(join_port(name, port), ceiling, rights)

        return self._open(
            f"run:{run_id}", None, judge, origin=Origin(run_id=run_id, agent_path=path)
        )

    def open_for_server(self, name: str, grants: Callable[[], Iterable[HostGrant]]) -> EgressProxy:
        """Return the proxy of an MCP server's program: what was granted to it, and is allowed."""
        return self._open(f"mcp:{name}", grants, lambda _name, _port: None, origin=Origin())

    def _open(
        self,
        principal: str,
        grants: Callable[[], Iterable[HostGrant]] | None,
        judge: Callable[[str, int], None],
        *,
        origin: Origin,
    ) -> EgressProxy:
        from holdfast.tools import EgressProxy, EgressRules  # noqa: PLC0415 - as above

        async def note(fact: Payload) -> None:
            await self._journal.append(SYSTEM_SESSION, [fact], origin=origin)

        policies = self._confinement.policies
        rules = EgressRules(
            network=lambda: policies.bundle.network_rules, grants=grants, judge=judge
        )
        return EgressProxy(
            rules,
            principal=principal,
            note=note,
            rates=self._rates,
            lookup=self._lookup,
            clock=self._clock,
        )


__all__ = ["EgressService"]
