"""The output of a response: what a stretch of a run said and did, as items.

The same code makes the items of a stream while they grow, and those of a response that is read
from the journal later: an item's id is its place in the response.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages import Message, ReasoningPart, TextPart, ToolPart
from holdfast.runtime import OpenQuestion

SERVER_LABEL: Final = "holdfast"


class ResponseItems:
    """The items of one response, and the events that tell how they came about."""

    def __init__(self, name: str, client_tools: frozenset[str]) -> None:
        """Make items for the response of this name (its id without `resp_`)."""
        self._name = name
        self._client_tools = client_tools
        self.items: list[JsonObject] = []
        self._growing: dict[str, int] = {}
        """The item that text or reasoning of the present message goes to."""

    # --- pieces -----------------------------------------------------------------------

    def add_text(self, text: str) -> Iterator[JsonObject]:
        """Let the text of the present message grow."""
        if "text" not in self._growing:
            yield from self._begin_text()
        at = self._growing["text"]
        part = self.items[at]["content"][0]
        part["text"] += text
        yield self._make_event("output_text.delta", at, content_index=0, delta=text, logprobs=[])

    def add_reasoning(self, text: str) -> Iterator[JsonObject]:
        """Let what the model thinks aloud grow."""
        if "reasoning" not in self._growing:
            item: JsonObject = {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": ""}],
                "status": "in_progress",
            }
            yield from self._begin("reasoning", "rs", item)
            yield self._make_event(
                "reasoning_summary_part.added",
                self._growing["reasoning"],
                summary_index=0,
                part={"type": "summary_text", "text": ""},
            )
        at = self._growing["reasoning"]
        self.items[at]["summary"][0]["text"] += text
        yield self._make_event("reasoning_summary_text.delta", at, summary_index=0, delta=text)

    def restart(self) -> Iterator[JsonObject]:
        """End what grew: the model begins its answer anew."""
        yield from self._end_growing(status="incomplete")

    def finish_message(self, message: Message) -> Iterator[JsonObject]:
        """Take a whole answer: what was not heard in pieces comes now, and all of it ends."""
        for part in message.parts:
            if isinstance(part, ReasoningPart) and "reasoning" not in self._growing and part.text:
                yield from self.add_reasoning(part.text)
            elif isinstance(part, TextPart) and "text" not in self._growing and part.text:
                yield from self.add_text(part.text)
        yield from self._end_growing()

    def add_call(self, call: ToolPart) -> Iterator[JsonObject]:
        """Take a call of the agent's own tools that has ended."""
        if call.tool in self._client_tools:
            return
        item: JsonObject = {
            "type": "mcp_call",
            "server_label": SERVER_LABEL,
            "name": call.tool,
            "arguments": msgspec.json.encode(call.input).decode(),
            "output": call.output or None,
            "error": call.error or None,
            "status": "failed" if call.state == "error" else "completed",
        }
        yield from self._add_whole("mcp", item)

    def add_client_call(self, question: OpenQuestion) -> Iterator[JsonObject]:
        """Take a call that the client is to execute."""
        arguments = msgspec.json.encode(question.request.get("arguments", {})).decode()
        item: JsonObject = {
            "type": "function_call",
            "call_id": f"{question.run_id}.{question.call_id}",
            "name": question.tool,
            "arguments": "",
            "status": "in_progress",
        }
        yield from self._begin("call", "fc", item)
        at = self._growing.pop("call")
        self.items[at] |= {"arguments": arguments, "status": "completed"}
        yield self._make_event("function_call_arguments.delta", at, delta=arguments)
        yield self._make_event("function_call_arguments.done", at, arguments=arguments)
        yield self._done(at)

    def add_approval(self, question: OpenQuestion) -> Iterator[JsonObject]:
        """Take a call that the client may consent to."""
        item: JsonObject = {
            "type": "mcp_approval_request",
            "id": question.id,
            "server_label": SERVER_LABEL,
            "name": question.tool,
            "arguments": msgspec.json.encode(question.request.get("arguments", {})).decode(),
        }
        yield from self._add_whole("mcpr", item)

    def finish(self) -> Iterator[JsonObject]:
        """End what still grows, where a run ended in the middle."""
        yield from self._end_growing(status="incomplete")

    # --- events -----------------------------------------------------------------------

    def _begin_text(self) -> Iterator[JsonObject]:
        item: JsonObject = {
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        yield from self._begin("text", "msg", item)
        at = self._growing["text"]
        part: JsonObject = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self.items[at]["content"] = [part]
        yield self._make_event("content_part.added", at, content_index=0, part=dict(part))

    def _begin(self, kind: str, prefix: str, item: JsonObject) -> Iterator[JsonObject]:
        at = len(self.items)
        item.setdefault("id", f"{prefix}_{self._name}_{at}")
        self.items.append(item)
        self._growing[kind] = at
        yield {
            "type": "response.output_item.added",
            "output_index": at,
            "item": _copy(item),
        }

    def _add_whole(self, prefix: str, item: JsonObject) -> Iterator[JsonObject]:
        yield from self._begin("whole", prefix, item)
        yield self._done(self._growing.pop("whole"))

    def _end_growing(self, status: str = "completed") -> Iterator[JsonObject]:
        growing, self._growing = sorted(self._growing.items(), key=lambda pair: pair[1]), {}
        for kind, at in growing:
            item = self.items[at]
            item["status"] = status
            if kind == "text":
                part = item["content"][0]
                text = part["text"]
                yield self._make_event(
                    "output_text.done", at, content_index=0, text=text, logprobs=[]
                )
                yield self._make_event("content_part.done", at, content_index=0, part=dict(part))
            elif kind == "reasoning":
                part = item["summary"][0]
                yield self._make_event(
                    "reasoning_summary_text.done", at, summary_index=0, text=part["text"]
                )
                yield self._make_event(
                    "reasoning_summary_part.done", at, summary_index=0, part=dict(part)
                )
            yield self._done(at)

    def _done(self, at: int) -> JsonObject:
        return {
            "type": "response.output_item.done",
            "output_index": at,
            "item": _copy(self.items[at]),
        }

    def _make_event(self, name: str, at: int, **more: object) -> JsonObject:
        return {
            "type": f"response.{name}",
            "item_id": self.items[at]["id"],
            "output_index": at,
            **more,
        }


def _copy(item: JsonObject) -> JsonObject:
    copied: JsonObject = msgspec.json.decode(msgspec.json.encode(item))
    return copied


__all__ = ["SERVER_LABEL", "ResponseItems"]
