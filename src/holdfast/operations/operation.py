"""An operation: the unit of everything that can be asked of Holdfast from outside.

Each is one function over the runtime, with the caller in whose name it happens and the scope
that the caller needs. The local client, the command line and whatever else speaks to the
outside are projections of the table of these: rights are checked here, once.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
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

from holdfast.errors import NotPermitted
from holdfast.operations.caller import ALL_OWNERS, OWNER, Caller
from holdfast.operations.concerns import AgentsOf
from holdfast.operations.model_names import check_models
from holdfast.operations.ownership import OwnView
from holdfast.operations.request import LocalPart, find_local_parts, make_request, make_request_type
from holdfast.runtime import Runtime
from holdfast.sessions import acting_for

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M")
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

    def member(self, member: LocalMember[M]) -> M:
        """Return a method of an object of this process."""
        ...


class Surface(Generic[Mode]):
    """Something whose operations go over a channel: a namespace, a handle, a client."""

    def __init__(self, channel: Channel) -> None:
        """Ask over this channel."""
        self._channel = channel
        self._methods: dict[str, Any] = {}


class OperationRights(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller needs for an operation."""

    scope: str
    also: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Parameters that need a further scope when they are given."""
    agents: AgentsOf | None = None
    """Which agents a request concerns; without it, a scope that is limited to one is refused."""


class _Asked(Generic[P]):
    """What an operation is, whether it has one answer or a stream of them."""

    function: Callable[..., Any]

    def __init__(self, name: str, rights: OperationRights, function: Callable[..., Any]) -> None:
        self.name = name
        self.rights = rights
        self.scope = rights.scope
        self.function = function
        functools.update_wrapper(cast(Any, self), function)

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        """The parameters of a request, as Python sees them."""
        found = inspect.signature(self.function)
        return found.replace(parameters=list(found.parameters.values())[2:])

    @functools.cached_property
    def request(self) -> type[msgspec.Struct]:
        """What is asked, as data: a struct made from the parameters of the function."""
        return make_request_type(self.name, self.function)

    @functools.cached_property
    def local_parts(self) -> Mapping[str, tuple[LocalPart, ...]]:
        """Parameters that also, or only, take Python objects, with what to send instead."""
        return find_local_parts(self.function)

    def make_request(self, *args: P.args, **kwargs: P.kwargs) -> msgspec.Struct:
        """Return arguments as a request that can travel.

        Raises:
            UsageError: one of them cannot; the message says what to send instead.
        """
        given = self.signature.bind(*args, **kwargs).arguments
        return make_request(self.name, self.request, self.local_parts, given)

    async def admit(
        self, runtime: Runtime, caller: Caller, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[inspect.BoundArguments, OwnView | None]:
        """Return what a caller other than the owner asks, and what it may see of the answer.

        Raises:
            NotPermitted: it lacks the scope, or has it for other agents; nothing was done.
            NotFound: it names what belongs to another subject, or is not there.
        """
        allowed = caller.find_allowed_agents(self.scope)
        if allowed is not None and (not allowed or self.rights.agents is None):
            raise NotPermitted(subject=caller.subject, scope=self.scope)
        given = self.signature.bind(*args, **kwargs)
        for name, scope in self.rights.also.items():
            value = given.arguments.get(name)
            if value is not False and value not in (None, (), [], {}, ""):
                caller.check(scope)
        check_models(runtime, caller, given.arguments)
        view = None
        if not caller.may(ALL_OWNERS):
            view = OwnView(runtime, caller)
            await view.narrow(self.name, given)
        if allowed is not None and self.rights.agents is not None:
            whole = self.signature.bind(*given.args, **given.kwargs)
            whole.apply_defaults()
            concerned = await self.rights.agents(runtime, whole.arguments)
            if not concerned or not {one.casefold() for one in concerned} <= allowed:
                raise NotPermitted(subject=caller.subject, scope=self.scope)
        return given, view


class Operation(_Asked[P], Generic[P, T]):
    """One question with one answer; as an attribute of a surface it is a method there."""

    is_stream = False

    def __init__(
        self,
        name: str,
        rights: OperationRights,
        function: Callable[Concatenate[Runtime, Caller, P], Coroutine[Any, Any, T]],
        *,
        opens: bool = True,
    ) -> None:
        """Made by `operation`."""
        super().__init__(name, rights, function)
        self.opens = opens
        """Whether the runtime is opened before; one without looks after that itself."""

    async def perform(self, runtime: Runtime, caller: Caller, *args: Any, **kwargs: Any) -> T:
        """Check the caller's rights, then do it.

        Raises:
            NotPermitted: the caller lacks a scope.
            NotFound: it names what belongs to another subject.
        """
        answer: T
        if caller is OWNER:
            answer = await self.function(runtime, caller, *args, **kwargs)
            return answer
        given, view = await self.admit(runtime, caller, args, kwargs)
        with acting_for(caller.subject):
            answer = await self.function(runtime, caller, *given.args, **given.kwargs)
        return answer if view is None else cast(T, await view.cut(answer))

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


class StreamOperation(_Asked[P], Generic[P, T]):
    """One question with a stream of answers."""

    is_stream = True

    def __init__(
        self,
        name: str,
        rights: OperationRights,
        function: Callable[Concatenate[Runtime, Caller, P], AsyncGenerator[T, None]],
    ) -> None:
        """Made by `stream_operation`."""
        super().__init__(name, rights, function)

    def perform(
        self, runtime: Runtime, caller: Caller, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[T, None]:
        """Check the caller's rights, then begin; the first item raises NotPermitted."""
        if caller is not OWNER:
            return self._perform_for(runtime, caller, args, kwargs)
        items: AsyncGenerator[T, None] = self.function(runtime, caller, *args, **kwargs)
        return items

    async def _perform_for(
        self, runtime: Runtime, caller: Caller, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> AsyncGenerator[T, None]:
        given, view = await self.admit(runtime, caller, args, kwargs)
        items: AsyncGenerator[T, None] = self.function(runtime, caller, *given.args, **given.kwargs)
        async with contextlib.aclosing(items):
            while True:
                # Around each step: who reads the stream must not act in the caller's name.
                with acting_for(caller.subject):
                    try:
                        item = await anext(items)
                    except StopAsyncIteration:
                        return
                if view is None or await view.shows(item):
                    yield item

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


class LocalMember(LocalFunction[..., Any], Generic[M]):
    """A method of an object of this process, as it is: neither awaited nor on another thread."""

    def __init__(
        self, name: str, instead: str, function: Callable[..., Any], find: Callable[[Runtime], M]
    ) -> None:
        """List a method; `function` says what it takes, `find` gives it bound."""
        super().__init__(name, instead, function, opens=False)
        self.find = find
        self.__module__ = f"{__package__}.{name.partition('.')[0]}"

    @overload  # type: ignore[override]
    def __get__(self, at: None, owner: type) -> Self: ...
    @overload
    def __get__(self, at: Surface[Any], owner: type) -> M: ...

    def __get__(self, at: Surface[Any] | None, owner: type) -> Any:
        """Return the method itself."""
        return self if at is None else at._channel.member(self)


def operation(
    scope: str,
    *,
    also: Mapping[str, str] | None = None,
    agents: AgentsOf | None = None,
    opens: bool = True,
) -> Callable[[Callable[Concatenate[Runtime, Caller, P], Coroutine[Any, Any, T]]], Operation[P, T]]:
    """Make an operation of a function; its name is `<module>.<function>`.

    `also` names parameters that need a further scope, `agents` says which agents a request
    concerns (see `OperationRights`).
    """
    rights = OperationRights(scope=scope, also=also or {}, agents=agents)

    def make(
        function: Callable[Concatenate[Runtime, Caller, P], Coroutine[Any, Any, T]],
    ) -> Operation[P, T]:
        return Operation(_name_of(function), rights, function, opens=opens)

    return make


def stream_operation(
    scope: str, *, also: Mapping[str, str] | None = None, agents: AgentsOf | None = None
) -> Callable[
    [Callable[Concatenate[Runtime, Caller, P], AsyncGenerator[T, None]]], StreamOperation[P, T]
]:
    """Make an operation of a function that yields."""
    rights = OperationRights(scope=scope, also=also or {}, agents=agents)

    def make(
        function: Callable[Concatenate[Runtime, Caller, P], AsyncGenerator[T, None]],
    ) -> StreamOperation[P, T]:
        return StreamOperation(_name_of(function), rights, function)

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


__all__ = [
    "Async",
    "Blocking",
    "Channel",
    "LocalFunction",
    "LocalMember",
    "Mode",
    "Operation",
    "OperationRights",
    "StreamOperation",
    "Surface",
    "bound",
    "local",
    "operation",
    "stream_operation",
]
