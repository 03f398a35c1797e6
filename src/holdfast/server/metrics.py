"""Metrics for Prometheus: requests of this process, and the work on its records."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.errors import MissingExtra
from holdfast.operations import Caller
from holdfast.runtime import WorkMetrics
from holdfast.server.app import Handler, HttpApplication
from holdfast.server.http import ServerRequest, ServerResponse

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


def make_metrics(app: HttpApplication) -> Handler:
    """Begin to count, and return what shows the counts to callers with `metrics:read`.

    Raises:
        MissingExtra: prometheus-client is not installed.
    """
    try:
        import prometheus_client as prometheus  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise MissingExtra(what="/metrics", package="prometheus-client", extra="server") from error
    registry = prometheus.CollectorRegistry()
    requests = prometheus.Counter(
        "holdfast_http_requests",
        "Requests that were answered.",
        ["operation", "status"],
        registry=registry,
    )
    seconds = prometheus.Histogram(
        "holdfast_http_request_seconds",
        "How long requests took; streams until they ended.",
        ["operation"],
        buckets=_BUCKETS,
        registry=registry,
    )

    def observe(name: str, status: int, taken: float) -> None:
        requests.labels(name or "none", str(status)).inc()
        seconds.labels(name or "none").observe(taken)

    app.observers.append(observe)
    _add_gauges(app, prometheus, registry)
    prometheus.ProcessCollector(registry=registry)
    work = WorkMetrics(registry)
    one_at_a_time = asyncio.Lock()

    async def show(
        request: ServerRequest, caller: Caller | None, request_id: str
    ) -> ServerResponse:
        known = await app.authenticate(request)
        app.check_operator(known, "metrics:read")
        async with one_at_a_time:
            await work.update(app.runtimes.list_open())
        text = prometheus.generate_latest(registry)
        return ServerResponse(200, text, "text/plain; version=0.0.4; charset=utf-8")

    return show


def _add_gauges(app: HttpApplication, prometheus: Any, registry: Any) -> None:
    gauges = {
        "holdfast_http_requests_active": ("Requests under way.", lambda: app.active),
        "holdfast_http_streams_open": ("Streams that are open.", lambda: len(app.streams)),
        "holdfast_feed_subscribers": (
            "Subscribers of the shared feed.",
            lambda: sum(one.feed.subscribers for one in app.runtimes.list_open()),
        ),
        "holdfast_draining": ("1 while the server drains.", lambda: int(app.is_draining)),
    }
    for name, (about, read) in gauges.items():
        prometheus.Gauge(name, about, registry=registry).set_function(read)


__all__ = ["make_metrics"]
