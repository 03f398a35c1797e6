"""Spans of a run, made from the journal: one trace across processes, parking and sub-agents.

Ids follow from the ids of runs, calls and events, so the same run makes the same trace whenever
and wherever it is exported, and a span's parent is always in the same trace.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final, TypeAlias

import msgspec

from holdfast.journal import SYSTEM_SESSION, Event, Journal, Payload
from holdfast.mcp import McpInvoked
from holdfast.memory import MemoryRecalled
from holdfast.messages import ToolPart
from holdfast.observability import genai, make_trace_id, parse_traceparent
from holdfast.orchestration.loop.events import (
    PlanCreated,
    PlanRevised,
    StepEnded,
    StepReviewed,
    StepStarted,
)
from holdfast.orchestration.workflows.events import (
    StepCompleted,
    WorkflowStepFailed,
    WorkflowStepStarted,
)
from holdfast.runs import ChildRun, list_runs_below
from holdfast.sessions import MessageCreated, MessagePartUpdated, Run, RunFailure, request_of
from holdfast.tools import NestedCallEnded

Value: TypeAlias = str | int | float | bool | tuple[str, ...]
_PAGE: Final = 500
_MOST_TEXT: Final = 8_000
_ENDS: Final = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
}


class TraceSpan(msgspec.Struct, kw_only=True):
    """One span; `key` and `parent` name spans of the same trace, the root has no parent."""

    key: str
    parent: str
    name: str
    start: float
    end: float
    attributes: dict[str, Value] = msgspec.field(default_factory=dict)
    moments: list[tuple[float, str]] = msgspec.field(default_factory=list)
    """What happened meanwhile: parked, resumed."""
    error: str = ""


class RunTrace(msgspec.Struct, frozen=True, kw_only=True):
    """All spans of a run and of the runs below it, parents first."""

    trace_id: bytes
    parent: bytes = b""
    """The span of the caller below which the root hangs, in a trace that is not ours."""
    spans: tuple[TraceSpan, ...]


async def build_trace(
    journal: Journal, run: Run, *, tenant: str, has_content: bool = False
) -> RunTrace:
    """Return the trace of a run as far as it came; `has_content` takes texts along.

    Texts are those of the journal, so without secrets, and cut after some pages.
    """
    below = await list_runs_below(journal, run.id)
    own = ChildRun(id=run.id, session_id=run.session_id, agent=run.agent, parent_session="")
    builders: dict[str, _RunSpans] = {}
    steps: dict[str, str] = {}
    for child in (own, *below):
        spans = _RunSpans(child, tenant=tenant, has_content=has_content)
        async for event in _read_run(journal, child):
            spans.note(event)
        steps.update(spans.steps)
        builders[child.id] = spans
    found = {key: one for spans in builders.values() for key, one in spans.finish().items()}
    for child in below:
        # A call started it, or a step did; else it hangs below the run itself.
        call = f"call:{child.parent_run}:{child.parent_call}"
        names = (call, steps.get(child.id, ""), f"run:{child.parent_run}")
        found[f"run:{child.id}"].parent = next(
            (one for one in names if one in found), f"run:{run.id}"
        )
    calls = {pair: key for spans in builders.values() for pair, key in spans.calls.items()}
    await _add_mcp_calls(journal, found, calls)
    for one in found.values():
        if one.parent and one.parent not in found:
            one.parent = f"run:{run.id}"
    above = parse_traceparent((await request_of(journal, run)).traceparent)
    return RunTrace(
        trace_id=above.trace_id if above is not None else make_trace_id(run.id),
        parent=above.span_id if above is not None else b"",
        spans=_sort(found, f"run:{run.id}"),
    )


async def _read_run(journal: Journal, child: ChildRun) -> AsyncIterator[Event]:
    after = 0
    while page := await journal.read(child.session_id, after=after, limit=_PAGE):
        after = page[-1].session_seq
        for event in page:
            if event.run_id == child.id:
                yield event


async def _add_mcp_calls(
    journal: Journal, found: dict[str, TraceSpan], calls: Mapping[tuple[str, str], str]
) -> None:
    """Add what MCP servers were asked, below the calls that asked."""
    after, kinds = 0, frozenset({McpInvoked.kind})
    while page := await journal.read(SYSTEM_SESSION, after=after, limit=_PAGE, kinds=kinds):
        after = page[-1].session_seq
        for event in page:
            called = event.expect(McpInvoked)
            parent = calls.get((called.session_id, called.call_id))
            if parent is None:
                continue
            found[f"mcp:{event.seq}"] = TraceSpan(
                key=f"mcp:{event.seq}",
                parent=parent,
                name=f"tools/call {called.tool}",
                start=event.time - called.duration_s,
                end=event.time,
                attributes={
                    "mcp.method.name": "tools/call",
                    "mcp.server.name": called.endpoint,
                    genai.TOOL: called.tool,
                    genai.SPAN_KIND: "TOOL",
                },
                error="" if called.outcome == "answered" else called.error or called.outcome,
            )


def _sort(found: Mapping[str, TraceSpan], root: str) -> tuple[TraceSpan, ...]:
    below: dict[str, list[TraceSpan]] = {}
    for one in found.values():
        if one.key != root:
            below.setdefault(one.parent, []).append(one)
    ordered, place = [found[root]], 0
    while place < len(ordered):
        ordered += sorted(below.get(ordered[place].key, ()), key=lambda one: one.start)
        place += 1
    return tuple(ordered)


class _RunSpans:
    """Makes the spans of one run from its events, in order."""

    def __init__(self, run: ChildRun, *, tenant: str, has_content: bool) -> None:
        self._run = run
        self._has_content = has_content
        self._key = f"run:{run.id}"
        self._last = 0.0
        self._found: dict[str, TraceSpan] = {}
        self.steps: dict[str, str] = {}
        """Which step started which run."""
        self.calls: dict[tuple[str, str], str] = {}
        """The spans of calls, by session and call: ids of calls are unique in a message only."""
        self._messages: dict[str, str] = {}
        self._root = TraceSpan(
            key=self._key,
            parent="",
            name=f"invoke_agent {run.agent}".strip(),
            start=0.0,
            end=0.0,
            attributes={
                genai.OPERATION: "invoke_agent",
                genai.SPAN_KIND: "AGENT",
                genai.AGENT: run.agent,
                genai.CONVERSATION: run.session_id,
                genai.RUN: run.id,
                genai.STATUS: "running",
                genai.TENANT: tenant,
            },
        )

    def note(self, event: Event) -> None:
        """Take one event."""
        root, kind = self._root, event.kind
        root.start = min(root.start or event.time, event.time)
        root.end = max(root.end, event.time)
        if kind in _ENDS:
            root.attributes[genai.STATUS] = _ENDS[kind]
            if kind == RunFailure.kind:
                root.error = str(event.expect(RunFailure).error.get("code", "failed"))
        elif kind in ("run.parked", "run.resumed", "run.started", "approval.requested"):
            root.moments.append((event.time, kind))
            if kind == "run.parked":
                root.attributes[genai.STATUS] = "parked"
            elif kind == "run.resumed":
                root.attributes[genai.STATUS] = "running"
        elif not event.is_redacted or kind.startswith(("workflow.", "step.", "plan.")):
            self._note_work(event)
        self._last = event.time

    def finish(self) -> dict[str, TraceSpan]:
        """Return the spans by key; what has not ended ends with the run."""
        for one in self._found.values():
            one.end = max(one.end or self._root.end, one.start)
        return {self._key: self._root, **self._found}

    def _note_work(self, event: Event) -> None:
        fact = event.decode()
        if isinstance(fact, MessageCreated):
            self._note_message(event, fact)
        elif isinstance(fact, MessagePartUpdated | NestedCallEnded):
            if isinstance(fact.part, ToolPart) and fact.part.state != "pending":
                self._note_call(event, fact.part, fact.message_id)
        elif event.kind.startswith("workflow."):
            self._note_workflow(event, fact)
        else:
            self._note_loop(event, fact)

    def _note_workflow(self, event: Event, fact: Payload) -> None:
        if isinstance(fact, WorkflowStepStarted):
            key = f"step:{self._run.id}:{fact.path}"
            self._open(key, f"workflow_step {fact.path}", event, {genai.STEP: fact.path})
            if fact.child_run:
                self.steps[fact.child_run] = key
        elif isinstance(fact, StepCompleted):
            self._close(f"step:{self._run.id}:{fact.path}", event)
        elif isinstance(fact, WorkflowStepFailed):
            code = str(fact.error.get("code", "failed"))
            self._close(f"step:{self._run.id}:{fact.path}", event, error=code)

    def _note_loop(self, event: Event, fact: Payload) -> None:
        if isinstance(fact, StepStarted):
            key = f"step:{self._run.id}:{fact.step_id}"
            self._open(key, f"execute {fact.step_id}", event, {genai.STEP: fact.step_id})
            self.steps[fact.run_id] = key
        elif isinstance(fact, StepEnded):
            error = "" if fact.status == "done" else fact.status
            self._close(f"step:{self._run.id}:{fact.step_id}", event, error=error)
        elif isinstance(fact, PlanCreated | PlanRevised):
            self._add_span(event, "plan", self._key, {genai.SPAN_KIND: "CHAIN"})
        elif isinstance(fact, StepReviewed):
            parent = f"step:{self._run.id}:{fact.step_id}"
            about: dict[str, Value] = {genai.STEP: fact.step_id, genai.SPAN_KIND: "EVALUATOR"}
            self._add_span(event, f"review {fact.step_id}", parent, about)
        elif isinstance(fact, MemoryRecalled):
            about = {genai.OPERATION: "retrieval", genai.SPAN_KIND: "RETRIEVER"}
            self._add_span(event, "retrieval memories", self._key, about)

    def _note_message(self, event: Event, fact: MessageCreated) -> None:
        message = fact.message
        if message.role != "assistant" or not message.provider:
            return
        usage = message.usage
        about: dict[str, Value] = {
            genai.OPERATION: "chat",
            genai.SPAN_KIND: "LLM",
            genai.PROVIDER: message.provider,
            genai.REQUEST_MODEL: message.model,
            genai.RESPONSE_MODEL: message.model,
            genai.RESPONSE_ID: message.id,
            genai.AGENT: message.agent,
            genai.CONVERSATION: event.session_id,
            genai.FINISH_REASONS: (message.stop_reason,),
            genai.COST: message.cost_usd,
        }
        if usage is not None:
            about[genai.INPUT_TOKENS] = usage.input + usage.cache_read + usage.cache_write
            about[genai.OUTPUT_TOKENS] = usage.output + usage.reasoning
            about[genai.CACHE_READ_TOKENS] = usage.cache_read
            about[genai.REASONING_TOKENS] = usage.reasoning
        if self._has_content and message.text:
            about[genai.OUTPUT_MESSAGES] = message.text[:_MOST_TEXT]
        self._add_span(event, f"chat {message.model}", self._key, about)

    def _note_call(self, event: Event, part: ToolPart, message_id: str) -> None:
        about: dict[str, Value] = {
            genai.OPERATION: "execute_tool",
            genai.SPAN_KIND: "TOOL",
            genai.TOOL: part.tool,
            genai.TOOL_CALL: part.call_id,
            genai.TOOL_VERSION: str(part.metadata.get("tool_version", "")),
            genai.SOURCE_HASH: str(part.metadata.get("source_hash", "")),
        }
        if self._has_content:
            text = msgspec.json.encode(part.input).decode()
            about[genai.TOOL_ARGUMENTS] = text[:_MOST_TEXT]
            about[genai.TOOL_RESULT] = (part.output or part.error)[:_MOST_TEXT]
        key = f"call:{self._run.id}:{part.call_id}"
        if self._messages.setdefault(key, message_id) != message_id:
            key = f"{key}:{message_id}"
        self.calls[event.session_id, part.call_id] = key
        self._found[key] = TraceSpan(
            key=key,
            parent=self._key,
            name=f"execute_tool {part.tool}",
            start=part.time_start or self._last or event.time,
            end=part.time_end or event.time,
            attributes=about,
            error="tool.failed" if part.state == "error" else "",
        )

    def _add_span(self, event: Event, name: str, parent: str, about: dict[str, Value]) -> None:
        key = f"event:{event.session_id}:{event.session_seq}"
        start = min(self._last or event.time, event.time)
        self._found[key] = TraceSpan(
            key=key, parent=parent, name=name, start=start, end=event.time, attributes=about
        )

    def _open(self, key: str, name: str, event: Event, about: dict[str, Value]) -> None:
        known = self._found.get(key)
        if known is not None:
            # Tried again: one span from its first attempt to its last.
            known.end, known.error = 0.0, ""
            known.moments.append((event.time, event.kind))
            return
        about = {**about, genai.SPAN_KIND: "CHAIN"}
        self._found[key] = TraceSpan(
            key=key, parent=self._key, name=name, start=event.time, end=0.0, attributes=about
        )

    def _close(self, key: str, event: Event, *, error: str = "") -> None:
        known = self._found.get(key)
        if known is not None:
            known.end, known.error = event.time, error


def add_foreign_names(attributes: Mapping[str, Value]) -> Iterable[tuple[str, Value]]:
    """Yield attributes, also under the names that Phoenix reads."""
    for name, value in attributes.items():
        yield name, value
        other = genai.PHOENIX.get(name)
        if other is not None:
            yield other, value


__all__ = [
    "RunTrace",
    "TraceSpan",
    "add_foreign_names",
    "build_trace",
]
