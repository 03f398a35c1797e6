"""Handles: a run that was started, with what one does to it."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from holdfast.operations import (
    Async,
    Blocking,
    Channel,
    Mode,
    Operation,
    StreamOperation,
    Surface,
    runs,
)
from holdfast.operations.operation import bound
from holdfast.sessions import Run

P = ParamSpec("P")
T = TypeVar("T")


class _OfRun(Generic[P, T]):
    """An operation whose first argument is the run of the handle."""

    def __init__(self, operation: Operation[Concatenate[str, P], T]) -> None:
        self._operation = operation
        self.__doc__ = operation.__doc__

    @overload
    def __get__(self, at: RunHandle[Async], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, at: RunHandle[Blocking], owner: type) -> Callable[P, T]: ...

    def __get__(self, at: RunHandle[Any], owner: type) -> Any:
        call = functools.partial(at._channel.call, self._operation, at.id)
        return bound(call, self._operation.function, leave_out=3)


class _StreamOfRun(Generic[P, T]):
    """A stream whose first argument is the run of the handle."""

    def __init__(self, operation: StreamOperation[Concatenate[str, P], T]) -> None:
        self._operation = operation
        self.__doc__ = operation.__doc__

    @overload
    def __get__(
        self, at: RunHandle[Async], owner: type
    ) -> Callable[P, AsyncGenerator[T, None]]: ...
    @overload
    def __get__(self, at: RunHandle[Blocking], owner: type) -> Callable[P, Iterator[T]]: ...

    def __get__(self, at: RunHandle[Any], owner: type) -> Any:
        call = functools.partial(at._channel.stream, self._operation, at.id)
        return bound(call, self._operation.function, leave_out=3)


class RunHandle(Surface[Mode]):
    """A run that was started; it goes on whether or not any caller holds this.

    ::

        run = await client.runs.start("build", "", "Tidy up")
        async for item in run.stream():
            ...
        result = await run.result()
    """

    def __init__(self, channel: Channel, run: Run) -> None:
        """Made by `client.runs.start`."""
        super().__init__(channel)
        self.id = run.id
        self.session_id = run.session_id

    result = _OfRun(runs.result)
    stream = _StreamOfRun(runs.follow)
    events = _StreamOfRun(runs.events)
    cancel = _OfRun(runs.cancel)
    steer = _OfRun(runs.steer_run)
    fork = _OfRun(runs.fork)
    state = _OfRun(runs.get)

    def __repr__(self) -> str:
        """Show which run it is."""
        return f"RunHandle({self.id!r}, session_id={self.session_id!r})"


class StartsRun(Generic[P]):
    """`runs.start` as a method that returns a handle."""

    def __init__(self, operation: Operation[P, Run]) -> None:
        """Start runs with this operation."""
        self.operation = operation
        self.__doc__ = operation.__doc__

    @overload
    def __get__(
        self, at: Surface[Async], owner: type
    ) -> Callable[P, Coroutine[Any, Any, RunHandle[Async]]]: ...
    @overload
    def __get__(self, at: Surface[Blocking], owner: type) -> Callable[P, RunHandle[Blocking]]: ...

    def __get__(self, at: Surface[Any], owner: type) -> Any:
        """Return the method of a surface."""
        handle: Callable[..., RunHandle[Any]] = RunHandle
        start = functools.partial(at._channel.start, self.operation, handle)
        return bound(start, self.operation.function)


__all__ = ["RunHandle", "StartsRun"]
