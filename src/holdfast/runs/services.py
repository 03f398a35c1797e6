"""What a turn works with."""

from __future__ import annotations

import msgspec

from holdfast.clock import Clock
from holdfast.context import BuildsContext
from holdfast.policy.approvals import ApprovalTerms
from holdfast.providers.model import Model
from holdfast.runs.confinement import Confinement
from holdfast.runs.instrumentation import Instrumentation
from holdfast.runs.spending import Budgets, Charge
from holdfast.sessions import SessionManager
from holdfast.tools.gate import Approver
from holdfast.turns import TurnQueue


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
    surroundings: Instrumentation = msgspec.field(default_factory=Instrumentation)
