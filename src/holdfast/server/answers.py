"""Answers of operations as HTTP: always an object, so that a field can be added later.

A listing is `{"items": […]}`, a single value `{"value": …}`; bytes are sent as they are.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import NotFound
from holdfast.operations import encode_answer
from holdfast.server.endpoints import HttpEndpoint
from holdfast.server.http import ServerResponse
from holdfast.server.streams import view_item
from holdfast.sessions import Run


class Items(msgspec.Struct, frozen=True):
    """A listing that comes as a whole."""

    items: list[Any]


class Value(msgspec.Struct, frozen=True):
    """An answer that is a single value."""

    value: Any


def encode_response(endpoint: HttpEndpoint, answer: Any, values: dict[str, Any]) -> ServerResponse:
    """Return an answer of an operation as the answer of a request.

    Raises:
        NotFound: there is nothing of this name.
    """
    status = endpoint.route.status
    if endpoint.route.missing and answer is None:
        # The path names it, or else the first field of the query.
        name = next(iter(endpoint.parameters or endpoint.fields))
        raise NotFound(kind=endpoint.route.missing, value=values[name])
    if status == 204:
        return ServerResponse(204)
    if isinstance(answer, bytes):
        return ServerResponse(status, answer, endpoint.route.media_type)
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(answer, Run) and status in (201, 202):
        headers = (("location", f"/v1/runs/{answer.id}"),)
    return ServerResponse(status, encode_answer(wrap(answer)), headers=headers)


def wrap(answer: Any) -> Any:
    """Return an answer as the object that is sent; `null` where there is none."""
    if isinstance(answer, list):
        return Items([view_item(one) for one in answer])
    if isinstance(answer, tuple | str | int | float):
        return Value(answer)
    return view_item(answer)


__all__ = ["Items", "Value", "encode_response", "wrap"]
