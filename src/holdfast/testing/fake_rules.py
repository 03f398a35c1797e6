"""What the real APIs refuse: a request is checked as strictly as they do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.canonical import JsonObject
from holdfast.testing.fake_wires import Wire

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_CALL_ID = re.compile(r"[!-~]{1,64}")
_ANTHROPIC_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_FIELDS: dict[str, set[str]] = {
    "chat": set(
        "messages model audio frequency_penalty logit_bias logprobs max_completion_tokens"
        " max_tokens metadata modalities n parallel_tool_calls prediction presence_penalty"
        " prompt_cache_key reasoning_effort response_format seed service_tier stop store stream"
        " stream_options temperature tool_choice tools top_logprobs top_p user verbosity".split()
    ),
    "responses": set(
        "background context_management conversation include input instructions max_output_tokens"
        " max_tool_calls metadata model parallel_tool_calls previous_response_id prompt"
        " prompt_cache_key reasoning safety_identifier service_tier store stream stream_options"
        " temperature text tool_choice tools top_logprobs top_p truncation user".split()
    ),
    "anthropic": set(
        "max_tokens messages model cache_control container inference_geo metadata output_config"
        " service_tier speed stop_sequences stream system temperature thinking tool_choice tools"
        " top_k top_p".split()
    ),
}


class RefusedRequest(Exception):
    """The real API would answer with status 400 and this text."""


def check_request(wire: Wire, body: Any, headers: Mapping[str, str]) -> None:  # noqa: ANN401
    """Refuse what the real API refuses.

    Raises:
        Refused: with the reason, in the words of no tool in particular.
    """
    if not headers.get("Content-Type", "").startswith("application/json"):
        raise RefusedRequest("the content type must be application/json")
    _require(isinstance(body, dict), "the body must be a JSON object")
    unknown = set(body) - _FIELDS[wire]
    _require(not unknown, f"unknown fields: {sorted(unknown)}")
    _require(isinstance(body.get("model"), str) and body["model"] != "", "model is required")
    top = 1 if wire == "anthropic" else 2
    temperature = body.get("temperature")
    _require(temperature is None or 0 <= temperature <= top, f"temperature must be 0 to {top}")
    if body.get("tool_choice") is not None:
        _require(bool(body.get("tools")), "tool_choice is only allowed with tools")
    if wire == "chat":
        _check_chat(body)
    elif wire == "responses":
        _check_responses(body)
    else:
        _check_anthropic(body, headers)


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise RefusedRequest(reason)


def _check_tools(tools: list[JsonObject], schema_field: str, pattern: re.Pattern[str]) -> None:
    names = [tool.get("name", "") for tool in tools]
    for tool in tools:
        _require(bool(pattern.fullmatch(tool.get("name", ""))), f"bad tool name in {tool}")
        schema = tool.get(schema_field)
        _require(isinstance(schema, dict) and schema.get("type") == "object", "bad tool schema")
    _require(len(set(names)) == len(names), "tool names must be unique")


def _check_call(name: object, call_id: object, ids: re.Pattern[str] = _CALL_ID) -> None:
    """Earlier calls are held to the rules of names as well, whichever model made them up."""
    _require(isinstance(name, str) and bool(_NAME.fullmatch(name)), f"bad name of a call: {name!r}")
    _require(isinstance(call_id, str) and bool(ids.fullmatch(call_id)), f"bad call id {call_id!r}")


def _check_schema(schema: Any, *, strict: bool) -> None:  # noqa: ANN401
    if isinstance(schema, list):
        for item in schema:
            _check_schema(item, strict=strict)
    if not isinstance(schema, dict):
        return
    if schema.get("type") == "object":
        _require(schema.get("additionalProperties") is False, "additionalProperties must be false")
        required = set(schema.get("required", ()))
        if strict:
            _require(required == set(schema.get("properties", {})), "all fields must be required")
    for value in schema.values():
        _check_schema(value, strict=strict)


# --- chat completions ----------------------------------------------------------------


def _check_form(form: JsonObject) -> None:
    _require(bool(_NAME.fullmatch(form.get("name", ""))), "bad name of the output schema")
    _require(form["schema"].get("type") == "object", "the output schema must be that of an object")
    if form.get("strict"):
        _check_schema(form["schema"], strict=True)


def _check_chat(body: JsonObject) -> None:
    messages = body.get("messages")
    _require(isinstance(messages, list) and bool(messages), "messages must not be empty")
    _require(
        "stream_options" not in body or body.get("stream") is True, "stream_options needs stream"
    )
    for tool in body.get("tools", []):
        _require(tool.get("type") == "function", "a tool must be a function")
    _check_tools([t.get("function", {}) for t in body.get("tools", [])], "parameters", _NAME)
    form = body.get("response_format")
    if form is not None and form.get("type") == "json_schema":
        inner = form["json_schema"]
        _check_form(inner)
    waiting: set[str] = set()
    for message in messages or ():
        waiting = _check_chat_message(message, waiting)
    _require(not waiting, f"tool calls without results: {sorted(waiting)}")


def _check_chat_message(message: JsonObject, waiting: set[str]) -> set[str]:
    role, content = message.get("role"), message.get("content")
    _require(role in ("system", "developer", "user", "assistant", "tool"), f"bad role {role!r}")
    if role == "tool":
        call_id = message.get("tool_call_id")
        _require(call_id in waiting, f"tool result {call_id!r} answers no call before it")
        _require(isinstance(content, str | list), "a tool message needs content")
        return waiting - {str(call_id)}
    _require(not waiting, f"tool calls without results: {sorted(waiting)}")
    if role == "assistant":
        calls = message.get("tool_calls")
        _require(bool(content) or bool(calls), "an assistant message needs content or tool calls")
        _require(calls is None or bool(calls), "tool_calls must not be empty")
        for call in calls or ():
            function = call.get("function", {})
            _require(bool(call.get("id")) and call.get("type") == "function", "bad tool call")
            _require(isinstance(function.get("arguments"), str), "arguments must be text")
            _check_call(function.get("name"), call.get("id"))
        return {call["id"] for call in calls or ()}
    _require(bool(content), f"a {role} message needs content")
    allowed = {"text", "image_url", "input_audio", "file"} if role == "user" else {"text"}
    for part in content if isinstance(content, list) else ():
        _require(part.get("type") in allowed, f"bad content part {part.get('type')!r}")
    return set()


# --- responses -----------------------------------------------------------------------


def _check_responses(body: JsonObject) -> None:
    items = body.get("input")
    _require(isinstance(items, str | list) and bool(items), "input must not be empty")
    for tool in body.get("tools", []):
        _require(tool.get("type") == "function" and "strict" in tool, "bad tool")
    _check_tools(body.get("tools", []), "parameters", _NAME)
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") == "json_schema":
        _check_form(form)
    called: set[str] = set()
    answered: set[str] = set()
    is_stored = body.get("store") is not False
    _require(is_stored or not body.get("background"), "background needs store")
    for item in items if isinstance(items, list) else ():
        kind = item.get("type", "message")
        if kind == "function_call":
            _require(isinstance(item.get("arguments"), str), "arguments must be text")
            _check_call(item.get("name"), item.get("call_id"))
            called.add(item["call_id"])
        elif kind == "function_call_output":
            _require(item.get("call_id") in called, "no tool call found for this output")
            answered.add(item["call_id"])
        elif kind == "reasoning":
            _require(bool(item.get("id")) and "summary" in item, "bad reasoning item")
            _require(is_stored or bool(item.get("encrypted_content")), "the item was not stored")
        else:
            _check_input_message(item)
    _require(called == answered, f"no tool output found for {sorted(called - answered)}")


def _check_input_message(item: JsonObject) -> None:
    role, content = item.get("role"), item.get("content")
    _require(role in ("user", "system", "developer", "assistant"), f"bad role {role!r}")
    _require(bool(content), "a message needs content")
    kinds = {"input_text", "input_image", "input_file"}
    for part in content if isinstance(content, list) else ():
        allowed = {"output_text", "refusal"} if role == "assistant" else kinds
        _require(part.get("type") in allowed, f"bad content part {part.get('type')!r}")


# --- anthropic -----------------------------------------------------------------------


def _check_anthropic(body: JsonObject, headers: Mapping[str, str]) -> None:
    _require(bool(headers.get("anthropic-version")), "the header anthropic-version is required")
    limit = body.get("max_tokens")
    _require(isinstance(limit, int) and limit >= 1, "max_tokens is required")
    _check_tools(body.get("tools", []), "input_schema", _ANTHROPIC_NAME)
    form = (body.get("output_config") or {}).get("format")
    if form is not None:
        _require(form.get("type") == "json_schema", "bad output format")
        _check_schema(form.get("schema"), strict=False)
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        _require(1024 <= thinking.get("budget_tokens", 0) < (limit or 0), "bad thinking budget")
    messages = body.get("messages")
    _require(isinstance(messages, list) and bool(messages), "messages must not be empty")
    _require((messages or [{}])[0].get("role") == "user", "the first message must be the user's")
    waiting: set[str] = set()
    for message in messages or ():
        waiting = _check_turn(message, waiting)
    _require(not waiting, f"tool_use without tool_result: {sorted(waiting)}")


def _check_turn(message: JsonObject, waiting: set[str]) -> set[str]:
    role, content = message.get("role"), message.get("content")
    _require(role in ("user", "assistant", "system"), f"bad role {role!r}")
    _require(bool(content), "content must not be empty")
    blocks: list[JsonObject] = [{"type": "text", "text": content}]
    if isinstance(content, list):
        blocks = content
    results = [block for block in blocks if block.get("type") == "tool_result"]
    ids = {block.get("tool_use_id") for block in results}
    _require(ids == waiting, "each tool_use needs its tool_result in the next message")
    _require(blocks[: len(results)] == results, "tool_result blocks must come first")
    calls: set[str] = set()
    searched: set[str] = set()
    for block in blocks:
        kind = block.get("type")
        if kind == "text":
            _require(bool(block.get("text", "").strip()), "text must not be blank")
        elif kind == "tool_use":
            _require(role == "assistant" and isinstance(block.get("input"), dict), "bad tool_use")
            _check_call(block.get("name"), block.get("id"), _NAME)
            calls.add(block["id"])
        elif kind == "thinking":
            _require(role == "assistant" and bool(block.get("signature")), "bad thinking block")
        elif kind == "server_tool_use":
            _require(role == "assistant" and isinstance(block.get("input"), dict), "bad use")
            searched.add(block.get("id", ""))
        elif kind == "web_search_tool_result":
            _require(block.get("tool_use_id") in searched, "a result without its search")
            _require(bool(block["content"][0].get("encrypted_content")), "the result was changed")
        elif kind in ("image", "document"):
            _require((block.get("source") or {}).get("type") in ("base64", "url"), "bad source")
        else:
            _require(kind in ("tool_result", "redacted_thinking"), f"bad block {kind!r}")
    return calls
