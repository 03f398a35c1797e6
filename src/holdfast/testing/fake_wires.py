"""Scripted answers in the words of the three APIs, as their servers send them."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages import Citation, TokenUsage

Wire: TypeAlias = Literal["chat", "responses", "anthropic"]
Place: TypeAlias = Literal["head", "first", "middle", "end"]

_STOPS: dict[str, dict[str, str]] = {
    "chat": {
        "stop": "stop",
        "length": "length",
        "tool_calls": "tool_calls",
        "filtered": "content_filter",
    },
    "anthropic": {
        "stop": "end_turn",
        "length": "max_tokens",
        "tool_calls": "tool_use",
        "filtered": "refusal",
        "paused": "pause_turn",
    },
}
_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}
_CALLS = ("tool_use", "server_tool_use")
_encode = msgspec.json.encode


class HoldPoint:
    """A place where the server waits until the test lets it go on.

    `reached` is set when the server stands there; set `release` to let it pass.
    """

    def __init__(self) -> None:
        """Start closed."""
        self.reached = asyncio.Event()
        self.release = asyncio.Event()


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call that the fake model makes; `arguments` is text, JSON or not."""

    name: str
    arguments: str = "{}"
    id: str = "call_1"


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer of the fake model, the same for all three APIs."""

    text: str = ""
    reasoning: str = ""
    signature: str = ""
    """Anthropic: the signature of the reasoning. Responses: the id of its item."""
    encrypted: str = ""
    """Responses: the encrypted reasoning. Anthropic: a redacted thinking block."""
    calls: tuple[ScriptedCall, ...] = ()
    stop_reason: str = ""
    """stop, length, tool_calls or filtered; by default what fits the answer."""
    usage: TokenUsage | None = TokenUsage(input=10, output=5)
    """`None` for a server that does not say, as some local ones do not."""
    piece_chars: int = 8
    """How many characters of text or arguments one event carries."""
    in_one_piece: bool = False
    """Let the events of a stream arrive together, each still an HTTP chunk of its own (Linux)."""
    gate: HoldPoint | None = None
    gate_at: Place = "first"
    break_at: Place | None = None
    """Close the connection there, in the midst of the HTTP answer."""
    end_at: Place | None = None
    """End the HTTP answer there in good order, although the model's answer is not whole."""
    hang_up: bool = False
    """Close the connection after a streamed answer, unannounced, as llama.cpp does."""
    headers: dict[str, str] = {}
    refusal: str = ""
    """What is said instead of an answer; with Anthropic, why there is none."""
    refusal_category: str = ""
    """Anthropic: its word for what was declined; such a refusal may come without a reason."""
    citations: tuple[Citation, ...] = ()
    """Of the text."""
    searches: tuple[ScriptedCall, ...] = ()
    """Anthropic: calls of its own search, each with a result. With `stop_reason="paused"` the
    turn goes on when it is sent back."""
    container: str = ""
    """Anthropic: where its own tools work."""
    open_for: int = 0
    """Responses in the background: so often it is `queued` or `in_progress` when asked for."""

    @property
    def reason(self) -> str:
        """The stop reason in our words."""
        return self.stop_reason or ("tool_calls" if self.calls else "stop")


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A refusal with an HTTP status, in the words of the API that was asked."""

    status: int
    message: str = "refused by the script"
    code: str = ""
    headers: dict[str, str] = {}


class RawAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes as they are: broken streams, HTML pages, garbage. An empty chunk waits."""

    chunks: tuple[bytes, ...]
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = {}
    gate: HoldPoint | None = None
    """Where an empty chunk stands the server waits for this gate."""


Scripted: TypeAlias = Reply | Failure | RawAnswer


def stream_events(
    wire: Wire, reply: Reply, model: str, *, in_background: bool = False
) -> list[bytes]:
    """Return the events of a streamed answer, end mark included."""
    if wire == "chat":
        return _chat_events(reply, model)
    if wire == "responses":
        return _list_responses_events(reply, model, in_background=in_background)
    return _list_anthropic_events(reply, model)


def make_open_body(reply: Reply, model: str, status: str) -> bytes:
    """Return a response that is made in the background, as it stands before it is whole."""
    opened = _make_response(reply, model, is_open=True)
    return _encode({**opened, "status": status, "background": True})


def make_cancelled_body(model: str) -> bytes:
    """Return a response in the background that the client has cancelled."""
    opened = _make_response(Reply(), model, is_open=True)
    return _encode({**opened, "status": "cancelled", "background": True})


def read_whole_body(wire: Wire, reply: Reply, model: str) -> bytes:
    """Return the same answer as one body."""
    if wire == "chat":
        return _encode(_chat_body(reply, model))
    if wire == "responses":
        return _encode(_make_response(reply, model))
    return _encode(_make_anthropic_body(reply, model))


def build_error_body(wire: Wire, failure: Failure) -> bytes:
    """Return the body of a refusal."""
    kind = _KINDS.get(failure.status, "api_error")
    if wire == "anthropic":
        inner: JsonObject = {"type": kind, "message": failure.message}
        if failure.code:
            inner["details"] = {"error_code": failure.code}
        return _encode({"type": "error", "error": inner, "request_id": "req_body"})
    inner = {"message": failure.message, "type": kind, "param": None, "code": failure.code or None}
    return _encode({"error": inner})


def _split_pieces(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _find_named(data: JsonObject) -> bytes:
    return b"event: " + str(data["type"]).encode() + b"\ndata: " + _encode(data) + b"\n\n"


def _describe(citation: Citation, wire: Wire) -> JsonObject:
    """Return a citation in the words of an API."""
    said: JsonObject = {"title": citation.title, "url": citation.url, **citation.details}
    if citation.quote:
        said["cited_text"] = citation.quote
    if citation.start is not None:
        said |= {"start_index": citation.start, "end_index": citation.end}
    said = {name: value for name, value in said.items() if value != ""}
    inner = {citation.kind: said} if wire == "chat" else said
    return {"type": citation.kind, **inner}


# --- chat completions ----------------------------------------------------------------


def _chat_usage(usage: TokenUsage | None) -> JsonObject | None:
    if usage is None:
        return None
    prompt = usage.input + usage.cache_read + usage.cache_write
    completion = usage.output + usage.reasoning
    into = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": into,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _chat_events(reply: Reply, model: str) -> list[bytes]:
    deltas: list[JsonObject] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": p} for p in _split_pieces(reply.reasoning, reply.piece_chars)]
    deltas += [{"content": piece} for piece in _split_pieces(reply.text, reply.piece_chars)]
    deltas += [{"refusal": piece} for piece in _split_pieces(reply.refusal, reply.piece_chars)]
    deltas += [{"annotations": [_describe(each, "chat")]} for each in reply.citations]
    for index, call in enumerate(reply.calls):
        begin = {"index": index, "id": call.id, "type": "function"}
        deltas.append({"tool_calls": [{**begin, "function": {"name": call.name, "arguments": ""}}]})
        for piece in _split_pieces(call.arguments, reply.piece_chars):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": model}
    events = []
    for delta in deltas:
        choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": None}
        events.append({**head, "choices": [choice], "usage": None})
    last = {"index": 0, "delta": {}, "finish_reason": _STOPS["chat"][reply.reason]}
    events.append({**head, "choices": [last], "usage": None})
    events.append({**head, "choices": [], "usage": _chat_usage(reply.usage)})
    return [b"data: " + _encode(event) + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]


def _chat_body(reply: Reply, model: str) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": reply.text or None}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.refusal:
        message["refusal"] = reply.refusal
    if reply.citations:
        message["annotations"] = [_describe(each, "chat") for each in reply.citations]
    if reply.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in reply.calls
        ]
    reason = _STOPS["chat"][reply.reason]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": _chat_usage(reply.usage),
    }


# --- responses -----------------------------------------------------------------------


def _list_items(reply: Reply) -> list[JsonObject]:
    items: list[JsonObject] = []
    if reply.reasoning or reply.encrypted:
        summary = [{"type": "summary_text", "text": reply.reasoning}] if reply.reasoning else []
        item = {"type": "reasoning", "id": reply.signature or "rs_1", "summary": summary}
        items.append({**item, "encrypted_content": reply.encrypted or None})
    if reply.text or reply.refusal:
        notes = [_describe(each, "responses") for each in reply.citations]
        content: list[JsonObject] = []
        if reply.text:
            content.append({"type": "output_text", "text": reply.text, "annotations": notes})
        if reply.refusal:
            content.append({"type": "refusal", "refusal": reply.refusal})
        item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
        items.append({**item, "content": content})
    for number, call in enumerate(reply.calls):
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": call.id}
        items.append({**item, "name": call.name, "arguments": call.arguments})
    return items


def _make_response(reply: Reply, model: str, *, is_open: bool = False) -> JsonObject:
    status, details = "completed", None
    if reply.reason in ("length", "filtered"):
        reason = "max_output_tokens" if reply.reason == "length" else "content_filter"
        status, details = "incomplete", {"reason": reason}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "in_progress" if is_open else status,
        "model": model,
        "output": [] if is_open else _list_items(reply),
        "error": None,
        "incomplete_details": None if is_open else details,
        "usage": None if is_open else _make_responses_usage(reply.usage),
    }


def _make_responses_usage(usage: TokenUsage | None) -> JsonObject | None:
    if usage is None:
        return None
    total_in = usage.input + usage.cache_read + usage.cache_write
    total_out = usage.output + usage.reasoning
    into = {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write}
    return {
        "input_tokens": total_in,
        "input_tokens_details": into,
        "output_tokens": total_out,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": total_in + total_out,
    }


def _list_responses_events(reply: Reply, model: str, *, in_background: bool = False) -> list[bytes]:
    opened = _make_response(reply, model, is_open=True)
    if in_background:
        opened["background"] = True
        queued = {**opened, "status": "queued"}
    events: list[JsonObject] = [
        {"type": "response.created", "response": queued if in_background else opened},
        *([{"type": "response.queued", "response": queued}] if in_background else []),
        {"type": "response.in_progress", "response": opened},
    ]
    for index, item in enumerate(_list_items(reply)):
        place = {"output_index": index, "item_id": item["id"]}
        events.append({"type": "response.output_item.added", **place, "item": _begin(item)})
        kind, text = _describe_growing(item)
        for piece in _split_pieces(text, reply.piece_chars):
            events.append({"type": f"{kind}.delta", **place, "content_index": 0, "delta": piece})
        events.append({"type": "response.output_item.done", **place, "item": item})
    closing = _make_response(reply, model)
    events.append({"type": f"response.{closing['status']}", "response": closing})
    return [_find_named({**event, "sequence_number": n}) for n, event in enumerate(events)]


def _begin(item: JsonObject) -> JsonObject:
    empty: JsonObject = {"content": [], "summary": [], "arguments": "", "encrypted_content": None}
    return {key: empty.get(key, value) for key, value in item.items()}


def _describe_growing(item: JsonObject) -> tuple[str, str]:
    if item["type"] == "reasoning":
        text = "".join(part["text"] for part in item["summary"])
        return "response.reasoning_summary_text", text
    if item["type"] == "message":
        first = item["content"][0]
        if first["type"] == "refusal":
            return "response.refusal", first["refusal"]
        return "response.output_text", first["text"]
    return "response.function_call_arguments", item["arguments"]


# --- anthropic -----------------------------------------------------------------------


def _make_anthropic_usage(usage: TokenUsage | None) -> JsonObject | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens": usage.output + usage.reasoning,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


def _list_blocks(reply: Reply) -> list[JsonObject]:
    blocks: list[JsonObject] = []
    if reply.encrypted:
        blocks.append({"type": "redacted_thinking", "data": reply.encrypted})
    if reply.reasoning:
        thought = {"type": "thinking", "thinking": reply.reasoning}
        blocks.append({**thought, "signature": reply.signature or "sig_1"})
    if reply.text:
        cited = [_describe(each, "anthropic") for each in reply.citations]
        blocks.append(
            {"type": "text", "text": reply.text, **({"citations": cited} if cited else {})}
        )
    for call in reply.searches:
        use = {"type": "server_tool_use", "id": call.id, "name": call.name, "input": call}
        page = {"type": "web_search_result", "url": "https://example.com/", "title": "Example"}
        found = {"type": "web_search_tool_result", "tool_use_id": call.id}
        blocks += [use, {**found, "content": [{**page, "encrypted_content": "c2VjcmV0"}]}]
    for call in reply.calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": call})
    return blocks


def _make_anthropic_body(reply: Reply, model: str) -> JsonObject:
    blocks = _list_blocks(reply)
    for block in blocks:
        if block["type"] in _CALLS:
            block["input"] = msgspec.Raw(block["input"].arguments.encode())
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks,
        **_make_stop(reply),
        "usage": _make_anthropic_usage(reply.usage),
        **({"container": {"id": reply.container}} if reply.container else {}),
    }


def _list_anthropic_events(reply: Reply, model: str) -> list[bytes]:
    usage = _make_anthropic_usage(reply.usage)
    message = {
        **_make_anthropic_body(msgspec.structs.replace(reply, calls=(), searches=()), model),
        "content": [],
    }
    message.pop("stop_details", None)
    message.update({"stop_reason": None, "usage": usage and {**usage, "output_tokens": 1}})
    events: list[JsonObject] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    for index, block in enumerate(_list_blocks(reply)):
        begun, deltas = _block_pieces(block, reply.piece_chars)
        start = {"type": "content_block_start", "index": index, "content_block": begun}
        events.append(start)
        for delta in deltas:
            events.append({"type": "content_block_delta", "index": index, "delta": delta})
        events.append({"type": "content_block_stop", "index": index})
    events.append({"type": "message_delta", "delta": _make_stop(reply), "usage": usage})
    events.append({"type": "message_stop"})
    return [_find_named(event) for event in events]


def _make_stop(reply: Reply) -> JsonObject:
    reason = _STOPS["anthropic"][reply.reason]
    if not (reply.refusal or reply.refusal_category):
        return {"stop_reason": reason, "stop_sequence": None}
    details = {"category": reply.refusal_category or None, "explanation": reply.refusal or None}
    return {
        "stop_reason": "refusal",
        "stop_sequence": None,
        "stop_details": {"type": "refusal", **details},
    }


def _block_pieces(block: JsonObject, size: int) -> tuple[JsonObject, list[JsonObject]]:
    kind = block["type"]
    if kind == "text":
        pieces = _split_pieces(block["text"], size)
        deltas: list[JsonObject] = [{"type": "text_delta", "text": p} for p in pieces]
        cited = block.get("citations", [])
        deltas += [{"type": "citations_delta", "citation": each} for each in cited]
        return {**block, "text": "", **({"citations": []} if cited else {})}, deltas
    if kind == "thinking":
        thoughts = _split_pieces(block["thinking"], size)
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in thoughts]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
        return {**block, "thinking": "", "signature": ""}, deltas
    if kind in _CALLS:
        texts = _split_pieces(block["input"].arguments, size)
        begun = {**block, "input": {}}
        return begun, [{"type": "input_json_delta", "partial_json": piece} for piece in texts]
    return block, []
