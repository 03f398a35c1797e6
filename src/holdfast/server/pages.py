"""Paths that are no operations: health, readiness, version, metrics, the description of the API."""

from __future__ import annotations

import asyncio
import functools
from typing import Final

import msgspec

from holdfast._version import __version__
from holdfast.canonical import JsonObject
from holdfast.errors import StorageError
from holdfast.operations import Caller
from holdfast.server.app import Handler, HttpApplication
from holdfast.server.http import ServerRequest, ServerResponse

_READY_WITHIN_S: Final = 5.0


def add_pages(app: HttpApplication) -> None:
    """Let an application answer at these paths too."""
    app.pages[("GET", "/health")] = _health
    app.pages[("GET", "/version")] = _version
    app.pages[("GET", "/ready")] = functools.partial(_ready, app)
    app.pages[("GET", "/openapi.json")] = _openapi
    app.pages[("GET", "/docs")] = _docs
    app.pages[("GET", "/")] = _show_root
    metrics: list[Handler] = []

    async def show_metrics(
        request: ServerRequest, caller: Caller | None, request_id: str
    ) -> ServerResponse:
        if not metrics:
            # Loaded with the first question: many servers are never asked.
            from holdfast.server.metrics import make_metrics  # noqa: PLC0415 - optional extra

            metrics.append(make_metrics(app))
        return await metrics[0](request, caller, request_id)

    app.pages[("GET", "/metrics")] = show_metrics
    if app.options.debug:
        from holdfast.server.debug import add_debug_pages  # noqa: PLC0415 - off unless enabled

        add_debug_pages(app)


async def _show_root(
    request: ServerRequest, caller: Caller | None, request_id: str
) -> ServerResponse:
    """People who open the bare address find the dashboard."""
    place = f"{request.scope.get('root_path', '')}/dashboard"
    return ServerResponse(303, headers=(("location", place),))


async def _health(request: ServerRequest, caller: Caller | None, request_id: str) -> ServerResponse:
    """The process lives."""
    return to_json({"status": "ok"})


async def _version(
    request: ServerRequest, caller: Caller | None, request_id: str
) -> ServerResponse:
    """Which version answers."""
    return to_json({"name": "holdfast", "version": __version__, "api": "v1"})


async def _ready(
    app: HttpApplication, request: ServerRequest, caller: Caller | None, request_id: str
) -> ServerResponse:
    """Whether requests are taken: not while draining, nor when the store does not answer."""
    if app.is_draining:
        return to_json({"status": "draining"}, 503)
    try:
        async with asyncio.timeout(_READY_WITHIN_S):
            opened = app.runtimes.list_open()
            for runtime in opened:
                await runtime.journal.read_last_seq()
    except (StorageError, TimeoutError):
        return to_json({"status": "the store does not answer"}, 503)
    if not opened:
        return to_json({"status": "starting"}, 503)
    return to_json({"status": "ready"})


async def _openapi(
    request: ServerRequest, caller: Caller | None, request_id: str
) -> ServerResponse:
    from holdfast.server.openapi import make_document  # noqa: PLC0415 - loads every type

    return ServerResponse(200, await asyncio.to_thread(make_document))


async def _docs(request: ServerRequest, caller: Caller | None, request_id: str) -> ServerResponse:
    from holdfast.server.reference_page import CONTENT_POLICY, make_page  # noqa: PLC0415

    headers = (("content-security-policy", CONTENT_POLICY),)
    page = await asyncio.to_thread(make_page)
    return ServerResponse(200, page, "text/html; charset=utf-8", headers)


def to_json(value: JsonObject, status: int = 200) -> ServerResponse:
    """Return an object as an answer."""
    return ServerResponse(status, msgspec.json.encode(value))


__all__ = ["add_pages", "to_json"]
