"""State: what agents keep between runs, by scope and key, with versions.

Values are facts of the journal (`state.changed`): in the chain of the session, or in one of its
own for every user, project, agent and so on. The table of present values follows from them in
the same transaction and refuses a change that is not the next version of its key, which is
compare-and-set for any number of processes. Rights and taint labels are handed in from above.
"""

from typing import TYPE_CHECKING

# What is stored can be read whatever else is loaded: its kinds are declared with the room.
from holdfast.lazy_exports import lazy_exports
from holdfast.state import events as events

if TYPE_CHECKING:
    from holdfast.state.address import SCOPES as SCOPES
    from holdfast.state.address import ScopeKind as ScopeKind
    from holdfast.state.address import StateAddress as StateAddress
    from holdfast.state.address import StateScope as StateScope
    from holdfast.state.address import check_key as check_key
    from holdfast.state.address import parse_address as parse_address
    from holdfast.state.conflicts import STRATEGIES as STRATEGIES
    from holdfast.state.conflicts import ConflictCase as ConflictCase
    from holdfast.state.conflicts import Resolver as Resolver
    from holdfast.state.entry import StateChange as StateChange
    from holdfast.state.entry import StateEntry as StateEntry
    from holdfast.state.entry import StatePage as StatePage
    from holdfast.state.entry import StateSnapshot as StateSnapshot
    from holdfast.state.environment import FULL_ACCESS as FULL_ACCESS
    from holdfast.state.environment import MOST_BYTES as MOST_BYTES
    from holdfast.state.environment import NO_TAINT as NO_TAINT
    from holdfast.state.environment import LastChanges as LastChanges
    from holdfast.state.environment import StateAccess as StateAccess
    from holdfast.state.environment import StateAction as StateAction
    from holdfast.state.environment import StateEnvironment as StateEnvironment
    from holdfast.state.environment import StateLimits as StateLimits
    from holdfast.state.environment import StateOwner as StateOwner
    from holdfast.state.environment import Taint as Taint
    from holdfast.state.events import StateChanged as StateChanged
    from holdfast.state.events import StateConflicted as StateConflicted
    from holdfast.state.events import ToolStateSet as ToolStateSet
    from holdfast.state.manager import StateManager as StateManager
    from holdfast.state.schema import StateSchema as StateSchema
    from holdfast.state.scoped import ScopedState as ScopedState
    from holdfast.state.store import STATE as STATE
    from holdfast.state.store import JournalStateStore as JournalStateStore
    from holdfast.state.store import StateRow as StateRow
    from holdfast.state.store import StateStore as StateStore
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "address": "SCOPES ScopeKind StateAddress StateScope check_key parse_address",
            "conflicts": "STRATEGIES ConflictCase Resolver",
            "entry": "StateChange StateEntry StatePage StateSnapshot",
            "environment": "FULL_ACCESS MOST_BYTES NO_TAINT LastChanges StateAccess StateAction StateEnvironment "
            "StateLimits StateOwner Taint",
            "events": "StateChanged StateConflicted ToolStateSet",
            "manager": "StateManager",
            "schema": "StateSchema",
            "scoped": "ScopedState",
            "store": "STATE JournalStateStore StateRow StateStore",
        },
    )
