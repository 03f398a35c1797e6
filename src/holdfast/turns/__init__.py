"""Who may write to a session now: the turn queue, leases with fencing epochs, outcomes.

A session has one writer at a time. `TurnQueue` lets runs take their turns; `LeaseKeeper`
takes and renews the lease under which a turn writes, and whose epoch is its fencing token; an
`Outcome` is how a turn ends.
"""

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.sessions import Lease as Lease
    from holdfast.turns.execution import IdleSession as IdleSession
    from holdfast.turns.execution import TurnExecutor as TurnExecutor
    from holdfast.turns.leases import LeaseKeeper as LeaseKeeper
    from holdfast.turns.outcomes import finish as finish
    from holdfast.turns.outcomes import is_exhaustion as is_exhaustion
    from holdfast.turns.outcomes import is_machine_fault as is_machine_fault
    from holdfast.turns.queue import TurnQueue as TurnQueue
    from holdfast.turns.turn import ENCLOSING as ENCLOSING
    from holdfast.turns.turn import CancelRequest as CancelRequest
    from holdfast.turns.turn import Handler as Handler
    from holdfast.turns.turn import Outcome as Outcome
    from holdfast.turns.turn import Turn as Turn
    from holdfast.turns.turn import TurnCancelled as TurnCancelled
    from holdfast.turns.turn import TurnCompleted as TurnCompleted
    from holdfast.turns.turn import TurnFailed as TurnFailed
    from holdfast.turns.turn import TurnParked as TurnParked
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "execution": "IdleSession TurnExecutor",
            "leases": "Lease LeaseKeeper",
            "outcomes": "finish is_exhaustion is_machine_fault",
            "queue": "TurnQueue",
            "turn": "ENCLOSING CancelRequest Handler Outcome Turn TurnCancelled TurnCompleted TurnFailed "
            "TurnParked",
        },
    )
