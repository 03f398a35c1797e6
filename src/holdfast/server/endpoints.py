"""Endpoints: an operation with its route, and how a request over HTTP becomes its arguments."""

from __future__ import annotations

import difflib
import re
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Final, TypeAlias

import msgspec

from holdfast.errors import RequestInvalid
from holdfast.operations import ROUTES as TABLE
from holdfast.operations import HttpRoute, Operation, StreamOperation, find_operation, list_routes
from holdfast.server.http import JSON
from holdfast.server.problems import ProblemRaised

AnyOperation: TypeAlias = Operation[Any, Any] | StreamOperation[Any, Any]

MOST_LISTED: Final = 10_000
"""Items of a listing that is no page; operations may want fewer."""
_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`(?: - at `(.*)`)?")
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
STREAM_FIELDS = frozenset({"kinds"})
"""Fields of the query that every stream of events takes, besides those of its operation."""


class HttpEndpoint:
    """One operation at one address."""

    def __init__(self, name: str, route: HttpRoute, method: str, path: str) -> None:
        """Answer at this method and path; the operation is loaded with the first request."""
        self.name = name
        self.route = route
        self.method = method
        self.path = path
        self.words = tuple(path.strip("/").split("/"))
        self.parameters = tuple(w[1:-1] for w in self.words if w.startswith("{"))
        self.has_body = method not in {"GET", "DELETE"}

    @property
    def operation(self) -> Any:
        """What is asked for: an `Operation` or a `StreamOperation`, which as the type of an
        attribute would be a method."""
        return _load(self.name)

    @cached_property
    def fields(self) -> dict[str, msgspec.structs.FieldInfo]:
        """The fields of a request by name."""
        return {one.name: one for one in msgspec.structs.fields(self.operation.request)}

    @cached_property
    def sent_type(self) -> type[msgspec.Struct]:
        """What comes in the body: the fields that the path does not name."""
        return _make_sent_type(self.operation, self.route, self.parameters)

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[msgspec.Struct]:
        return msgspec.json.Decoder(self.sent_type)

    @cached_property
    def flat(self) -> dict[str, str]:
        """Fields of structs that stand in the query by themselves, with the field they are of."""
        found: dict[str, str] = {}
        for name, one in self.fields.items():
            kind = struct_in(one.type)
            if kind is not None and (not self.has_body or self.route.upload):
                for inner in msgspec.structs.fields(kind):
                    own = inner.encode_name
                    found[f"{name}.{own}" if own in self.fields else own] = name
        return found

    def flat_type(self, name: str, owner: str) -> Any:
        """Return the type of a field that stands in the query for a struct."""
        kind = struct_in(self.fields[owner].type)
        assert kind is not None
        found = {one.encode_name: one.type for one in msgspec.structs.fields(kind)}
        return found[name.rpartition(".")[2]]

    def read_parameters(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the values that the path holds."""
        pairs = zip(self.words, words, strict=True)
        given = {pattern[1:-1]: word for pattern, word in pairs if pattern.startswith("{")}
        return {name: self._convert(name, value) for name, value in given.items()}

    def read_body(self, body: bytes, media_type: str, *, max_depth: int) -> dict[str, Any]:
        """Return the values of a JSON body, strictly: unknown fields are refused.

        Raises:
            RequestInvalid: it is not what the operation takes.
            ProblemRaised: it is not said to be JSON.
        """
        if body:
            kind = media_type.partition(";")[0].strip().lower()
            if kind and kind != JSON and not kind.endswith("+json"):
                raise ProblemRaised(415, "request.media_type", f"send {JSON}, not {kind[:100]}")
            check_depth(body, max_depth)
        try:
            sent = self._decoder.decode(body or b"{}")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._explain(error) from error
        _check_text(sent)
        values = {name: getattr(sent, name) for name in sent.__struct_fields__}
        check_counts(values)
        return values

    def read_query(self, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
        """Return the values of a query; those of lists may come several times.

        Raises:
            RequestInvalid: it is not what the operation takes.
        """
        given: dict[str, Any] = {}
        for name, value in pairs:
            if name in STREAM_FIELDS and self.operation.is_stream and name not in self.fields:
                continue
            owner = self.flat.get(name)
            is_elsewhere = name in self.parameters or name == self.route.upload
            if owner is None and (name not in self.fields or is_elsewhere):
                raise self._unknown(name)
            if owner is None and is_list(self.fields[name].type):
                given.setdefault(name, []).append(value)
                continue
            place = given if owner is None else given.setdefault(owner, {})
            # Where the struct's field has the name of another one, it is `struct.field`.
            field = name if owner is None else name.rpartition(".")[2]
            if field in place:
                raise RequestInvalid(detail=f"{name} came twice in the query")
            place[field] = value
        values = {name: self._convert(name, value) for name, value in given.items()}
        for name, one in self.fields.items():
            if name not in values and name not in (*self.parameters, self.route.upload):
                default = self.route.defaults.get(name, _default_of(one))
                if default is _NOTHING:
                    raise RequestInvalid(detail=f"{name} is missing in the query")
                values[name] = default
        check_counts(values)
        return values

    def refuse_query(self, name: str) -> RequestInvalid:
        """Say that a field of the query is none of this address."""
        if name in self.fields and name not in self.parameters:
            return RequestInvalid(detail=f"{name} belongs into the body, not into the query")
        return self._unknown(name)

    def _convert(self, name: str, value: Any) -> Any:
        kind = self.fields[name].type
        if isinstance(value, str) and is_object(kind) and str not in _members(kind):
            try:
                value = msgspec.json.decode(value)
            except msgspec.DecodeError as error:
                raise RequestInvalid(detail=f"{name} is no JSON: {error}") from error
        try:
            found = msgspec.convert(value, kind, strict=False)
        except (msgspec.ValidationError, RecursionError) as error:
            raise RequestInvalid(detail=f"{name}: {error}") from error
        _check_text(found)
        return found

    def _explain(self, error: Exception) -> RequestInvalid:
        unknown = _UNKNOWN.match(str(error))
        if unknown is None:
            return RequestInvalid(detail=str(error).replace("`$.", "`").replace(" - at `$`", ""))
        return self._unknown(unknown[1], unknown[2] or "$")

    def _unknown(self, name: str, at: str = "$") -> RequestInvalid:
        known = [one for one in (*self.fields, *self.flat) if one not in self.parameters]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5) if at == "$" else []
        where = "" if at == "$" else f" at {at.removeprefix('$.')}"
        meant = f"; did you mean `{near[0]}`?" if near else ""
        detail = f"there is no field `{name[:100]}`{where}{meant}"
        return RequestInvalid(detail=detail, **({"nearest": near[0]} if near else {}))


_load = cache(find_operation)
_NOTHING: Any = object()


@cache
def _make_sent_type(
    operation: AnyOperation, route: HttpRoute, parameters: tuple[str, ...]
) -> type[msgspec.Struct]:
    made: list[Any] = []
    for one in msgspec.structs.fields(operation.request):
        if one.name in parameters:
            continue
        default = route.defaults.get(one.name, _default_of(one))
        made.append((one.name, one.type) if default is _NOTHING else (one.name, one.type, default))
    title = "".join(word.title() for word in re.split(r"[._]", operation.name))
    return msgspec.defstruct(f"{title}Body", made, kw_only=True, forbid_unknown_fields=True)


def _default_of(field: msgspec.structs.FieldInfo) -> Any:
    if field.required:
        return _NOTHING
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return field.default


def check_depth(body: bytes, most: int) -> None:
    """Refuse JSON that is nested too deeply, before it is decoded.

    Raises:
        RequestInvalid: it is.
    """
    if body.count(b"[") + body.count(b"{") <= most:
        return
    depth = 0
    for found in _BRACKETS.finditer(body):
        mark = found[0]
        if mark in b"[{":
            depth += 1
            if depth > most:
                raise RequestInvalid(detail=f"the body is nested deeper than {most}")
        elif mark in b"]}":
            depth -= 1


def check_counts(values: Mapping[str, Any]) -> None:
    """Refuse listings of nothing, and those that would hold all there is in memory.

    Raises:
        RequestInvalid: `limit` is out of range.
    """
    limit = values.get("limit")
    if isinstance(limit, int) and not 1 <= limit <= MOST_LISTED:
        raise RequestInvalid(detail=f"limit is a number from 1 to {MOST_LISTED}, not {limit}")


def _check_text(value: Any) -> None:
    """Refuse lone surrogates: nothing that comes after could store or send them."""
    try:
        msgspec.json.encode(value)
    except (UnicodeEncodeError, ValueError) as error:
        raise RequestInvalid(detail="a text holds a lone surrogate") from error
    except (TypeError, RecursionError) as error:
        raise RequestInvalid(detail=str(error)) from error


def _members(kind: Any) -> list[Any]:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [one for one in typing.get_args(kind) if one is not type(None)]
    return [kind]


def struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a field holds, `None` if it holds something else."""
    members = _members(kind)
    one = members[0] if len(members) == 1 else None
    return one if isinstance(one, type) and issubclass(one, msgspec.Struct) else None


def is_list(kind: Any) -> bool:
    """Say whether a field takes several values."""
    for one in _members(kind):
        origin = typing.get_origin(one) or one
        if isinstance(origin, type) and issubclass(origin, Sequence):
            if not issubclass(origin, str | bytes):
                return True
    return False


def is_object(kind: Any) -> bool:
    """Say whether a field takes a JSON object."""
    for one in _members(kind):
        origin = typing.get_origin(one) or one
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return True
    return False


class Router:
    """Finds the endpoint of a method and a path; fixed words win over parameters."""

    def __init__(self, endpoints: Sequence[HttpEndpoint]) -> None:
        """Know these."""
        self._tree: dict[str, Any] = {}
        for endpoint in endpoints:
            node = self._tree
            for word in endpoint.words:
                node = node.setdefault("{}" if word.startswith("{") else word, {})
            node.setdefault("", {})[endpoint.method] = endpoint

    def find(self, method: str, words: Sequence[str]) -> HttpEndpoint:
        """Return the endpoint.

        Raises:
            ProblemRaised: there is none at this path (404), or not by this method (405).
        """
        methods: dict[str, HttpEndpoint] = {}
        for found in self._nodes(self._tree, words):
            methods = found | methods
        if not methods:
            raise ProblemRaised(404, "request.no_route", "there is nothing at this path")
        wanted = "GET" if method == "HEAD" else method
        if wanted not in methods:
            allowed = ", ".join(sorted({*methods, *(["HEAD"] if "GET" in methods else [])}))
            raise ProblemRaised(
                405, "request.method", f"this path takes {allowed}", (("allow", allowed),)
            )
        return methods[wanted]

    def _nodes(self, node: dict[str, Any], words: Sequence[str]) -> list[dict[str, HttpEndpoint]]:
        """Return the ends of all ways through the tree, those over fixed words first."""
        if not words:
            return [node[""]] if "" in node else []
        found = []
        for key in (words[0], "{}"):
            if key in node and (key != "{}" or words[0]):
                found += self._nodes(node[key], words[1:])
        return found


def list_endpoints() -> list[HttpEndpoint]:
    """Return an endpoint for every address of every operation."""
    return [
        HttpEndpoint(name, TABLE[name], method, path)
        for (method, path), name in list_routes().items()
    ]


__all__ = ["MOST_LISTED", "AnyOperation", "HttpEndpoint", "Router", "list_endpoints"]
