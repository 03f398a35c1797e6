"""How an operation is asked for over HTTP, and how its answer is read."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from holdfast.client.sse import ServerEvent
from holdfast.errors import HoldfastError, ServerFailed, make_error_from_dict
from holdfast.hooks import BusEvent
from holdfast.journal import Event
from holdfast.operations import ROUTES
from holdfast.orchestration.delegation import FamilyEvent


class Asked(msgspec.Struct):
    """One request, ready to be sent."""

    method: str
    path: str
    query: list[tuple[str, str]] = msgspec.field(default_factory=list)
    body: bytes | None = None
    headers: dict[str, str] = msgspec.field(default_factory=dict)
    given: frozenset[str] = frozenset()
    """The fields that were given."""


def ask(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked:
    """Return the request for an operation with these arguments.

    Raises:
        UsageError: one of them is a Python object; says what to send instead.
    """
    request = operation.make_request(*args, **kwargs)
    route = ROUTES[operation.name]
    # What is as it would be anyway is left out.
    plain: dict[str, Any] = msgspec.to_builtins(request, builtin_types=(bytes,))
    given = frozenset(plain)
    path = route.path
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", quote(str(plain.pop(name)), safe=""))
    asked = Asked(method=route.method, path=path, given=given)
    if route.upload:
        asked.body = plain.pop(route.upload)
        asked.headers["Content-Type"] = "application/octet-stream"
        asked.query = list(_flatten_pairs(plain, frozenset(request.__struct_fields__)))
    elif route.has_body:
        asked.body = msgspec.json.encode(plain)
        asked.headers["Content-Type"] = "application/json"
    else:
        asked.query = list(_flatten_pairs(plain, frozenset(request.__struct_fields__)))
    return asked


def _flatten_pairs(
    plain: Mapping[str, Any], taken: frozenset[str], owner: str = ""
) -> typing.Iterator[tuple[str, str]]:
    """Yield the pairs of a query; fields of a struct stand in it by themselves."""
    for own, value in plain.items():
        name = f"{owner}.{own}" if owner and own in taken else own
        if value is None:
            continue
        if isinstance(value, dict):
            yield from _flatten_pairs(value, taken, own)
        elif isinstance(value, list | tuple):
            yield from ((name, str(one)) for one in value)
        else:
            yield name, str(value).lower() if isinstance(value, bool) else str(value)


class _WireEvent(msgspec.Struct, kw_only=True):
    seq: int
    session_id: str
    session_seq: int
    run_id: str
    agent_path: str
    kind: str
    version: int
    time: float
    correlation_id: str
    causation_id: str
    epoch: int
    payload_digest: str
    hash: str
    is_redacted: bool
    data: msgspec.Raw

    def to_event(self) -> Event:
        """Return the event as the journal has it."""
        kept = {name: getattr(self, name) for name in self.__struct_fields__ if name != "data"}
        return Event(**kept, payload=bytes(self.data))


class _WireBusEvent(msgspec.Struct, kw_only=True):
    name: str
    time: float
    session_id: str = ""
    run_id: str = ""
    agent_path: str = ""
    correlation_id: str = ""
    seq: int = 0
    event: _WireEvent | None = None
    data: msgspec.Raw

    def to_event(self) -> BusEvent:
        """Return the event as the bus has it."""
        return BusEvent(
            name=self.name,
            time=self.time,
            session_id=self.session_id,
            run_id=self.run_id,
            agent_path=self.agent_path,
            correlation_id=self.correlation_id,
            seq=self.seq,
            fact=self.event.to_event() if self.event is not None else None,
            content=bytes(self.data),
        )


class _WireFamilyEvent(msgspec.Struct, kw_only=True):
    path: str
    depth: int
    event: _WireEvent

    def to_event(self) -> FamilyEvent:
        """Return the event with its place in the family."""
        return FamilyEvent(path=self.path, depth=self.depth, event=self.event.to_event())


_WIRE: dict[Any, Any] = {
    Event: _WireEvent,
    BusEvent: _WireBusEvent,
    FamilyEvent: _WireFamilyEvent,
}


@functools.cache
def _make_reader(response: Any) -> msgspec.json.Decoder[Any]:
    """Return what reads an answer of this type: of listings and values, the object around it."""
    if typing.get_origin(response) is list:
        [item] = typing.get_args(response)
        kind: Any = list[_WIRE.get(item, item)]  # type: ignore[misc]
        return msgspec.json.Decoder(msgspec.defstruct("Items", [("items", kind)]))
    if is_value(response):
        return msgspec.json.Decoder(msgspec.defstruct("Value", [("value", response)]))
    return msgspec.json.Decoder(_WIRE.get(response, response))


def is_value(response: Any) -> bool:
    """Say whether an answer is a single value, which is sent inside an object."""
    members = (response,)
    if typing.get_origin(response) in (typing.Union, types.UnionType):
        members = typing.get_args(response)
    return all(
        typing.get_origin(one) in (tuple, typing.Literal)
        or one in (str, int, float, bool, types.NoneType)
        for one in members
    )


def decode_answer(operation: Any, status: int, body: bytes) -> Any:
    """Return the answer of an operation.

    Raises:
        ServerFailed: it is not what the operation promises.
    """
    response = operation.response
    if status == 204:
        return None
    if response is bytes:
        return body
    try:
        found = _make_reader(response).decode(body)
    except msgspec.MsgspecError as error:
        detail = f"the answer is none of {operation.name}: {error}"
        raise ServerFailed(detail=detail, request_id="") from error
    if typing.get_origin(response) is list:
        items = found.items
        return [one.to_event() for one in items] if _is_wire(response) else items
    if is_value(response):
        return found.value
    return found.to_event() if response in _WIRE else found


def _is_wire(response: Any) -> bool:
    return typing.get_args(response)[0] in _WIRE


def decode_item(operation: Any, event: ServerEvent) -> Any:
    """Return an item of a stream; `None` for an event that the operation does not speak of."""
    response = operation.response
    if response in _WIRE:
        return _make_reader(response).decode(event.data).to_event()
    if event.id:
        return None  # a stored fact, beside the pieces of a run
    try:
        return _make_reader(response).decode(event.data)
    except msgspec.ValidationError as error:
        detail = f"{event.name} is none of {operation.name}: {error}"
        raise ServerFailed(detail=detail, request_id="") from error


def read_problem(status: int, body: bytes) -> HoldfastError:
    """Return the error that a problem tells, of the same class as where it was raised."""
    try:
        found = msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return ServerFailed(detail=f"it answered {status} without a problem", request_id="")
    told = {**found, "message": found.get("detail", ""), "context": found.get("context", {})}
    return make_error_from_dict(told)


class PieceFilter:
    """Leaves out pieces of the present message that came before a connection broke."""

    def __init__(self) -> None:
        """Nothing came yet."""
        self._seen: list[bytes] = []
        self._again: list[bytes] = []

    def begin_again(self) -> None:
        """Expect the pieces of the present message once more."""
        self._again, self._seen = [*self._seen], []

    def takes(self, event: ServerEvent) -> bool:
        """Say whether an event is new; stored ones always are."""
        if event.id or event.name == "result":
            return True
        if event.name in ("finished", "tool"):
            self._seen.clear()
            self._again.clear()
            return True
        self._seen.append(event.data)
        at = len(self._seen) - 1
        if at < len(self._again) and self._again[at] == event.data:
            return False
        self._again.clear()
        return True


__all__ = ["Asked", "PieceFilter", "ask", "decode_answer", "decode_item", "read_problem"]
