"""What a turn works with."""

from __future__ import annotations

import msgspec

from holdfast.agents.confinement import Confinement
from holdfast.agents.spending import Budgets, Charge
from holdfast.agents.surroundings import Surroundings
from holdfast.clock import Clock
from holdfast.context import BuildsContext
from holdfast.policy.approvals import ApprovalTerms
from holdfast.providers.model import Model
from holdfast.sessions import SessionManager, TurnQueue
from holdfast.tools.gate import Approver


class Services(msgspec.Struct, frozen=True, kw_only=True):
    """All that is there before a turn, and stays after it."""

    sessions: SessionManager
    turns: TurnQueue
    model: Model
    context: BuildsContext
    approver: Approver
    terms: ApprovalTerms
    budgets: Budgets
    charge: Charge
    clock: Clock
    confinement: Confinement = msgspec.field(default_factory=Confinement)
    surroundings: Surroundings = msgspec.field(default_factory=Surroundings)
