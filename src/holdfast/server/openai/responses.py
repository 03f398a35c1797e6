"""The Responses API: `previous_response_id` is a session, a response a stretch of a run.

The id of a response is that of its run, and where the run had rested before, the number of the
event it goes on from. Nothing is kept besides the journal: a response is read from the events of
its stretch, by every process and after every restart.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

import msgspec

from holdfast.agents import AgentResult, ClientOptions, KeptRequest
from holdfast.canonical import JsonObject
from holdfast.errors import NotFound, RunFailed, make_error_from_dict
from holdfast.journal import Event
from holdfast.messages import Message, TokenUsage, ToolPart, sum_usage
from holdfast.operations import Caller, approvals, runs
from holdfast.policy import ApprovalRequested
from holdfast.providers import Finished, ReasoningDelta, Restarted, TextDelta
from holdfast.runtime import OpenQuestion, Runtime
from holdfast.server.face_runs import start_run
from holdfast.server.openai.asked import (
    AskedRun,
    answer_calls,
    describe_question,
    end_with_message,
    find_rest,
    list_client_calls,
)
from holdfast.server.openai.content import (
    close_call,
    count_usage,
    make_client,
    make_message,
    read_call,
    read_content,
    read_effort,
    read_format,
    read_limit,
    read_output,
)
from holdfast.server.openai.failures import BadRequest, make_failure
from holdfast.server.openai.output import ResponseItems
from holdfast.sessions import MessageCreated, MessagePartUpdated, Run
from holdfast.tools import ToolParked

_ENDS: Final = frozenset({"run.completed", "run.failed", "run.cancelled", "run.parked"})
_ROLES: Final = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
_SKIPPED: Final = frozenset(
    {"reasoning", "mcp_call", "mcp_list_tools", "mcp_approval_request", "compaction"}
)
ANSWER: Final = "approvals:answer"


class ResponseId(msgspec.Struct, frozen=True):
    """Which stretch of which run a response is."""

    run_id: str
    after: int = 0

    @property
    def name(self) -> str:
        """The id without what it begins with."""
        tail = f"-{self.after}" if self.after else ""
        return self.run_id.removeprefix("run_") + tail

    def __str__(self) -> str:
        """The id as clients see it."""
        return f"resp_{self.name}"

    @classmethod
    def parse(cls, given: object) -> ResponseId:
        """Read an id; raises BadRequest for one that cannot be ours."""
        name, _, after = str(given).removeprefix("resp_").partition("-")
        is_ours = isinstance(given, str) and given.startswith("resp_") and name.isalnum()
        if not is_ours or (after and not (after.isdecimal() and len(after) < 16)):
            raise BadRequest(f"there is no response {given!r:.80}", "response_id", "", 404)
        return cls(f"run_{name}", int(after or 0))


async def read_request(
    runtime: Runtime, caller: Caller, body: dict[str, Any], *, run_id: str
) -> AskedRun:
    """Return what a request of the Responses API asks for; answers and consents in it are given.

    Raises:
        BadRequest: it cannot be meant, or needs what is not here.
    """
    if body.get("conversation") is not None:
        raise BadRequest(
            "conversations are not kept here; use previous_response_id", "conversation"
        )
    agent = body.get("model")
    if not isinstance(agent, str) or not agent:
        raise BadRequest("the model is the name of an agent", "model")
    text = body.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    schema, name = read_format(form, "text.format")
    reasoning = body.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    wishes = ClientOptions(
        instructions=str(body.get("instructions") or ""),
        max_output_tokens=read_limit(body.get("max_output_tokens"), "max_output_tokens"),
        reasoning_effort=read_effort(effort, "reasoning.effort"),
        output_schema=schema,
        output_name=name,
        previous=str(body.get("previous_response_id") or ""),
        is_background=body.get("background") is True,
    )
    client = make_client(body, wishes=wishes)
    messages, outputs, consents = _read_input(body.get("input"))
    before = body.get("previous_response_id")
    if before:
        previous = ResponseId.parse(before)
        return await _go_on(
            runtime, caller, previous, AskedRun(agent=agent, run_id=run_id, client=client),
            messages=messages, outputs=outputs, consents=consents,
        )  # fmt: skip
    if consents:
        raise BadRequest("a consent needs previous_response_id", "previous_response_id")
    if outputs and not messages[-1:]:
        raise BadRequest("there is no call to these results", "input")
    if outputs:
        run_id, after = await answer_calls(runtime, caller, outputs, "input")
        return AskedRun(agent=agent, run_id=run_id, after=after, client=client)
    history, message = end_with_message(messages, "input")
    return AskedRun(agent=agent, message=message, history=history, run_id=run_id, client=client)


def _read_input(given: object) -> tuple[list[Message], dict[str, str], dict[str, JsonObject]]:
    """Return messages, results of calls at the end, and consents by the id of the request."""
    if isinstance(given, str):
        return [make_message("user", read_content(given, "input"))], {}, {}
    if not isinstance(given, list) or not given:
        raise BadRequest("the input is a text, or a list of items", "input")
    messages: list[Message] = []
    outputs: dict[str, str] = {}
    consents: dict[str, JsonObject] = {}
    for at, item in enumerate(given):
        where = f"input[{at}]"
        kind = item.get("type", "message") if isinstance(item, dict) else "no object"
        if kind == "function_call_output":
            call_id = str(item.get("call_id") or "")
            outputs[call_id] = read_output(item.get("output"), f"{where}.output")
            if any(call.call_id == call_id for one in messages for call in one.tool_calls):
                close_call(messages, call_id, outputs[call_id], where)
        elif kind == "mcp_approval_response":
            consents[str(item.get("approval_request_id") or "")] = item
        elif kind == "function_call":
            part = read_call(item.get("call_id"), item.get("name"), item.get("arguments"), where)
            messages.append(make_message("assistant", [part]))
        elif kind == "message":
            role = _ROLES.get(str(item.get("role")))
            if role is None:
                raise BadRequest("the role is user, assistant, system or developer", where)
            parts = read_content(item.get("content"), f"{where}.content")
            if parts:
                outputs = {}
                messages.append(make_message(role, parts))
        elif kind not in _SKIPPED:
            raise BadRequest(f"items of the type {kind!r:.40} are not supported", f"{where}.type")
    return messages, outputs, consents


async def _go_on(
    runtime: Runtime,
    caller: Caller,
    previous: ResponseId,
    asked: AskedRun,
    *,
    messages: list[Message],
    outputs: dict[str, str],
    consents: dict[str, JsonObject],
) -> AskedRun:
    """Return what continues an earlier response: its run where that waits, else its session."""
    try:
        run = await runs.get.perform(runtime, caller, previous.run_id)
    except NotFound:
        raise BadRequest(
            f"there is no response {previous}", "previous_response_id",
            "previous_response_not_found",
        ) from None  # fmt: skip
    if outputs and not messages:
        run_id, after = await answer_calls(runtime, caller, outputs, "input")
        return msgspec.structs.replace(asked, run_id=run_id, after=after)
    if consents and not messages:
        after = await _answer_approvals(runtime, caller, run, consents)
        return msgspec.structs.replace(asked, run_id=run.id, after=after)
    history, message = end_with_message(messages, "input")
    if run.status == "parked":
        waiting = await list_client_calls(runtime, caller, run.id)
        if waiting:
            first = f"{run.id}.{waiting[0].call_id}"
            raise BadRequest(f"No tool output found for function call {first}.", "input")
        await runs.cancel.perform(runtime, caller, run.id, reason="the client went on otherwise")
    elif not run.has_ended:
        raise BadRequest(f"the response {previous} is still under way", "previous_response_id")
    if history:
        raise BadRequest(
            "with previous_response_id the input is one message; what came before is known",
            "input",
        )
    newest = await runs.find.perform(runtime, caller, session_id=run.session_id, limit=1)
    session_id = run.session_id
    if newest.items and newest.items[0].id != run.id:
        # The conversation went on since: this is another branch of it.
        forked = await runs.fork.perform(runtime, caller, run.id, at=run.ended_at or None)
        session_id = forked.id
    return msgspec.structs.replace(asked, session_id=session_id, message=message)


async def _answer_approvals(
    runtime: Runtime, caller: Caller, run: Run, consents: dict[str, JsonObject]
) -> int:
    """Give a run the consents or refusals of its client; returns its last event before."""
    waiting = await runs.waiting.perform(runtime, caller, run.id)
    known = {one.id: one for one in waiting if one.reason == "approval"}
    after = await find_rest(runtime, caller, run.id, set())
    for approval_id, given in consents.items():
        if approval_id not in known:
            raise BadRequest(f"no approval {approval_id!r:.80} is waited for", "input")
        reason = str(given.get("reason") or "")
        answer = approvals.approve if given.get("approve") is True else approvals.deny
        await answer.perform(runtime, caller, approval_id, by=caller.subject, reason=reason)
    return after


class ResponseRun:
    """One response: while it is made, or as the journal has it."""

    def __init__(
        self, runtime: Runtime, caller: Caller, id: ResponseId, client: ClientOptions, agent: str
    ) -> None:
        """Answer with this stretch of a run."""
        self._runtime, self._caller = runtime, caller
        self.id = id
        self._client = client
        self._agent = agent
        self._items = ResponseItems(id.name, frozenset(tool.name for tool in client.tools))
        self._usages: list[TokenUsage] = []
        self._created = int(runtime.journal.clock.now())
        self._status = "in_progress"
        self._error: JsonObject | None = None
        self._incomplete: JsonObject | None = None
        self._waiting: list[OpenQuestion] = []

    @property
    def may_consent(self) -> bool:
        """Whether the client may answer what the run asks for."""
        return self._caller.may(ANSWER)

    async def begin(self, asked: AskedRun) -> None:
        """Start the run in the background; what it asks for waits for whoever may answer."""
        arguments = asked.to_arguments() | {"on_ask": "park"}
        await runs.start.perform(self._runtime, self._caller, **arguments)

    def to_body(self) -> JsonObject:
        """Return the response as it is now."""
        client = self._client
        form: JsonObject = {"type": "text"}
        if client.output_schema is not None:
            form = {
                "type": "json_schema",
                "name": client.output_name,
                "schema": client.output_schema,
                "strict": True,
            }
        is_over = self._status not in ("queued", "in_progress")
        return {
            "id": str(self.id),
            "object": "response",
            "created_at": self._created,
            "status": self._status,
            "background": client.is_background,
            "error": self._error,
            "incomplete_details": self._incomplete,
            "instructions": client.instructions or None,
            "max_output_tokens": client.max_output_tokens,
            "metadata": client.metadata,
            "model": self._agent,
            "output": self._items.items,
            "parallel_tool_calls": True,
            "previous_response_id": client.previous or None,
            "reasoning": {"effort": client.reasoning_effort or None, "summary": None},
            "store": True,
            "temperature": client.temperature,
            "text": {"format": form},
            "tool_choice": client.tool_choice,
            "tools": [
                {
                    "type": "function",
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters,
                    "strict": False,
                }
                for tool in client.tools
            ],
            "top_p": client.top_p,
            "truncation": "disabled",
            "usage": count_usage(sum_usage(self._usages), is_chat=False) if is_over else None,
            "user": None,
        }

    # --- live -------------------------------------------------------------------------

    async def execute(self, asked: AskedRun) -> AsyncGenerator[JsonObject, None]:
        """Run the agent, and yield the events of the response; the last one has it whole."""
        arguments = asked.to_arguments() | {"on_ask": "park" if self.may_consent else "deny"}
        items = await start_run(self._runtime, self._caller, **arguments)
        yield {"type": "response.created", "response": self.to_body()}
        yield {"type": "response.in_progress", "response": self.to_body()}
        result: AgentResult | None = None
        async for item in items:
            if isinstance(item, AgentResult):
                result = item
            for event in self._hear(item):
                yield event
        assert result is not None
        if not self._items.items and result.status == "completed":
            # It had ended before: there was nothing to hear.
            async for event in self._read_stored(waits=False):
                yield event
        async for event in self._rest(result):
            yield event

    def _hear(self, item: object) -> list[JsonObject]:
        items = self._items
        if isinstance(item, TextDelta) and item.text:
            return list(items.add_text(item.text))
        if isinstance(item, ReasoningDelta) and item.text:
            return list(items.add_reasoning(item.text))
        if isinstance(item, Restarted):
            return list(items.restart())
        if isinstance(item, ToolPart):
            return list(items.add_call(item))
        if isinstance(item, Finished):
            self._count(item.message)
            return list(items.finish_message(item.message))
        return []

    def _count(self, message: Message) -> None:
        if message.usage is not None:
            self._usages.append(message.usage)
        reasons = {"length": "max_output_tokens", "filtered": "content_filter"}
        why = reasons.get(message.stop_reason or "")
        self._incomplete = {"reason": why} if why else None

    async def _rest(self, result: AgentResult) -> AsyncGenerator[JsonObject, None]:
        """End the response as its run ended, or say what the run waits for."""
        for event in self._items.finish():
            yield event
        if result.status == "parked":
            waiting = await runs.waiting.perform(self._runtime, self._caller, result.run_id)
            async for event in self._wait(result, waiting):
                yield event
        elif result.status == "failed":
            self._fail(result.error)
        elif result.status == "cancelled":
            self._status = "cancelled"
        else:
            self._status = "incomplete" if self._incomplete else "completed"
        yield self._make_last_event()

    async def _wait(
        self, result: AgentResult, waiting: list[OpenQuestion]
    ) -> AsyncGenerator[JsonObject, None]:
        for event in self._show(waiting):
            yield event
        if self._status != "in_progress":
            return
        asked = [describe_question(one) for one in waiting if one.reason == "question"]
        await runs.cancel.perform(
            self._runtime, self._caller, result.run_id, reason="the client cannot be asked"
        )
        if asked:
            for event in [*self._items.add_text("\n\n".join(asked)), *self._items.finish()]:
                yield event
            self._status = "completed"
        else:
            why = str(result.metadata.get("reason", ""))
            self._status, self._error = "failed", {"code": "server_error", "message": why}

    def _show(self, waiting: list[OpenQuestion]) -> list[JsonObject]:
        """Return the events of calls that the client is to execute, or to consent to."""
        events: list[JsonObject] = []
        for one in waiting:
            if one.reason == "client_call" and one.run_id == self.id.run_id:
                events += self._items.add_client_call(one)
                self._status = "completed"
            elif one.reason == "approval" and self.may_consent:
                events += self._items.add_approval(one)
                self._status = "completed"
        return events

    def _fail(self, error: Exception | None) -> None:
        failed = error or RunFailed(
            agent=self._agent, run_id=self.id.run_id, status="failed", detail="", advice="",
            cause="",
        )  # fmt: skip
        status, body, _ = make_failure(failed, "")
        code = "rate_limit_exceeded" if status == 429 else "server_error"
        self._status = "failed"
        self._error = {"code": code, "message": str(body["error"]["message"])}

    # --- from the journal -------------------------------------------------------------

    async def read(self) -> JsonObject:
        """Return the response as the journal has it now."""
        async for _ in self._read_stored(waits=False):
            pass
        return self.to_body()

    async def follow(self) -> AsyncGenerator[JsonObject, None]:
        """Yield the events of a response from its beginning, as the journal gets them.

        The same events come in the same order for everybody who follows, however often.
        """
        yield {"type": "response.created", "response": self.to_body()}
        yield {"type": "response.in_progress", "response": self.to_body()}
        async for event in self._read_stored(waits=True):
            yield event
        yield self._make_last_event()

    def _make_last_event(self) -> JsonObject:
        kind = {"cancelled": "failed"}.get(self._status, self._status)
        return {"type": f"response.{kind}", "response": self.to_body()}

    async def _read_stored(self, *, waits: bool) -> AsyncGenerator[JsonObject, None]:
        """Yield the events of the stretch; with `waits` until it is over."""
        runtime, caller, run_id = self._runtime, self._caller, self.id.run_id
        run = await runs.get.perform(runtime, caller, run_id)
        self._created = int(run.time_queued)
        self._status = "queued" if run.status == "queued" else "in_progress"
        after = self.id.after
        while True:
            stored = runs.events.perform(runtime, caller, run_id, after=after, waits=waits)
            async for event in stored:
                after = event.session_seq
                for made in self._read_event(event):
                    yield made
                if self._status not in ("queued", "in_progress"):
                    return
            if not waits:
                return
            # It rests for others: the response goes on when they have answered.
            await runs.await_answer.perform(runtime, caller, run_id)

    def _read_event(self, event: Event) -> list[JsonObject]:
        match fact := event.decode():
            case MessageCreated(message=message) if message.role == "assistant":
                self._count(message)
                return list(self._items.finish_message(message))
            case MessagePartUpdated(part=ToolPart(state="completed" | "error") as part):
                return list(self._items.add_call(part))
            case ToolParked(reason="client_call"):
                self._waiting.append(_make_question(event, fact.call_id, fact.tool, fact.request))
            case ApprovalRequested():
                asked = {"arguments": fact.arguments}
                one = _make_question(event, fact.approval_id, fact.tool, asked, "approval")
                self._waiting.append(one)
        if event.kind in _ENDS:
            return self._end(event)
        return []

    def _end(self, event: Event) -> list[JsonObject]:
        """Take how a run rests; it is the end of the response unless others are waited for."""
        events = list(self._items.finish())
        fact = event.decode()
        if event.kind == "run.parked":
            waiting, self._waiting = self._waiting, []
            events += self._show(waiting)
        elif event.kind == "run.failed":
            self._fail(make_error_from_dict(getattr(fact, "error", {})))
        elif event.kind == "run.cancelled":
            self._status = "cancelled"
        else:
            self._status = "incomplete" if self._incomplete else "completed"
        return events


def _make_question(
    event: Event, id: str, tool: str, request: JsonObject, reason: str = "client_call"
) -> OpenQuestion:
    return OpenQuestion(
        id=id,
        session_id=event.session_id,
        run_id=event.run_id,
        call_id=id,
        tool=tool,
        reason=reason,
        request=request,
    )


async def open_response(runtime: Runtime, caller: Caller, given: str) -> ResponseRun:
    """Return a response by its id.

    Raises:
        BadRequest: there is none.
    """
    id = ResponseId.parse(given)
    try:
        run = await runs.get.perform(runtime, caller, id.run_id)
        kept: KeptRequest = await runs.request.perform(runtime, caller, id.run_id)
    except NotFound:
        raise BadRequest(f"there is no response {given!r:.80}", "response_id", "", 404) from None
    found = ResponseRun(runtime, caller, id, kept.client, run.agent)
    return found


def encode_event(event: JsonObject, number: int) -> bytes:
    """Return an event of a stream as it is sent."""
    data = msgspec.json.encode({**event, "sequence_number": number})
    return b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), data)


__all__ = ["ResponseId", "ResponseRun", "encode_event", "open_response", "read_request"]
