"""Chat completions: a conversation that comes whole with each request."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from holdfast.agents import AgentResult, ClientOptions
from holdfast.canonical import JsonObject
from holdfast.messages import Message, TokenUsage, sum_usage
from holdfast.operations import Caller, runs
from holdfast.providers import Finished, ReasoningDelta, Restarted, TextDelta
from holdfast.runtime import OpenQuestion, Runtime
from holdfast.server.face_runs import start_run
from holdfast.server.openai.asked import (
    AskedRun,
    answer_calls,
    describe_question,
    end_with_message,
    raise_unless_answered,
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

_FINISH = {"stop": "stop", "length": "length", "filtered": "content_filter"}
_ROLES = {"user": "user", "system": "system", "developer": "system", "assistant": "assistant"}


async def read_chat(
    runtime: Runtime, caller: Caller, body: dict[str, Any], *, run_id: str
) -> AskedRun:
    """Return what a request of the chat API asks for.

    Raises:
        BadRequest: it cannot be meant, or needs what is not here.
    """
    if body.get("n") not in (None, 1):
        raise BadRequest("there is one choice per request", "n", "unsupported_value")
    if body.get("logprobs"):
        raise BadRequest("an agent's answer has no logprobs", "logprobs", "unsupported_value")
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise BadRequest("messages are a list with at least one message", "messages")
    messages, instructions, trailing = read_messages(given)
    schema, name = read_format(body.get("response_format"), "response_format")
    stop = body.get("stop") or ()
    wishes = ClientOptions(
        instructions=instructions,
        max_output_tokens=read_limit(
            body.get("max_completion_tokens", body.get("max_tokens")), "max_completion_tokens"
        ),
        stop=(stop,) if isinstance(stop, str) else tuple(str(one) for one in stop),
        reasoning_effort=read_effort(body.get("reasoning_effort"), "reasoning_effort"),
        output_schema=schema,
        output_name=name,
    )
    client = make_client(body, wishes=wishes)
    agent = body.get("model")
    if not isinstance(agent, str) or not agent:
        raise BadRequest("the model is the name of an agent", "model")
    if trailing:
        run_id, after = await answer_calls(runtime, caller, trailing, "messages")
        return AskedRun(agent=agent, run_id=run_id, after=after, client=client)
    history, message = end_with_message(messages, "messages")
    return AskedRun(agent=agent, message=message, history=history, run_id=run_id, client=client)


def read_messages(given: list[Any]) -> tuple[list[Message], str, dict[str, str]]:
    """Return the conversation, what stands before it as instructions, and results at its end."""
    messages: list[Message] = []
    instructions: list[str] = []
    trailing: dict[str, str] = {}
    for at, one in enumerate(given):
        where = f"messages[{at}]"
        if not isinstance(one, dict):
            raise BadRequest("a message is an object", where)
        role = one.get("role")
        if role in ("tool", "function"):
            call_id = str(one.get("tool_call_id") or one.get("name") or "")
            output = read_output(one.get("content"), f"{where}.content")
            trailing[call_id] = output
            close_call(messages, call_id, output, f"{where}.tool_call_id")
            continue
        trailing = {}
        if role not in _ROLES:
            raise BadRequest(f"there is no role {role!r:.40}", f"{where}.role")
        parts: list[Any] = list(read_content(one.get("content"), f"{where}.content"))
        for call in one.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, dict) else None
            if not isinstance(function, dict):
                raise BadRequest("a call is that of a function", f"{where}.tool_calls")
            call_where = f"{where}.tool_calls"
            parts.append(
                read_call(
                    call.get("id"), function.get("name"), function.get("arguments"), call_where
                )
            )
        is_last = at == len(given) - 1
        if role in ("system", "developer") and not messages and not is_last:
            instructions += [part.text for part in parts]
        elif parts:
            kept = "user" if role in ("system", "developer") and is_last else _ROLES[role]
            messages.append(make_message(kept, parts))
    return messages, "\n\n".join(instructions), trailing


class Completion:
    """One answer of the chat API while it grows."""

    def __init__(self, asked: AskedRun, runtime: Runtime, caller: Caller) -> None:
        """Answer this."""
        self._asked = asked
        self._runtime, self._caller = runtime, caller
        self._usages: list[TokenUsage] = []
        self._created = int(runtime.journal.clock.now())
        self._id = f"chatcmpl-{asked.run_id}" + (f"-{asked.after}" if asked.after else "")
        self._finish = "stop"
        self.calls: list[JsonObject] = []

    async def answer(self) -> JsonObject:
        """Run the agent and return the whole completion; raises what made it fail."""
        text, thoughts = "", ""
        async for kind, piece in self._pieces():
            text += piece if kind == "content" else ""
            thoughts += piece if kind == "reasoning_content" else ""
        message: JsonObject = {"role": "assistant", "content": text or None, "refusal": None}
        if thoughts:
            message["reasoning_content"] = thoughts
        if self.calls:
            message["tool_calls"] = [
                {name: value for name, value in call.items() if name != "index"}
                for call in self.calls
            ]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        usage = count_usage(sum_usage(self._usages), is_chat=True)
        return {**self._frame("chat.completion"), "choices": [choice], "usage": usage}

    async def stream(self, *, has_usage: bool, request_id: str) -> AsyncGenerator[bytes, None]:
        """Run the agent and yield the completion in chunks; what goes wrong is the last one."""
        has_begun = False
        try:
            async for kind, piece in self._pieces():
                delta: JsonObject = {kind: piece}
                if not has_begun:
                    delta = {"role": "assistant", "content": "", **delta}
                    has_begun = True
                yield self._encode_chunk(delta)
            if self.calls:
                start: JsonObject = {} if has_begun else {"role": "assistant", "content": None}
                yield self._encode_chunk({**start, "tool_calls": self.calls})
            elif not has_begun:
                yield self._encode_chunk({"role": "assistant", "content": ""})
            yield self._encode_chunk({}, finish=self._finish)
            if has_usage:
                usage = count_usage(sum_usage(self._usages), is_chat=True)
                frame = {**self._frame("chat.completion.chunk"), "choices": [], "usage": usage}
                yield _encode(frame)
        except Exception as error:
            if not has_begun:
                raise  # nothing was sent: it is answered with a status of its own
            _, body, _ = make_failure(error, request_id)
            yield _encode(body)
        yield b"data: [DONE]\n\n"

    async def _pieces(self) -> AsyncGenerator[tuple[str, str], None]:
        """Yield pieces of text and of reasoning; afterwards the rest of the answer is known."""
        is_formed = self._asked.client.output_schema is not None
        has_text, needs_gap = False, False
        arguments = self._asked.to_arguments()
        result: AgentResult | None = None
        async for item in await start_run(self._runtime, self._caller, **arguments):
            if isinstance(item, TextDelta) and not is_formed:
                gap = "\n\n" if needs_gap and has_text else ""
                needs_gap, has_text = False, True
                yield "content", gap + item.text
            elif isinstance(item, ReasoningDelta):
                yield "reasoning_content", item.text
            elif isinstance(item, Restarted | Finished):
                needs_gap = True
                self._take_end(item)
            elif isinstance(item, AgentResult):
                result = item
        assert result is not None
        if not self._usages:
            self._usages.append(result.tokens_used)  # it had ended before
        raise_unless_answered(result)
        if result.status == "parked":
            async for piece in self._rest(result):
                yield piece
        elif not has_text and result.response:
            yield "content", result.response

    def _take_end(self, item: Restarted | Finished) -> None:
        if isinstance(item, Finished):
            if item.message.usage is not None:
                self._usages.append(item.message.usage)
            self._finish = _FINISH.get(item.message.stop_reason or "stop", "stop")

    async def _rest(self, result: AgentResult) -> AsyncGenerator[tuple[str, str], None]:
        """Say what a run waits for: calls of the client, or a question as text."""
        run_id = result.run_id
        waiting = await runs.waiting.perform(self._runtime, self._caller, run_id)
        mine = [one for one in waiting if one.reason == "client_call" and one.run_id == run_id]
        if mine:
            self.calls = [_write_call(at, one) for at, one in enumerate(mine)]
            self._finish = "tool_calls"
            return
        # Who asks in this way cannot answer otherwise than with its next message.
        await runs.cancel.perform(
            self._runtime, self._caller, run_id, reason="the client cannot be asked"
        )
        asked = [describe_question(one) for one in waiting if one.reason == "question"]
        if not asked:
            why = result.metadata.get("reason", "")
            raise BadRequest(f"the run waits and was cancelled: {why}", "", "run_waits", 409)
        yield "content", "\n\n".join(asked)

    def _frame(self, kind: str) -> JsonObject:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._asked.agent,
        }

    def _encode_chunk(self, delta: JsonObject, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _encode({**self._frame("chat.completion.chunk"), "choices": [choice]})


def _write_call(index: int, question: OpenQuestion) -> JsonObject:
    arguments = msgspec.json.encode(question.request.get("arguments", {})).decode()
    return {
        "index": index,
        "id": f"{question.run_id}.{question.call_id}",
        "type": "function",
        "function": {"name": question.tool, "arguments": arguments},
    }


def _encode(body: JsonObject) -> bytes:
    return b"data: %s\n\n" % msgspec.json.encode(body)


__all__ = ["Completion", "read_chat", "read_messages"]
