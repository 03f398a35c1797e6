"""Tokens and dollars of runs, agents and sessions, each answer counted once."""

from __future__ import annotations

from holdfast.operations.caller import Caller
from holdfast.operations.operation import operation
from holdfast.runtime import Runtime, UsageReport, format_metrics


@operation("usage:read")
async def get(runtime: Runtime, caller: Caller, /, session_id: str = "") -> UsageReport:
    """Return what a session used, or all sessions; read from the answers themselves.

    What a fork took over from its source counts there and not again. `cost_usd` of a
    total is `None` as soon as the price of one of its calls is not known.

    Raises:
        NotFound: there is no such session.
    """
    return await runtime.storage.usage(session_id)


@operation("metrics:read")
async def metrics(runtime: Runtime, caller: Caller, /) -> str:
    """Return the metrics of the records since their beginning, in the text form of Prometheus.

    Reads the whole journal; a server counts on from its start, at `/metrics`.

    Raises:
        MissingExtra: prometheus-client is not installed (extra `otel`).
    """
    return await format_metrics(runtime)
