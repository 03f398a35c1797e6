"""What a running tool call knows and may use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.errors import LeaseLost
from holdfast.hooks import ExecutionContext
from holdfast.policy import Rights
from holdfast.sandbox import Workspace
from holdfast.state import ScopedState
from holdfast.tools.child_limits import ChildLimits
from holdfast.tools.dependencies import DepsT
from holdfast.tools.labels import ContextLabels
from holdfast.tools.services import (
    Attendant,
    Cancellation,
    CommandRunner,
    HttpClient,
    NestedCalls,
    OpensReader,
    PassedBy,
    ProgressSink,
    ProgressUpdate,
    ToolArtifacts,
)
from holdfast.tools.threads import ToolThreads

P = ParamSpec("P")
T = TypeVar("T")


class ToolContext(msgspec.Struct, Generic[DepsT], frozen=True, kw_only=True):
    """Who calls, and the only ways to the world.

    A tool function that has a parameter of this type gets it passed in; the parameter
    does not appear in the schema. The collaborators are never missing, and nothing has a
    default: the runtime puts a context together in one place, for every kind of run. For
    tests there is `holdfast.testing.make_tool_context`. `ToolContext[Shop]` asks for `deps`
    of that type.
    """

    workspace: Workspace
    session_id: str
    run_id: str
    call_id: str
    idempotency_key: str
    fence: int
    """The fencing token of the run: the epoch of the session's lease, which grows with every
    holder. A system that is handed it with each change, and refuses one that is lower than the
    highest it has seen of the session, is never changed by a process that was overtaken."""
    unproved_fence: int
    """Up to this fence a process that held the session before may still be alive, and act."""
    is_lease_held: Callable[[], bool]
    passed_by: PassedBy
    """What let this call pass the gate."""
    agent_path: tuple[str, ...]
    rights: Rights
    """What the caller may do; the caller that starts others hands on no more."""
    is_read_only: bool
    """Whether the caller's commands may only look."""
    has_network: bool
    """Whether the caller's commands have the machine's network, if the policies grant it."""
    child_limits: ChildLimits
    """What runs that the call starts share with the caller's."""
    labels: ContextLabels
    """The taint labels of what the caller's model has read."""
    cancellation: Cancellation
    progress: ProgressSink
    state: ScopedState
    """What the session keeps; `state.scope("user")` and so on reach the other scopes."""
    artifacts: ToolArtifacts
    http: HttpClient
    commands: CommandRunner
    open_reader: OpensReader
    """Opens a sandbox for a process that outlives the call, such as a language server."""
    attendant: Attendant
    nested: NestedCalls
    threads: ToolThreads
    clock: Clock
    execution: ExecutionContext
    """The application's own data and services, as they travel with the run."""
    deps: DepsT
    """What the application handed to the run as `deps`; `None` if nothing."""

    def report(self, text: str, *, fraction: float | None = None) -> None:
        """Tell subscribers how far the call is; safe from any thread."""
        self.progress(ProgressUpdate(call_id=self.call_id, text=text, fraction=fraction))

    def still_mine(self) -> bool:
        """Say whether the run still holds its session: a last look right before an effect.

        Safe from any thread, and quick: the lease's end by the boot clock is known here; only
        after it (this process was stopped, or could not renew) the store is asked. It narrows the
        moment in which an overtaken process may still act; only a target that checks `fence`
        closes it.
        """
        return self.is_lease_held()

    def check_still_mine(self) -> None:
        """Go on only if the run still holds its session.

        Raises:
            LeaseLost: it does not; do nothing more.
        """
        if not self.is_lease_held():
            raise LeaseLost(session_id=self.session_id, current="another one", held=self.fence)

    async def look(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function without effect in a thread.

        When the call is cancelled, `cancellation` tells the function to stop, and no caller
        waits for it.
        """
        try:
            return await self.threads.run(function, *args, **kwargs)
        except asyncio.CancelledError:
            self.cancellation.cancel()
            raise

    async def act(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a short blocking function with an effect in a thread, always to its end.

        A cancelled call waits until the function is done, so that no effect happens
        after the call was reported as cancelled. The function is not called when the run has
        lost its session meanwhile.

        Raises:
            LeaseLost: it has.
        """

        def act() -> T:
            self.check_still_mine()
            return function(*args, **kwargs)

        work = asyncio.ensure_future(self.threads.run(act))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
