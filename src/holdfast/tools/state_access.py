"""State under the rules of a gate: what an agent's calls may read and write."""

from __future__ import annotations

import msgspec

from holdfast.policy import check_state, decide_state
from holdfast.state import StateAction
from holdfast.tools.gate import Gate


class GateStateAccess(msgspec.Struct, frozen=True, eq=False):
    """Judges addresses by the rules that a gate holds at the moment, as it does calls."""

    gate: Gate

    def check(self, action: StateAction, target: str, *, is_own: bool) -> None:
        """Return if an address may be read or written; raises PermissionDenied."""
        gate = self.gate
        check_state(action, target, is_own=is_own, ceiling=gate.present_ceiling, rights=gate.rights)

    def may(self, action: StateAction, target: str, *, is_own: bool) -> bool:
        """Say whether an address may be read or written."""
        gate = self.gate
        decision = decide_state(
            action, target, is_own=is_own, ceiling=gate.present_ceiling, rights=gate.rights
        )
        return decision.action == "allow"


__all__ = ["GateStateAccess"]
