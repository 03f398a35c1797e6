"""An operation: the unit of everything that can be asked of Holdfast from outside.

Each is one function over the runtime, with the caller in whose name it happens and the scope
that the caller needs. The local client, the command line and whatever else speaks to the
outside are projections of the table of these: rights are checked here, once.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    overload,
)

import msgspec

from holdfast.errors import UsageError
from holdfast.operations.caller import OWNER, Caller
from holdfast.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Async:
    """Marks a surface whose operations are awaited."""


class Blocking:
    """Marks a surface whose operations block."""


Mode = TypeVar("Mode", Async, Blocking)


class Channel(Protocol):
    """The way from a surface to the operations: in this process, or over a network."""

    def call(self, operation: Operation[..., T], /, *args: Any, **kwargs: Any) -> Any:
        """Ask for one answer: a coroutine of it, or itself where the surface blocks."""
        ...

    def stream(self, operation: StreamOperation[..., T], /, *args: Any, **kwargs: Any) -> Any:
        """Ask for a stream: an asynchronous iterator, or a plain one where the surface blocks."""
        ...

    def start(
        self, operation: Operation[..., Any], handle: Callable[..., T], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Ask for something that goes on, and return a handle to it."""
        ...

    def local(self, function: LocalFunction[..., T], /, *args: Any, **kwargs: Any) -> Any:
        """Call what takes Python objects; only a runtime in this process can."""
        ...


class Surface(Generic[Mode]):
    """Something whose operations go over a channel: a namespace, a handle, a client."""

    def __init__(self, channel: Channel) -> None:
        """Ask over this channel."""
        self._channel = channel
        self._methods: dict[str, Any] = {}


class Operation(Generic[P, T]):
    """One question with one answer; as an attribute of a surface it is a method there."""

    is_stream = False

    def __init__(
        self,
        name: str,
        scope: str,
        function: Callable[Concatenate[Runtime, Caller, P], Coroutine[Any, Any, T]],
        *,
        opens: bool = True,
    ) -> None:
        """Made by `operation`."""
        self.name = name
        self.scope = scope
        self.opens = opens
        """Whether the runtime is opened before; one without looks after that itself."""
        self.function = function
        functools.update_wrapper(cast(Any, self), function)

    async def perform(self, runtime: Runtime, caller: Caller, *args: Any, **kwargs: Any) -> T:
        """Check the caller's scope, then do it.

        Raises:
            NotPermitted: the caller lacks the scope.
        """
        if caller is not OWNER:
            caller.check(self.scope)
        return await self.function(runtime, caller, *args, **kwargs)

    @functools.cached_property
    def request(self) -> type[msgspec.Struct]:
        """What is asked, as data: a struct made from the parameters of the function."""
        return request_type(self.name, self.function)

    @functools.cached_property
    def response(self) -> Any:
        """The type of the answer."""
        return typing.get_type_hints(self.function, include_extras=True).get("return")

    @overload
    def __get__(self, at: None, owner: type) -> Self: ...
    @overload
    def __get__(self, at: Surface[Async], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, at: Surface[Blocking], owner: type) -> Callable[P, T]: ...

    def __get__(self, at: Surface[Any] | None, owner: type) -> Any:
        """Return the method of a surface."""
        if at is None:
            return self
        known = at._methods.get(self.name)
        if known is None:
            call = functools.partial(at._channel.call, self)
            known = at._methods[self.name] = bound(call, self.function)
        return known


class StreamOperation(Generic[P, T]):
    """One question with a stream of answers."""

    is_stream = True

    def __init__(
        self,
        name: str,
        scope: str,
        function: Callable[Concatenate[Runtime, Caller, P], AsyncGenerator[T, None]],
    ) -> None:
        """Made by `stream_operation`."""
        self.name = name
        self.scope = scope
        self.function = function
        functools.update_wrapper(cast(Any, self), function)

    def perform(
        self,
        runtime: Runtime,
        caller: Caller,
        *args: Any,
        **kwargs: Any,
    ) -> AsyncGenerator[T, None]:
        """Check the caller's scope, then begin; raises NotPermitted."""
        if caller is not OWNER:
            caller.check(self.scope)
        return self.function(runtime, caller, *args, **kwargs)

    @functools.cached_property
    def request(self) -> type[msgspec.Struct]:
        """What is asked, as data."""
        return request_type(self.name, self.function)

    @functools.cached_property
    def response(self) -> Any:
        """The type of the items."""
        hint = typing.get_type_hints(self.function, include_extras=True).get("return")
        return typing.get_args(hint)[0] if typing.get_args(hint) else Any

    @overload
    def __get__(self, at: None, owner: type) -> Self: ...
    @overload
    def __get__(self, at: Surface[Async], owner: type) -> Callable[P, AsyncGenerator[T, None]]: ...
    @overload
    def __get__(self, at: Surface[Blocking], owner: type) -> Callable[P, Iterator[T]]: ...

    def __get__(self, at: Surface[Any] | None, owner: type) -> Any:
        """Return the method of a surface."""
        if at is None:
            return self
        known = at._methods.get(self.name)
        if known is None:
            call = functools.partial(at._channel.stream, self)
            known = at._methods[self.name] = bound(call, self.function)
        return known


class LocalFunction(Generic[P, T]):
    """What takes or gives Python objects, and therefore cannot travel.

    `instead` says what to do where the runtime is on another machine.
    """

    def __init__(
        self,
        name: str,
        instead: str,
        function: Callable[Concatenate[Runtime, P], Coroutine[Any, Any, T]],
        *,
        opens: bool = True,
    ) -> None:
        """Made by `local`."""
        self.name = name
        self.opens = opens
        self.instead = instead
        self.function = function
        functools.update_wrapper(cast(Any, self), function)

    @overload
    def __get__(self, at: None, owner: type) -> Self: ...
    @overload
    def __get__(self, at: Surface[Async], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, at: Surface[Blocking], owner: type) -> Callable[P, T]: ...

    def __get__(self, at: Surface[Any] | None, owner: type) -> Any:
        """Return the method of a surface."""
        if at is None:
            return self
        known = at._methods.get(self.name)
        if known is None:
            call = functools.partial(at._channel.local, self)
            known = at._methods[self.name] = bound(call, self.function, leave_out=1)
        return known


def operation(
    scope: str, *, opens: bool = True
) -> Callable[[Callable[Concatenate[Runtime, Caller, P], Coroutine[Any, Any, T]]], Operation[P, T]]:
    """Make an operation of a function; its name is `<module>.<function>`."""

    def make(
        function: Callable[Concatenate[Runtime, Caller, P], Coroutine[Any, Any, T]],
    ) -> Operation[P, T]:
        return Operation(_name_of(function), scope, function, opens=opens)

    return make


def stream_operation(
    scope: str,
) -> Callable[
    [Callable[Concatenate[Runtime, Caller, P], AsyncGenerator[T, None]]], StreamOperation[P, T]
]:
    """Make an operation of a function that yields."""

    def make(
        function: Callable[Concatenate[Runtime, Caller, P], AsyncGenerator[T, None]],
    ) -> StreamOperation[P, T]:
        return StreamOperation(_name_of(function), scope, function)

    return make


def local(
    instead: str, *, opens: bool = True
) -> Callable[[Callable[Concatenate[Runtime, P], Coroutine[Any, Any, T]]], LocalFunction[P, T]]:
    """List a function as one that cannot travel, with what to do `instead` elsewhere."""

    def make(
        function: Callable[Concatenate[Runtime, P], Coroutine[Any, Any, T]],
    ) -> LocalFunction[P, T]:
        return LocalFunction(_name_of(function), instead, function, opens=opens)

    return make


def _name_of(function: Callable[..., object]) -> str:
    return f"{function.__module__.rsplit('.', 1)[-1]}.{function.__name__.rstrip('_')}"


def bound(
    method: functools.partial[Any], function: Callable[..., object], *, leave_out: int = 2
) -> Any:
    """Give a bound operation the name, the words and the parameters of its function."""
    functools.update_wrapper(method, function)
    signature = inspect.signature(function)
    kept = list(signature.parameters.values())[leave_out:]
    method.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
    return method


_LEFT_HERE = (Callable, type(None))


def request_type(name: str, function: Callable[..., object]) -> type[msgspec.Struct]:
    """Return a struct with the parameters of an operation that can travel.

    Of a union, what is no data (an Agent, a Model, a function, an open file) is left out; a
    parameter of which nothing is left does not travel at all.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in list(inspect.signature(function).parameters.values())[2:]:
        kind = _wire_type(hints[parameter.name])
        if kind is None:
            continue
        if parameter.default is parameter.empty:
            fields.append((parameter.name, kind))
        else:
            default = parameter.default
            if isinstance(default, list | dict | set):
                raise UsageError(detail=f"{name}: a default must not be mutable.")
            fields.append((parameter.name, kind, default))
    made = "".join(part.title().replace("_", "") for part in name.split("."))
    return msgspec.defstruct(f"{made}Request", fields, kw_only=True, forbid_unknown_fields=True)


def _wire_type(hint: Any) -> Any:
    """Return a type without what is no data; `None` if nothing is left."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        kept = [one for one in map(_wire_type, typing.get_args(hint)) if one is not None]
        data = [one for one in kept if one is not type(None)]
        if not data:
            return None
        return functools.reduce(lambda a, b: a | b, kept)
    return None if _stays_here(hint, origin) else hint


def _stays_here(hint: Any, origin: Any) -> bool:
    kind = origin or hint
    if hint is type(None) or kind is Any:
        return False
    if kind is typing.IO or origin is typing.IO:
        return True
    if not isinstance(kind, type):
        return False
    if issubclass(kind, Callable):  # type: ignore[arg-type]
        return kind is not type and not issubclass(kind, str)
    return kind.__module__ in _OF_CODE or getattr(kind, "_is_protocol", False)


_OF_CODE = frozenset(
    {
        "os",
        "pathlib",
        "asyncio.locks",
        "holdfast.agents.definition",
        "holdfast.orchestration.loop.options",
        "holdfast.orchestration.workflows.definition",
        "holdfast.orchestration.workflows.workflow",
        "holdfast.orchestration.triggers.trigger",
    }
)
"""Modules whose classes hold code, or name places of this machine."""


__all__ = [
    "Async",
    "Blocking",
    "Channel",
    "LocalFunction",
    "Mode",
    "Operation",
    "StreamOperation",
    "Surface",
    "bound",
    "local",
    "operation",
    "stream_operation",
]
