"""OpenAPI 3.1, made from the table of operations: every route, event and problem."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from typing import Any, Final

import msgspec

from holdfast._version import __version__
from holdfast.canonical import JsonObject
from holdfast.errors import list_errors
from holdfast.hooks import BusEvent
from holdfast.journal import Event, Payload, list_known_kinds
from holdfast.operations import ROUTES
from holdfast.orchestration.delegation import FamilyEvent
from holdfast.server.endpoints import MOST_LISTED, HttpEndpoint, is_object, list_endpoints
from holdfast.server.problems import ProblemDetails, list_statuses
from holdfast.server.streams import BusEventView, EventView, FamilyEventView

_REF: Final = "#/components/schemas/{name}"
_VIEWS: Final[dict[Any, Any]] = {
    Event: EventView,
    BusEvent: BusEventView,
    FamilyEvent: FamilyEventView,
}
_PROBLEMS: Final = (400, 401, 403, 404, 408, 409, 413, 415, 421, 422, 429, 500, 501, 502, 503, 507)
_ABOUT: Final = """\
Every operation of Holdfast over HTTP. Errors are problems by RFC 9457 with a stable `code` and a
`hint`. Streams are Server-Sent Events whose `id` is the journal's sequence; send `Last-Event-ID`
to go on, or `Accept: application/x-ndjson` for lines. Listings are `{"items": […]}`, single
values `{"value": …}`. A route that will go says so with the headers `Deprecation` and `Sunset`
for at least six months; within `/v1` fields are added, never removed or given another meaning.
"""


@functools.cache
def make_document() -> bytes:
    """Return the description as JSON, indented, the same bytes every time."""
    return msgspec.json.format(msgspec.json.encode(describe(), order="sorted"), indent=1) + b"\n"


def describe() -> JsonObject:
    """Return the description of the whole API."""
    endpoints = list_endpoints()
    kinds = _list_own_kinds()
    wanted: list[Any] = [ProblemDetails, *_VIEWS.values(), *kinds.values()]
    for one in endpoints:
        wanted += [one.sent_type] if one.has_body and not one.route.upload else []
        wanted += [field.type for field in one.fields.values()]
        wanted.append(_answer_type(one))
    schemas, components = msgspec.json.schema_components(
        wanted, schema_hook=_describe_foreign, ref_template=_REF
    )
    by_type = {_key(kind): schema for kind, schema in zip(wanted, schemas, strict=True)}
    paths: dict[str, Any] = {}
    primary = {(one.method, one.path) for one in ROUTES.values()}
    for one in endpoints:
        at = paths.setdefault(one.path, {})
        is_alias = (one.method, one.path) not in primary
        at[one.method.lower()] = _operation(one, by_type, is_alias=is_alias)
    for path, about in _PAGES.items():
        paths[path] = {"get": _page(path, about)}
    _describe_problems(components)
    events = {kind: by_type[_key(cls)] for kind, cls in sorted(kinds.items())}
    found = {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {"Problem": _problem_response()},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "x-events": events,
    }
    # Defaults that are tuples or structs become what they are in JSON.
    plain: JsonObject = _convert_tuples(msgspec.json.decode(msgspec.json.encode(found)))
    return plain


def _convert_tuples(schema: Any) -> Any:
    """Describe tuples of one type as lists of a length: not every tool knows `prefixItems`."""
    if isinstance(schema, list):
        return [_convert_tuples(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _convert_tuples(value) for name, value in schema.items()}
    items = found.get("prefixItems")
    if isinstance(items, list) and items and all(one == items[0] for one in items):
        del found["prefixItems"]
        found["items"] = items[0]
    return found


def _list_own_kinds() -> dict[str, type[Payload]]:
    """Return the kinds of events that Holdfast itself stores, not those of others or tests."""

    def is_ours(cls: type[Payload]) -> bool:
        room = cls.__module__.split(".")[:2]
        return room[0] == "holdfast" and room[-1] != "testing"

    return {kind: cls for kind, cls in list_known_kinds().items() if is_ours(cls)}


_PAGES: Final = {
    "/health": "Whether the process lives.",
    "/ready": "Whether requests are taken; 503 while draining, or when the store does not answer.",
    "/version": "Which version answers.",
}


def _page(path: str, about: str) -> JsonObject:
    schema = {"type": "object", "properties": {}}
    answer = {"description": about, "content": {"application/json": {"schema": schema}}}
    responses: JsonObject = {"200": answer}
    if path == "/ready":
        responses["503"] = answer
    return {
        "operationId": path.strip("/"),
        "summary": about,
        "tags": ["server"],
        "security": [],
        "responses": responses | _problem_responses((400, 405, 421)),
    }


def _operation(endpoint: HttpEndpoint, by_type: dict[Any, Any], *, is_alias: bool) -> JsonObject:
    about = inspect.getdoc(endpoint.operation.function) or ""
    summary, _, rest = about.partition("\n")
    name = endpoint.name
    found: JsonObject = {
        "operationId": f"{name}.{endpoint.path.strip('/').split('/')[0]}" if is_alias else name,
        "summary": summary,
        "tags": [name.partition(".")[0]],
        "x-scope": endpoint.operation.scope,
        "parameters": _parameters(endpoint, by_type),
        "responses": _responses(endpoint, by_type),
    }
    if rest.strip():
        found["description"] = rest.strip()
    if endpoint.route.deprecated_at:
        found["deprecated"] = True
    if is_alias:
        found["description"] = f"The same as `{name}`."
    if endpoint.route.upload:
        content = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
        found["requestBody"] = {"required": True, "content": content}
    elif endpoint.has_body:
        schema = by_type[_key(endpoint.sent_type)]
        is_needed = any(one.required for one in msgspec.structs.fields(endpoint.sent_type))
        content = {"application/json": {"schema": schema}}
        found["requestBody"] = {"required": is_needed, "content": content}
    return found


def _parameters(endpoint: HttpEndpoint, by_type: dict[Any, Any]) -> list[JsonObject]:
    found: list[JsonObject] = []
    for name in endpoint.parameters:
        schema = {"type": "string", "minLength": 1, "pattern": r"^[^/\\\x00-\x1f]+$"}
        found.append({"name": name, "in": "path", "required": True, "schema": schema})
    if not endpoint.has_body or endpoint.route.upload:
        inner = {one for one in endpoint.flat.values()}
        for name, field in endpoint.fields.items():
            if name in endpoint.parameters or name in inner or name == endpoint.route.upload:
                continue
            schema = by_type[_key(field.type)]
            one: JsonObject = {"name": name, "in": "query", "required": False}
            one["required"] = field.required and name not in endpoint.route.defaults
            if is_object(field.type):
                one["content"] = {"application/json": {"schema": schema}}
            else:
                one["schema"] = _without_null(schema)
                if name == "limit":
                    one["schema"] |= {"minimum": 1, "maximum": MOST_LISTED}
            found.append(one)
        for name, owner in endpoint.flat.items():
            kind = endpoint.flat_type(name, owner)
            schema = _plain_schema(kind)
            found.append({"name": name, "in": "query", "required": False, "schema": schema})
    if endpoint.operation.is_stream and not endpoint.route.media_type:
        schema = {"type": "array", "items": {"type": "string"}}
        kinds = {"name": "kinds", "in": "query", "schema": schema, "style": "form"}
        found.append({**kinds, "description": "Only events of these kinds; `tool.*` works."})
        number = {"type": "string", "pattern": "^[0-9]{1,18}$"}
        found.append({"name": "Last-Event-ID", "in": "header", "schema": number})
    elif endpoint.method == "POST":
        key = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
        found.append({"name": "Idempotency-Key", "in": "header", "schema": key})
    return found


def _responses(endpoint: HttpEndpoint, by_type: dict[Any, Any]) -> JsonObject:
    route, about = endpoint.route, "The answer."
    content: JsonObject
    if route.status == 204:
        return {"204": {"description": "Done."}} | _problem_responses(_PROBLEMS)
    schema = by_type[_key(_answer_type(endpoint))]
    if route.media_type:
        content = {route.media_type: {"schema": {}}}
    elif endpoint.operation.is_stream:
        about = "Events; see `x-events` for what each says."
        fields = {name: {"type": "string"} for name in ("id", "event", "data")}
        event = {"type": "object", "properties": fields}
        content = {
            "text/event-stream": {"schema": event, "x-item-schema": schema},
            "application/x-ndjson": {"schema": {}, "x-item-schema": schema},
        }
    else:
        content = {"application/json": {"schema": schema}}
    good = {str(route.status): {"description": about, "content": content}}
    return good | _problem_responses(_PROBLEMS)


def _problem_responses(statuses: typing.Iterable[int]) -> JsonObject:
    return {str(one): {"$ref": "#/components/responses/Problem"} for one in statuses}


def _problem_response() -> JsonObject:
    schema = {"$ref": _REF.format(name="ProblemDetails")}
    content = {"application/problem+json": {"schema": schema}}
    return {"description": "What went wrong, by RFC 9457.", "content": content}


def _describe_problems(components: dict[str, Any]) -> None:
    """Say which codes there are, what they mean, and with which status they come."""
    statuses, known = list_statuses(), list_errors()
    components["ProblemDetails"]["x-problems"] = {
        code: {"status": statuses[cls], "meaning": (inspect.getdoc(cls) or "").partition("\n")[0]}
        for code, cls in sorted(known.items())
        if cls.__module__.startswith("holdfast.")
    }


def _answer_type(endpoint: HttpEndpoint) -> Any:
    """Return the type of what is sent: of listings and values, the object around it."""
    response = endpoint.operation.response
    title = "".join(word.title() for word in re.split(r"[._]", endpoint.name))
    if endpoint.operation.is_stream or response in (bytes, None, type(None)):
        return _VIEWS.get(response, response) if response is not bytes else str
    if typing.get_origin(response) is list:
        [item] = typing.get_args(response)
        return _made(f"{title}Items", "items", list[_VIEWS.get(item, item)])  # type: ignore[misc]
    if is_single_value(response):
        return _made(f"{title}Value", "value", response)
    if endpoint.route.missing:
        kept = [one for one in typing.get_args(response) if one is not type(None)]
        return functools.reduce(lambda a, b: a | b, kept)
    return _VIEWS.get(response, response)


def is_single_value(response: Any) -> bool:
    """Say whether an answer is a single value, which is sent inside an object."""
    members: tuple[Any, ...] = (response,)
    if typing.get_origin(response) in (typing.Union, types.UnionType):
        members = typing.get_args(response)
    return all(
        typing.get_origin(one) in (tuple, typing.Literal)
        or one in (str, int, float, bool, type(None))
        for one in members
    )


@functools.cache
def _made(title: str, field: str, kind: Any) -> Any:
    return msgspec.defstruct(title, [(field, kind)])


def _plain_schema(kind: Any) -> Any:
    return _without_null(msgspec.json.schema(kind))


def _without_null(schema: Any) -> Any:
    """Leave `null` out of what a query can hold: there it is said by leaving the field out."""
    if not isinstance(schema, dict):
        return schema
    found = {k: v for k, v in schema.items() if not (k == "default" and v is None)}
    choices = found.get("anyOf")
    if isinstance(choices, list):
        kept = [one for one in choices if one != {"type": "null"}]
        if len(kept) == 1:
            return {**{k: v for k, v in found.items() if k != "anyOf"}, **kept[0]}
        return {**found, "anyOf": kept}
    if isinstance(found.get("enum"), list):
        found["enum"] = [one for one in found["enum"] if one is not None]
    return found


def _describe_foreign(kind: type) -> JsonObject:
    """Describe a type that is no data of ours: anything."""
    return {}


def _key(kind: Any) -> Any:
    try:
        hash(kind)
    except TypeError:
        return repr(kind)
    return kind


__all__ = ["describe", "is_single_value", "make_document"]
