"""The events of a run, as AG-UI names them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.agents import AgentResult
from holdfast.canonical import JsonObject
from holdfast.ids import make_id
from holdfast.messages import Message, ToolPart
from holdfast.providers import Finished, ReasoningDelta, Restarted, TextDelta
from holdfast.runtime import OpenQuestion
from holdfast.server.openai.asked import describe_question

_MOST_RESULT: Final = 100_000
_SHOWN: Final = 2_000
_DECISION: Final[JsonObject] = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}
_ANSWER: Final[JsonObject] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
}


class RunEvents:
    """Makes the events of one run; an open message is ended before the next begins."""

    def __init__(self, run_id: str) -> None:
        """Make those of this run, by our id of it."""
        self._run_id = run_id
        self._text = ""
        """The id of the message whose text is under way."""
        self._thought = ""
        self._said = ""

    def hear(self, item: object) -> Iterator[JsonObject]:
        """Yield the events of a piece of the run."""
        if isinstance(item, TextDelta) and item.text:
            yield from self._add_text(item.text)
        elif isinstance(item, ReasoningDelta) and item.text:
            yield from self._add_thought(item.text)
        elif isinstance(item, Restarted):
            yield from self.close()
            self._said = ""
        elif isinstance(item, Finished):
            yield from self._finish(item.message)
        elif isinstance(item, ToolPart):
            text = item.output if item.state == "completed" else item.error
            yield {
                "type": "TOOL_CALL_RESULT",
                "messageId": make_id("msg"),
                "toolCallId": self.name_call(item.call_id),
                "content": text[:_MOST_RESULT],
                "role": "tool",
            }

    def close(self) -> Iterator[JsonObject]:
        """Yield the ends of what is under way."""
        if self._thought:
            yield {"type": "REASONING_MESSAGE_END", "messageId": self._thought}
            yield {"type": "REASONING_END", "messageId": self._thought}
            self._thought = ""
        if self._text:
            yield {"type": "TEXT_MESSAGE_END", "messageId": self._text}
            self._text = ""

    def name_call(self, call_id: str) -> str:
        """Return the id of a call for the client, by which it finds our run again."""
        return f"{self._run_id}.{call_id}"

    def _add_text(self, text: str) -> Iterator[JsonObject]:
        if self._thought:
            yield from self.close()
        if not self._text:
            self._text = make_id("msg")
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._text, "role": "assistant"}
        self._said += text
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._text, "delta": text}

    def _add_thought(self, text: str) -> Iterator[JsonObject]:
        if self._text:
            yield from self.close()
        if not self._thought:
            id = self._thought = make_id("msg")
            yield {"type": "REASONING_START", "messageId": id}
            yield {"type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning"}
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._thought, "delta": text}

    def _finish(self, message: Message) -> Iterator[JsonObject]:
        if message.text and not self._said:
            yield from self._add_text(message.text)  # it was not streamed
        parent = self._text
        self._said = ""
        yield from self.close()
        for call in message.tool_calls:
            id = self.name_call(call.call_id)
            start: JsonObject = {
                "type": "TOOL_CALL_START",
                "toolCallId": id,
                "toolCallName": call.tool,
            }
            yield start | ({"parentMessageId": parent} if parent else {})
            arguments = msgspec.json.encode(call.input).decode()
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": arguments}
            yield {"type": "TOOL_CALL_END", "toolCallId": id}


def make_interrupt(run_id: str, one: OpenQuestion) -> JsonObject:
    """Return what a person has to say, as an interrupt with the form of its answer."""
    made: JsonObject = {
        "id": f"{run_id}.{one.id}",
        "toolCallId": f"{run_id}.{one.call_id}",
    }
    if one.reason == "approval":
        arguments = msgspec.json.encode(one.request.get("arguments", {})).decode()
        preview = str(one.request.get("preview") or "")
        text = f"{one.agent_path or 'You'} wants to call {one.tool}: {arguments}\n{preview}"
        return made | {
            "reason": "tool_approval",
            "message": text.strip()[:_SHOWN],
            "responseSchema": _DECISION,
        }
    return made | {
        "reason": "input_required",
        "message": describe_question(one)[:_SHOWN],
        "responseSchema": _ANSWER,
    }


def make_patch(before: JsonObject, after: JsonObject) -> list[JsonObject]:
    """Return what makes one state of the other, as a JSON patch over its values."""
    patch: list[JsonObject] = []
    for name in sorted({*before, *after}):
        path = "/" + name.replace("~", "~0").replace("/", "~1")
        if name not in after:
            patch.append({"op": "remove", "path": path})
        elif name not in before:
            patch.append({"op": "add", "path": path, "value": after[name]})
        elif before[name] != after[name]:
            patch.append({"op": "replace", "path": path, "value": after[name]})
    return patch


def make_usage(result: AgentResult[Any]) -> list[JsonObject]:
    """Return what a run has used, by the protocol's names."""
    used = result.tokens_used
    return [
        {
            "model": result.model,
            "inputTokens": used.input + used.cache_read + used.cache_write,
            "outputTokens": used.output + used.reasoning,
        }
    ]


__all__ = ["RunEvents", "make_interrupt", "make_patch", "make_usage"]
