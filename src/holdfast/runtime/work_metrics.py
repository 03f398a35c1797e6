"""Metrics of the work on one or more records, for Prometheus: made from the journal when asked.

Counts begin with the process that shows them. They are of the records, not of that process: all
that show the same records show the same growth, so a query takes the maximum over instances, not
the sum. What is of the process itself (memory, descriptors, turns under way) says so by its name.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import MissingExtra
from holdfast.journal import Condition, Event, Journal, RowQuery
from holdfast.messages import ToolPart
from holdfast.policy import ApprovalAnswered
from holdfast.providers import ModelFellBack, ModelRetried, ProviderRateLimited
from holdfast.sessions import RUNS, MessageCreated, MessagePartUpdated, RunFailure
from holdfast.tools import NestedCallEnded

if TYPE_CHECKING:
    from holdfast.runtime.runtime import Runtime

_PAGE: Final = 500
_MOST_ROWS: Final = 10_000
_MOST_VALUES: Final = 100
"""Of one label; further ones are counted as `other`."""
_MOST_RUNS: Final = 10_000
_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
_FAST: Final = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)
_ENDS: Final = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
}
_MODEL: Final = ("provider", "model")
# Name, what it says, labels; counters get `_total` by convention.
_COUNTERS: Final = {
    "runs": ("Runs that ended.", ("status",)),
    "runs_parked": ("Times that a run was parked.", ()),
    "runs_resumed": ("Times that a run went on, after a crash or after it was parked.", ()),
    "model_calls": ("Answers of models.", (*_MODEL, "stop_reason")),
    "model_tokens": ("Tokens.", (*_MODEL, "type")),
    "model_cost_usd": ("Cost of models in US dollars.", _MODEL),
    "model_retries": ("Requests to models that were sent again.", (*_MODEL, "code")),
    "model_fallbacks": ("Requests that another model answered.", _MODEL),
    "model_rate_limited": ("Requests that waited for a rate limit.", _MODEL),
    "tool_calls": ("Calls of tools that ended.", ("tool", "outcome")),
    "mcp_calls": ("Calls of tools of MCP servers.", ("endpoint", "outcome")),
    "errors": ("Runs that failed, by code.", ("code",)),
    "permission_denials": ("Calls that a rule or a person refused.", ()),
    "policy_violations": ("Calls against the operator's rules.", ()),
    "approvals_answered": ("Answers to requests for consent.", ("verdict",)),
    "egress_refused": ("Connections of confined programs that were refused.", ()),
}
_HISTOGRAMS: Final = {
    "run_duration_seconds": ("From the start of a run to its end.", ("status",), _BUCKETS),
    "run_queue_wait_seconds": ("From the queue to the start of a run.", (), _BUCKETS),
    "model_duration_seconds": (
        "From the step before to the answer of a model.",
        _MODEL,
        _BUCKETS,
    ),
    "tool_duration_seconds": ("How long calls of tools took.", ("tool",), _BUCKETS),
    "store_read_seconds": ("How long the store took for a read, tried when asked.", (), _FAST),
}
_GAUGES: Final = {
    "runs_waiting": (
        "Runs by what they wait for: the queue's depth, and parked ones.",
        ("status",),
    ),
    "approvals_waiting": ("Requests for consent that nobody has answered.", ()),
    "budget_used_ratio": ("How much of a budget is spent or held.", ("tenant", "limit")),
    "policy_refused": ("1 while newer policy files are refused.", ("tenant",)),
    "audit_failing": ("1 while the audit trail cannot be written or sent on.", ("tenant",)),
    "turns_active": ("Turns that this process executes, each under a lease.", ()),
}


class WorkMetrics:
    """The instruments in one registry, and how far each journal was read."""

    def __init__(self, registry: Any) -> None:  # noqa: ANN401 - of an optional package
        """Register the instruments.

        Raises:
            MissingExtra: prometheus-client is not installed.
        """
        try:
            import prometheus_client as prometheus  # noqa: PLC0415 - an optional extra
        except ImportError as error:
            raise MissingExtra(what="metrics", package="prometheus-client", extra="otel") from error
        self._made: dict[str, Any] = {}
        for name, (about, labels) in _COUNTERS.items():
            made = prometheus.Counter(f"holdfast_{name}", about, labels, registry=registry)
            self._made[name] = made
        for name, (about, labels, buckets) in _HISTOGRAMS.items():
            self._made[name] = prometheus.Histogram(
                f"holdfast_{name}", about, labels, buckets=buckets, registry=registry
            )
        for name, (about, labels) in _GAUGES.items():
            self._made[name] = prometheus.Gauge(
                f"holdfast_{name}", about, labels, registry=registry
            )
        self._positions: dict[Journal, int] = {}
        self._values: dict[str, set[str]] = {}
        self._queued: OrderedDict[str, float] = OrderedDict()
        self._started: OrderedDict[str, float] = OrderedDict()
        self._last: OrderedDict[str, float] = OrderedDict()

    async def begin(self, runtimes: Iterable[Runtime], *, is_whole: bool = False) -> None:
        """Count what happens in these from now on, or, with `is_whole`, from their beginning."""
        for runtime in runtimes:
            if runtime.journal not in self._positions:
                start = 0 if is_whole else await runtime.journal.read_last_seq()
                self._positions[runtime.journal] = start

    async def update(self, runtimes: Iterable[Runtime]) -> None:
        """Read what happened since, and look at what waits."""
        found = tuple(runtimes)
        await self.begin(found)
        # Of journals that were closed nothing comes any more.
        known = {runtime.journal for runtime in found}
        self._positions = {one: at for one, at in self._positions.items() if one in known}
        for runtime in found:
            await self._count(runtime.journal)
        await self._look(found)

    async def _count(self, journal: Journal) -> None:
        begun = time.perf_counter()
        while page := await journal.store.feed(after=self._positions[journal], limit=_PAGE):
            self._take("store_read_seconds").observe(time.perf_counter() - begun)
            self._positions[journal] = page[-1].seq
            for event in page:
                self._note(event)
            begun = time.perf_counter()
        self._take("store_read_seconds").observe(time.perf_counter() - begun)

    def _note(self, event: Event) -> None:
        """Count one event."""
        kind, run_id = event.kind, event.run_id
        if kind == "run.queued":
            _keep(self._queued, run_id, event.time)
        elif kind == "run.started":
            _keep(self._started, run_id, event.time)
            since = self._queued.pop(run_id, event.time)
            self._take("run_queue_wait_seconds").observe(max(event.time - since, 0.0))
        elif kind == "run.resumed":
            self._take("runs_resumed").inc()
        elif kind == "run.parked":
            self._take("runs_parked").inc()
        elif kind in _ENDS:
            self._end(event, _ENDS[kind])
        elif kind.startswith(("message.", "tool.nested_ended")):
            self._note_exchange(event)
        else:
            self._note_other(event)
        _keep(self._last, event.session_id, event.time)

    def _end(self, event: Event, status: str) -> None:
        self._take("runs", status).inc()
        begun = self._started.pop(event.run_id, None)
        if begun is not None:
            self._take("run_duration_seconds", status).observe(max(event.time - begun, 0.0))
        if status == "failed":
            code = str(event.expect(RunFailure).error.get("code", ""))
            self._take("errors", code or "unknown").inc()

    def _note_exchange(self, event: Event) -> None:
        if event.is_redacted:
            return
        fact = event.decode()
        if isinstance(fact, MessageCreated):
            message = fact.message
            if message.role != "assistant" or not message.provider:
                return
            model = (message.provider, message.model)
            self._take("model_calls", *model, message.stop_reason).inc()
            taken = event.time - self._last.get(event.session_id, event.time)
            self._take("model_duration_seconds", *model).observe(max(taken, 0.0))
            self._take("model_cost_usd", *model).inc(max(message.cost_usd, 0.0))
            if message.usage is not None:
                for name in ("input", "output", "reasoning", "cache_read", "cache_write"):
                    count = getattr(message.usage, name)
                    self._take("model_tokens", *model, name).inc(max(count, 0))
        elif isinstance(fact, MessagePartUpdated | NestedCallEnded):
            part = fact.part
            if isinstance(part, ToolPart) and part.state != "pending":
                self._take("tool_calls", part.tool, part.state).inc()
                taken = (part.time_end or 0.0) - (part.time_start or 0.0)
                self._take("tool_duration_seconds", part.tool).observe(max(taken, 0.0))

    def _note_other(self, event: Event) -> None:
        kind = event.kind
        if kind == "permission.denied":
            self._take("permission_denials").inc()
        elif kind == "policy.violation":
            self._take("policy_violations").inc()
        elif kind == "egress.refused":
            self._take("egress_refused").inc()
        elif kind == "approval.answered":
            verdict = event.expect(ApprovalAnswered).verdict
            self._take("approvals_answered", verdict).inc()
        elif kind == "mcp.invoke":
            from holdfast.mcp import McpInvoked  # noqa: PLC0415 - an optional room

            called = event.expect(McpInvoked)
            self._take("mcp_calls", called.endpoint, called.outcome).inc()
        elif kind == "model.retried":
            again = event.expect(ModelRetried)
            self._take("model_retries", again.provider, again.model, again.error_code).inc()
        elif kind == "model.fallback":
            other = event.expect(ModelFellBack)
            self._take("model_fallbacks", other.to_provider, other.to_model).inc()
        elif kind == "provider.rate_limited":
            limited = event.expect(ProviderRateLimited)
            self._take("model_rate_limited", limited.provider, limited.model).inc()

    async def _look(self, runtimes: tuple[Runtime, ...]) -> None:
        """Set the gauges."""
        waiting = dict.fromkeys(("queued", "running", "parked"), 0)
        asked = 0
        for runtime in runtimes:
            journal = runtime.journal
            for status in waiting:
                where = (Condition("status", "=", status),)
                query = RowQuery(projection=RUNS, where=where, limit=_MOST_ROWS)
                waiting[status] += len(await journal.rows(query))
            asked += len(await runtime.approvals.find(limit=_MOST_ROWS))
            tenant = runtime.tenant
            self._take("policy_refused", tenant).set(int(bool(runtime.policies.refused)))
            failing = "audit" in runtime.__dict__ and bool(runtime.audit.error)
            self._take("audit_failing", tenant).set(int(failing))
            await self._look_at_budget(runtime)
        for status, count in waiting.items():
            self._take("runs_waiting", status).set(count)
        self._take("approvals_waiting").set(asked)
        self._take("turns_active").set(sum(one.turns.executor.active for one in runtimes))

    async def _look_at_budget(self, runtime: Runtime) -> None:
        shared = runtime.budgets.tenant
        if shared is None:
            return
        used, most = (await shared.spending()).used, shared.budget
        ratios = {
            "calls": (used.calls, most.max_calls),
            "tokens": (used.tokens, most.max_tokens),
            "cost_usd": (used.cost_pico_usd / 1e12, most.max_cost_usd),
        }
        for limit, (spent, allowed) in ratios.items():
            if allowed:
                self._take("budget_used_ratio", runtime.tenant, limit).set(spent / allowed)

    def _take(self, name: str, *values: str) -> Any:  # noqa: ANN401 - of an optional package
        """Return an instrument, with labels of which there are not too many."""
        made = self._made[name]
        if not values:
            return made
        bounded = []
        for label, value in zip(made._labelnames, values, strict=True):
            known = self._values.setdefault(label, set())
            if value not in known and len(known) >= _MOST_VALUES:
                value = "other"
            known.add(value)
            bounded.append(value or "none")
        return made.labels(*bounded)


async def format_metrics(runtime: Runtime) -> str:
    """Return the metrics of the records since their beginning, as Prometheus reads them.

    Raises:
        MissingExtra: prometheus-client is not installed.
    """
    try:
        import prometheus_client as prometheus  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise MissingExtra(what="metrics", package="prometheus-client", extra="otel") from error
    registry = prometheus.CollectorRegistry()
    metrics = WorkMetrics(registry)
    await metrics.begin([runtime], is_whole=True)
    await metrics.update([runtime])
    return prometheus.generate_latest(registry).decode()


def _keep(times: OrderedDict[str, float], key: str, time: float) -> None:
    times[key] = time
    times.move_to_end(key)
    if len(times) > _MOST_RUNS:
        times.popitem(last=False)


__all__ = ["WorkMetrics", "format_metrics"]
