"""A call of an MCP client: an agent's run, or one of our tools, to its end.

What a run asks for goes to the person behind the client by elicitation: as a request of ours
where the connection has a way back (2025-11-25), else as the result `input_required`, with which
the client comes again (2026-07-28). A client that cannot be asked, or whose key may not answer,
has such calls refused.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final, TypeAlias

import mcp_types as types
import msgspec
from mcp.shared.exceptions import MCPError

from holdfast.agents import AgentResult
from holdfast.canonical import JsonObject
from holdfast.errors import UsageError
from holdfast.hooks import BusEvent
from holdfast.ids import make_id
from holdfast.messages import FilePart, ToolPart
from holdfast.operations import Caller, approvals, artifacts, runs, tools
from holdfast.providers import Finished
from holdfast.runs import StreamItem
from holdfast.runtime import OpenQuestion, Runtime
from holdfast.server.face_runs import start_run
from holdfast.server.mcp.logs import LogLevels
from holdfast.server.mcp.peer import McpPeer
from holdfast.server.mcp.requests import Context
from holdfast.server.mcp.seal import StateSeal
from holdfast.tools import attach_peer

CallResult: TypeAlias = types.CallToolResult | types.InputRequiredResult
_ANSWER: Final = "approvals:answer"
_MOST_ROUNDS: Final = 50
_SHOWN: Final = 2_000
_LONGEST_PROGRESS: Final = 300
_WHOLE: Final = 100.0


class ClientCall:
    """One call: who asks, and how the client can be asked."""

    def __init__(
        self,
        context: Context,
        params: types.CallToolRequestParams,
        runtime: Runtime,
        caller: Caller,
        levels: LogLevels,
    ) -> None:
        """Take the call of a client."""
        self._context = context
        self._params = params
        self._runtime, self._caller = runtime, caller
        self._progress = 0.0
        self.peer = McpPeer(context, levels)

    @property
    def can_ask(self) -> bool:
        """Whether a person can be asked through this client, and its key may answer."""
        return "form" in self.peer.can and self._caller.may(_ANSWER)

    async def run_agent(self, agent: str) -> CallResult:
        """Run an agent on the message of the call."""
        given = self._params.arguments or {}
        message, session_id = given.get("message"), given.get("session_id") or ""
        if not isinstance(message, str) or not message or not isinstance(session_id, str):
            raise UsageError(detail="An agent takes `message`, a text, and perhaps `session_id`.")
        run_id = await self._read_state() or make_id("run")
        asked: dict[str, Any] = {
            "agent_name": agent,
            "session_id": session_id,
            "user_message": message,
        }
        on_ask = "park" if self.can_ask else "deny"
        if self._params.request_state:
            await self._take_responses(run_id)
            asked["user_message"] = ""
        for _ in range(_MOST_ROUNDS):
            with attach_peer(run_id, self.peer):
                items = await start_run(
                    self._runtime, self._caller, **asked, run_id=run_id, on_ask=on_ask
                )
                result = await self._follow(items)
            asked["user_message"] = ""
            if result.status != "parked":
                return _make_agent_result(result)
            if self.peer.wanted:
                return await self._make_peer_wanted(run_id)
            waiting = await self._list_waiting(run_id)
            if self.peer.is_modern:
                return _make_input_required(await self._seal(run_id), waiting)
            await self._ask(waiting)
        raise UsageError(detail="The run asked too often; it waits where it is.")

    async def call_tool(self, name: str) -> CallResult:
        """Call one of our tools through the gate."""
        run_id = await self._read_state() or make_id("run")
        arguments: JsonObject = self._params.arguments or {}
        on_ask = "park" if self.can_ask else "deny"
        if self._params.request_state:
            await self._take_responses(run_id)
        for _ in range(_MOST_ROUNDS):
            with attach_peer(run_id, self.peer):
                async with self._hear_progress(run_id):
                    done = await tools.call.perform(
                        self._runtime, self._caller, name, arguments, run_id=run_id, on_ask=on_ask
                    )
            self.peer.check_abilities()
            if done.part.state != "pending":
                return await self._make_tool_result(done.part, done.run.session_id)
            if self.peer.wanted:
                return await self._make_peer_wanted(run_id)
            waiting = await self._list_waiting(run_id)
            if self.peer.is_modern:
                return _make_input_required(await self._seal(run_id), waiting)
            await self._ask(waiting)
        raise UsageError(detail="The call asked too often; it waits where it is.")

    # --- inside -----------------------------------------------------------------------

    async def _read_state(self) -> str:
        """Return the run that the client comes back to; empty if it comes for the first time.

        Raises:
            MCPError: the state is none that this client was given for this tool.
        """
        state = self._params.request_state
        if not state:
            return ""
        seal = await asyncio.to_thread(StateSeal, self._runtime)
        try:
            run_id, self.peer.answers = seal.open(state, self._caller, self._params.name)
        except UsageError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from error
        self.peer.take(self._params.input_responses)
        return run_id

    async def _seal(self, run_id: str) -> str:
        seal = await asyncio.to_thread(StateSeal, self._runtime)
        return seal.close(run_id, self._caller, self._params.name, self.peer.answers)

    async def _make_peer_wanted(self, run_id: str) -> types.InputRequiredResult:
        """Return what the tool wants the client to bring."""
        return types.InputRequiredResult(
            input_requests=self.peer.make_input_requests(), request_state=await self._seal(run_id)
        )

    @contextlib.asynccontextmanager
    async def _hear_progress(self, run_id: str) -> AsyncIterator[None]:
        """Tell the client what the tool says of how far it is, if the client wants to know."""
        if not (self._context.meta or {}).get("progress_token"):
            yield
            return
        bus = self._runtime.hooks.bus

        async def hear(event: BusEvent) -> None:
            text, fraction = str(event.data.get("text", "")), event.data.get("fraction")
            if isinstance(fraction, int | float):
                self._progress = max(self._progress, fraction * _WHOLE)
                await self._send_progress(text, _WHOLE)
            else:
                await self._report(text)

        subscription = await bus.subscribe("tool.progress", hear, run_id=run_id)
        try:
            yield
            await bus.settle()
        finally:
            await bus.unsubscribe(subscription)

    async def _follow(self, items: AsyncGenerator[StreamItem, None]) -> AgentResult:
        result: AgentResult | None = None
        async for item in items:
            if isinstance(item, AgentResult):
                result = item
            elif isinstance(item, ToolPart):
                await self._report(f"{item.tool}: {item.title or item.state}")
            elif isinstance(item, Finished) and item.message.text:
                await self._report(item.message.text)
        assert result is not None
        return result

    async def _report(self, text: str) -> None:
        """Tell the client how far the run is, if it wants to know."""
        self._progress += 1
        await self._send_progress(text)

    async def _send_progress(self, text: str, total: float | None = None) -> None:
        await self._context.session.report_progress(
            self._progress, total, message=text[:_LONGEST_PROGRESS]
        )

    async def _list_waiting(self, run_id: str) -> list[OpenQuestion]:
        """Return what a person has to say; a run that waits for anything else is refused."""
        found = await runs.waiting.perform(self._runtime, self._caller, run_id)
        asked = [one for one in found if one.reason in ("approval", "question")]
        if not asked or not self.can_ask:
            run = await runs.get.perform(self._runtime, self._caller, run_id)
            await runs.cancel.perform(
                self._runtime, self._caller, run_id, reason="the client cannot be asked"
            )
            raise UsageError(detail=f"The run {run_id} waits ({run.reason}) and was cancelled.")
        return asked

    async def _ask(self, waiting: list[OpenQuestion]) -> None:
        """Ask the person behind the client, one request after the other."""
        for one in waiting:
            message, schema = _make_form(one)
            said = await self._context.session.elicit_form(
                message, schema, related_request_id=self._context.request_id
            )
            await self._answer(one, said)

    async def _take_responses(self, run_id: str) -> None:
        """Give a run the answers with which the client came back.

        Raises:
            NotFound: the run is not there, or not the client's own.
        """
        found = await runs.waiting.perform(self._runtime, self._caller, run_id)
        given = self._params.input_responses or {}
        for one in found:
            said = given.get(one.id)
            if isinstance(said, types.ElicitResult) and one.reason in ("approval", "question"):
                await self._answer(one, said)
        if not found:
            # It waits for what the client brings with this very request.
            await runs.wake.perform(self._runtime, self._caller, run_id)

    async def _answer(self, question: OpenQuestion, said: types.ElicitResult) -> None:
        runtime, caller, by = self._runtime, self._caller, self._caller.subject
        content = said.content or {}
        is_accepted = said.action == "accept"
        if question.reason == "approval":
            reason = str(content.get("reason") or "")
            decided = is_accepted and content.get("decision") == "allow"
            answer = approvals.approve if decided else approvals.deny
            await answer.perform(runtime, caller, question.id, by=by, reason=reason)
            return
        lines = [f"{name}: {value}" for name, value in content.items()] if is_accepted else []
        text = "\n".join(lines) or "(no answer)"
        await approvals.answer.perform(
            runtime, caller, question.session_id, question.call_id, text, by=by
        )

    async def _make_tool_result(self, part: ToolPart, session_id: str) -> types.CallToolResult:
        content: list[types.ContentBlock] = []
        text = part.error if part.state == "error" else part.output
        if text:
            content.append(types.TextContent(type="text", text=text))
        for file in part.attachments:
            content.append(await self._load(file, session_id))
        structured = part.metadata.get("structured")
        return types.CallToolResult(
            content=content,
            structured_content=structured if isinstance(structured, dict) else None,
            is_error=part.state == "error",
        )

    async def _load(self, file: FilePart, session_id: str) -> types.ContentBlock:
        data = file.data
        if data is None and file.artifact_id:
            data = await artifacts.load.perform(
                self._runtime, self._caller, file.artifact_id, session_id=session_id
            )
        if data is None:
            name = file.name or file.url
            return types.ResourceLink(
                type="resource_link", name=name, uri=file.url, mime_type=file.media_type
            )
        encoded = base64.b64encode(data).decode()
        if file.media_type.startswith("image/"):
            return types.ImageContent(type="image", data=encoded, mime_type=file.media_type)
        if file.media_type.startswith("audio/"):
            return types.AudioContent(type="audio", data=encoded, mime_type=file.media_type)
        uri = f"holdfast://artifacts/{file.artifact_id}" if file.artifact_id else file.url
        return types.EmbeddedResource(
            type="resource", resource=to_contents(uri, file.media_type, data)
        )


def to_contents(
    uri: str, media_type: str, data: bytes
) -> types.TextResourceContents | types.BlobResourceContents:
    """Return the bytes of a file as a resource: as text where they are one."""
    if media_type.startswith("text/") or media_type == "application/json":
        try:
            text = data.decode()
            return types.TextResourceContents(uri=uri, mime_type=media_type, text=text)
        except UnicodeDecodeError:
            pass
    blob = base64.b64encode(data).decode()
    return types.BlobResourceContents(uri=uri, mime_type=media_type, blob=blob)


def _make_agent_result(result: AgentResult) -> types.CallToolResult:
    """Return the answer of an agent, with what is needed to go on with its session."""
    error = result.error
    text = result.response
    if result.status != "completed":
        text = str(error) if error is not None else f"the run was {result.status}"
    told: JsonObject = {
        "response": result.response,
        "status": result.status,
        "session_id": result.session_id,
        "run_id": result.run_id,
    }
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=told,
        is_error=result.status != "completed",
    )


def _make_input_required(state: str, waiting: list[OpenQuestion]) -> types.InputRequiredResult:
    requests: types.InputRequests = {}
    for one in waiting:
        message, schema = _make_form(one)
        form = types.ElicitRequestFormParams(message=message, requested_schema=schema)
        requests[one.id] = types.ElicitRequest(params=form)
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def _make_form(question: OpenQuestion) -> tuple[str, JsonObject]:
    """Return what a person reads, and the fields of the answer."""
    if question.reason == "approval":
        arguments = msgspec.json.encode(question.request.get("arguments", {})).decode()
        preview = str(question.request.get("preview") or "")
        message = f"{question.agent_path or 'You'} wants to call {question.tool}: {arguments}"
        decision = {"type": "string", "title": "Decision", "enum": ["allow", "deny"]}
        reason = {"type": "string", "title": "Reason", "description": "What the agent is told"}
        return (
            f"{message}\n{preview}"[:_SHOWN],
            {
                "type": "object",
                "properties": {"decision": decision, "reason": reason},
                "required": ["decision"],
            },
        )
    asked = question.request.get("questions")
    properties: JsonObject = {}
    lines = []
    for at, one in enumerate(asked if isinstance(asked, list) else ()):
        lines.append(str(one.get("question", "")))
        options = [str(option.get("label", "")) for option in one.get("options") or ()]
        field: JsonObject = {"type": "string", "title": lines[-1][:100]}
        properties[f"answer_{at + 1}"] = field | ({"enum": options} if options else {})
    required = list(properties)
    return (
        "\n".join(lines)[:_SHOWN],
        {"type": "object", "properties": properties, "required": required},
    )


__all__ = ["CallResult", "ClientCall", "to_contents"]
