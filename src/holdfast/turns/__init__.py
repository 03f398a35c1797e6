"""Who may write to a session now: the turn queue, leases with fencing epochs, outcomes.

A session has one writer at a time. `TurnQueue` lets runs take their turns; `LeaseKeeper`
takes and renews the lease under which a turn writes; an `Outcome` is how a turn ends.
"""

from holdfast.sessions.writing import Lease
from holdfast.turns.leases import LeaseKeeper
from holdfast.turns.queue import TurnQueue
from holdfast.turns.turn import (
    Handler,
    Outcome,
    Turn,
    TurnCancelled,
    TurnCompleted,
    TurnFailed,
    TurnParked,
)

__all__ = [
    "Handler",
    "Lease",
    "LeaseKeeper",
    "Outcome",
    "Turn",
    "TurnCancelled",
    "TurnCompleted",
    "TurnFailed",
    "TurnParked",
    "TurnQueue",
]
