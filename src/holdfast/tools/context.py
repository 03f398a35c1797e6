"""What a running tool call knows and may use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.hooks import ExecutionContext
from holdfast.policy import Rights
from holdfast.sandbox import Workspace
from holdfast.tools.child_limits import ChildLimits
from holdfast.tools.labels import ContextLabels
from holdfast.tools.services import (
    ArtifactStore,
    Attendant,
    Cancellation,
    CommandRunner,
    HttpClient,
    NestedCalls,
    OpensReader,
    ProgressSink,
    ProgressUpdate,
    ToolStateStore,
)
from holdfast.tools.threads import ToolThreads

P = ParamSpec("P")
T = TypeVar("T")


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls, and the only ways to the world.

    A tool function that has a parameter of this type gets it passed in; the parameter
    does not appear in the schema. The collaborators are never missing, and nothing has a
    default: the runtime puts a context together in one place, for every kind of run. For
    tests there is `holdfast.testing.tool_context`.
    """

    workspace: Workspace
    session_id: str
    run_id: str
    call_id: str
    idempotency_key: str
    agent_path: tuple[str, ...]
    rights: Rights
    """What the caller may do; whoever starts others hands on no more."""
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
    state: ToolStateStore
    artifacts: ArtifactStore
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

    def report(self, text: str, *, fraction: float | None = None) -> None:
        """Tell subscribers how far the call is; safe from any thread."""
        self.progress(ProgressUpdate(call_id=self.call_id, text=text, fraction=fraction))

    async def look(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function without effect in a thread.

        When the call is cancelled, `cancellation` tells the function to stop, and nobody
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
        after the call was reported as cancelled.
        """
        work = asyncio.ensure_future(self.threads.run(function, *args, **kwargs))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise
