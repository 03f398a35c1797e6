"""What a request of an AG-UI client asks for, as a run of ours that begins or goes on."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.agents import ClientOptions
from holdfast.canonical import JsonObject
from holdfast.errors import NotFound
from holdfast.operations import Caller, approvals, runs
from holdfast.runtime import OpenQuestion, Runtime
from holdfast.server.openai.asked import answer_calls, end_with_message
from holdfast.server.openai.chat import read_messages
from holdfast.server.openai.content import read_tools, split_call_id
from holdfast.server.openai.failures import BadRequest

_MOST_STATE: Final = 1_000
_PARTS: Final = {"image": "image_url", "audio": "file", "document": "file", "video": "file"}


class AskedThread(msgspec.Struct, frozen=True, kw_only=True):
    """A request: the client's own ids, and the arguments of `runs.start`."""

    thread_id: str
    run_id: str
    arguments: dict[str, Any]
    state: JsonObject
    """What the interface says the shared state is."""


async def read_input(
    runtime: Runtime, caller: Caller, body: dict[str, Any], agent: str, *, new_run: str
) -> AskedThread:
    """Return what a `RunAgentInput` asks for; answers that it brings are given to their run.

    Raises:
        BadRequest: it cannot be meant, or answers what nothing waits for.
    """
    thread_id, run_id = _read_text(body, "threadId"), _read_text(body, "runId")
    given = body.get("messages")
    if not isinstance(given, list):
        raise BadRequest("messages are a list", "messages")
    state = body.get("state")
    state = {} if state is None else state
    if not isinstance(state, dict) or len(state) > _MOST_STATE:
        raise BadRequest(f"the state is an object of at most {_MOST_STATE} values", "state")
    client = _read_client(body)
    arguments: dict[str, Any] = {"agent_name": agent, "session_id": "", "client": client}
    resumed = body.get("resume")
    if resumed:
        arguments |= {"run_id": await _resume(runtime, caller, resumed), "user_message": ""}
    else:
        messages, instructions, trailing = read_messages(
            [_to_chat(one, f"messages[{at}]") for at, one in enumerate(given) if _is_said(one)]
        )
        if trailing:
            continued, _ = await answer_calls(runtime, caller, trailing, "messages")
            arguments |= {"run_id": continued, "user_message": ""}
        else:
            history, message = end_with_message(messages, "messages")
            told = "\n\n".join(one for one in (instructions, client.instructions) if one)
            arguments |= {
                "run_id": new_run,
                "user_message": message,
                "history": history,
                "client": msgspec.structs.replace(client, instructions=told),
            }
    return AskedThread(thread_id=thread_id, run_id=run_id, arguments=arguments, state=state)


def _read_text(body: dict[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value or len(value) > 512:
        raise BadRequest(f"{name} is a text", name)
    return value


def _read_client(body: dict[str, Any]) -> ClientOptions:
    """Return the tools of the interface, and what it tells of its surroundings."""
    tools = body.get("tools") or []
    context = body.get("context") or []
    if not isinstance(tools, list) or not isinstance(context, list):
        raise BadRequest("tools and context are lists", "tools")
    named = [{"type": "function", "function": one} for one in tools]
    lines = []
    for at, one in enumerate(context):
        if not isinstance(one, dict):
            raise BadRequest("an entry of the context is an object", f"context[{at}]")
        lines.append(f"{one.get('description', '')}: {one.get('value', '')}")
    return ClientOptions(tools=read_tools(named), instructions="\n".join(lines))


def _is_said(message: object) -> bool:
    """Say whether a message is part of the conversation, not of what was shown beside it."""
    return not (isinstance(message, dict) and message.get("role") in ("reasoning", "activity"))


def _to_chat(message: Any, where: str) -> Any:  # noqa: ANN401 - JSON
    """Return a message in the form of chat completions, which AG-UI's is close to."""
    if not isinstance(message, dict):
        raise BadRequest("a message is an object", where)
    made = dict(message)
    if isinstance(made.get("content"), list):
        made["content"] = [_to_chat_part(part, where) for part in made["content"]]
    if "toolCalls" in made:
        calls = made.pop("toolCalls") or []
        for call in calls:
            id = call.get("id") if isinstance(call, dict) else None
            if not isinstance(id, str):
                raise BadRequest("a call has an id", f"{where}.toolCalls")
        made["tool_calls"] = calls
    if "toolCallId" in made:
        made["tool_call_id"] = made.pop("toolCallId")
    return made


def _to_chat_part(part: Any, where: str) -> Any:  # noqa: ANN401 - JSON
    kind = part.get("type") if isinstance(part, dict) else None
    if kind not in _PARTS:
        return part
    source = part.get("source")
    if not isinstance(source, dict) or source.get("type") not in ("data", "url"):
        raise BadRequest("the source of a part is data or url", f"{where}.content")
    value, media = str(source.get("value")), str(source.get("mimeType") or "")
    url = value if source["type"] == "url" else f"data:{media};base64,{value}"
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"file_data": url}}


async def _resume(runtime: Runtime, caller: Caller, given: Any) -> str:  # noqa: ANN401 - JSON
    """Give a run what a person has said to its interrupts; returns the run.

    Raises:
        BadRequest: an entry is none, or nothing waits for it.
    """
    entries: dict[str, tuple[str, JsonObject]] = {}
    named: set[str] = set()
    for at, one in enumerate(given if isinstance(given, list) else [None]):
        id = one.get("interruptId") if isinstance(one, dict) else None
        run_id, interrupt = split_call_id(id) if isinstance(id, str) else ("", "")
        status = one.get("status") if isinstance(one, dict) else None
        if not run_id or status not in ("resolved", "cancelled"):
            raise BadRequest("an entry names an interrupt of ours", f"resume[{at}]")
        payload = one.get("payload")
        entries[interrupt] = (status, payload if isinstance(payload, dict) else {"value": payload})
        named.add(run_id)
    if len(named) != 1:
        raise BadRequest("the entries are of one run", "resume")
    [run_id] = named
    try:
        waiting = await runs.waiting.perform(runtime, caller, run_id)
    except NotFound as error:
        raise BadRequest(f"no run of ours waits for this: {error}", "resume", "", 404) from error
    open_ones = {one.id: one for one in waiting}
    unknown = sorted(set(entries) - set(open_ones))
    if unknown:
        raise BadRequest(f"nothing waits for {unknown[0]:.80}", "resume", "interrupt_unknown", 409)
    for id, (status, payload) in entries.items():
        await _answer(runtime, caller, open_ones[id], status, payload)
    return run_id


async def _answer(
    runtime: Runtime, caller: Caller, one: OpenQuestion, status: str, payload: JsonObject
) -> None:
    by = caller.subject
    if one.reason == "approval":
        reason = str(payload.get("reason") or "")
        is_allowed = status == "resolved" and payload.get("approved") is True
        answer = approvals.approve if is_allowed else approvals.deny
        await answer.perform(runtime, caller, one.id, by=by, reason=reason)
        return
    said = payload.get("answer", payload.get("value"))
    text = str(said) if status == "resolved" and said is not None else "(no answer)"
    await approvals.answer.perform(runtime, caller, one.session_id, one.call_id, text, by=by)


__all__ = ["AskedThread", "read_input"]
