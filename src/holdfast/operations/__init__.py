"""The table of what can be asked of Holdfast from outside.

One module per namespace, one function per operation. Every face (client, command line, and
whatever else speaks to the outside) is a projection of this table and never reaches around it,
so rights are checked in one place: `Operation.perform`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from holdfast.operations.caller import ALL_OWNERS as ALL_OWNERS
    from holdfast.operations.caller import OWNER as OWNER
    from holdfast.operations.caller import Caller as Caller
    from holdfast.operations.local_values import Local as Local
    from holdfast.operations.operation import Async as Async
    from holdfast.operations.operation import Blocking as Blocking
    from holdfast.operations.operation import Channel as Channel
    from holdfast.operations.operation import LocalFunction as LocalFunction
    from holdfast.operations.operation import LocalMember as LocalMember
    from holdfast.operations.operation import Mode as Mode
    from holdfast.operations.operation import Operation as Operation
    from holdfast.operations.operation import OperationRights as OperationRights
    from holdfast.operations.operation import StreamOperation as StreamOperation
    from holdfast.operations.operation import Surface as Surface
    from holdfast.operations.repeats import REPEATABLE as REPEATABLE
    from holdfast.operations.repeats import perform_again as perform_again
    from holdfast.operations.routes import ALIASES as ALIASES
    from holdfast.operations.routes import ROUTES as ROUTES
    from holdfast.operations.routes import HttpRoute as HttpRoute
    from holdfast.operations.routes import list_routes as list_routes
    from holdfast.operations.table import find_operation as find_operation
    from holdfast.operations.table import list_local_functions as list_local_functions
    from holdfast.operations.table import list_operations as list_operations
    from holdfast.operations.wire import Problem as Problem
    from holdfast.operations.wire import decode_answer as decode_answer
    from holdfast.operations.wire import encode_answer as encode_answer
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "caller": "ALL_OWNERS OWNER Caller",
            "local_values": "Local",
            "operation": "Async Blocking Channel LocalFunction LocalMember "
            "Mode Operation OperationRights StreamOperation Surface",
            "repeats": "REPEATABLE perform_again",
            "routes": "ALIASES ROUTES HttpRoute list_routes",
            "table": "find_operation list_local_functions list_operations",
            "wire": "Problem decode_answer encode_answer",
        },
    )
