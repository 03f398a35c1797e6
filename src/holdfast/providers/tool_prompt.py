"""Say in words, or in a schema, what a weak model cannot be told by native tools."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast.canonical import JsonObject
from holdfast.ids import make_id
from holdfast.messages import Message, Part, TextPart, ToolPart, ToolSpec
from holdfast.providers.json_schema import list_types, resolve
from holdfast.providers.model import ModelRequest, ToolMode

_MAX_EXAMPLE_DEPTH = 3
_LONGEST = 500


def select_allowed_tools(request: ModelRequest) -> tuple[ToolSpec, ...]:
    """Return the tools that this request lets the model call."""
    if request.tool_choice == "none":
        return ()
    if request.tool_choice in {"auto", "required"}:
        return request.tools
    return tuple(tool for tool in request.tools if tool.name == request.tool_choice)


def must_call(request: ModelRequest) -> bool:
    """Say whether an answer without a tool call is refused."""
    return bool(request.tools) and request.tool_choice not in {"auto", "none"}


def rewrite(request: ModelRequest, mode: ToolMode) -> ModelRequest:
    """Return a request without native tools that means the same.

    Tools become instructions (and, for `json_schema`, the schema of the answer); earlier
    calls and results become text.
    """
    tools = select_allowed_tools(request)
    needs_call = must_call(request)
    system = request.system
    schema = request.output_schema
    if tools:
        told = format_instructions(tools, mode, needs_call=needs_call, output_schema=schema)
        system = f"{system}\n\n{told}" if system else told
    elif schema is not None and mode == "prompted":
        told = (
            f"Answer with one JSON object of this schema and nothing else:\n{_parse_json(schema)}"
        )
        system = f"{system}\n\n{told}" if system else told
    if mode == "prompted":
        output = None
    else:
        output = call_schema(tools, needs_call=needs_call, answer=schema) if tools else schema
    return msgspec.structs.replace(
        request,
        system=system,
        messages=tuple(as_text(message) for message in request.messages),
        tools=(),
        tool_choice="auto",
        output_schema=output,
        output_name="tool_call" if tools else request.output_name,
    )


def format_instructions(
    tools: Sequence[ToolSpec],
    mode: ToolMode,
    *,
    needs_call: bool,
    output_schema: JsonObject | None = None,
) -> str:
    """Tell a model which tools there are and how to write a call.

    Without a schema that enforces the form, an example shows it. With one there is none: small
    models copy its values. There each way to answer stands as it is to be written, and the
    answer in words last: a small model takes what it was told to do first.
    """
    if mode != "prompted":
        return _format_forms(tools, needs_call=needs_call, output_schema=output_schema)
    lines = ["You can call these tools:"]
    for tool in tools:
        lines.append(f"- {tool.name}: {' '.join(tool.description.split())[:_LONGEST]}")
        lines.append(f"  arguments schema: {_parse_json(tool.parameters)}")
    first = tools[0]
    example = {"tool": first.name, "arguments": make_example(first.parameters)}
    lines.append("To call a tool, answer with one JSON object and nothing else, like this:")
    lines.append(_parse_json(example))
    if needs_call:
        lines.append("You must call a tool now.")
    elif output_schema is not None:
        lines.append('When no tool is needed, answer with {"answer": …}, where … fits this schema:')
        lines.append(_parse_json(output_schema))
    else:
        lines.append('When no tool is needed, answer with {"answer": "your text"}.')
    lines.append("A result of a tool comes back to you as a message; use it in your answer.")
    return "\n".join(lines)


def _format_forms(
    tools: Sequence[ToolSpec], *, needs_call: bool, output_schema: JsonObject | None
) -> str:
    """Write each call, and the answer, in the form that the schema enforces."""
    lines = ["You must call one of these tools now:" if needs_call else "Call one of these tools:"]
    for tool in tools:
        told = " ".join(tool.description.split())[:_LONGEST]
        form = (
            f'{{"tool": {_parse_json(tool.name)}, "arguments": {_format_fields(tool.parameters)}}}'
        )
        lines.append(f"{form}  {told}")
    if needs_call:
        return "\n".join(lines)
    form = "string" if output_schema is None else _parse_json(output_schema)
    when = "when the tools have given all that is needed, or none fits"
    lines.append(f'{{"answer": {form}}}  {when}')
    return "\n".join(lines)


def _format_fields(schema: JsonObject) -> str:
    """Write plain arguments by name and type, and whatever says more as its schema."""
    fields = schema.get("properties")
    if not isinstance(fields, dict):
        return _parse_json(schema)
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    written = []
    for name, field in fields.items():
        kind = field.get("type") if isinstance(field, dict) else None
        is_plain = isinstance(kind, str) and set(field) <= {"type", "title"}
        form = str(kind) if is_plain else _parse_json(field)
        optional = "" if name in needed else " (optional)"
        written.append(f"{_parse_json(name)}: {form}{optional}")
    own = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    return f"{{{', '.join(written)}}}" + (f" where {_parse_json(own)}" if own else "")


def call_schema(
    tools: Sequence[ToolSpec], *, needs_call: bool, answer: JsonObject | None = None
) -> JsonObject:
    """Return a schema that only a call of one of the tools fits, or an answer if allowed."""
    definitions: JsonObject = {}
    branches: list[JsonObject] = []
    for number, tool in enumerate(tools):
        branches.append(
            {
                "type": "object",
                "properties": {
                    "tool": {"const": tool.name},
                    "arguments": _move(tool.parameters, f"t{number}_", definitions),
                },
                "required": ["tool", "arguments"],
                "additionalProperties": False,
            }
        )
    if not needs_call:
        wanted = {"type": "string"} if answer is None else _move(answer, "a_", definitions)
        branches.append(
            {
                "type": "object",
                "properties": {"answer": wanted},
                "required": ["answer"],
                "additionalProperties": False,
            }
        )
    schema = branches[0] if len(branches) == 1 else {"anyOf": branches}
    return {**schema, "$defs": definitions} if definitions else schema


def as_text(message: Message) -> Message:
    """Return a message whose tool calls and results are texts; others stay as they are."""
    if not message.tool_calls:
        return message
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, ToolPart):
            parts.append(part)
        elif message.role == "tool":
            told = f"failed: {part.error}" if part.state == "error" else f"gave: {part.output}"
            parts.append(TextPart(text=f"The tool {part.tool} {told}", is_synthetic=True))
        else:
            call = {"tool": part.tool, "arguments": part.input}
            parts.append(TextPart(text=_parse_json(call)))
    role = "user" if message.role == "tool" else message.role
    return msgspec.structs.replace(message, role=role, parts=tuple(parts))


def add_correction(request: ModelRequest, answer: Message, complaint: str) -> ModelRequest:
    """Add what the model wrote and what was wrong with it; calls go back as text."""
    told = answer.text or " ".join(
        _parse_json({"tool": call.tool, "arguments": call.input}) for call in answer.tool_calls
    )
    wrote = msgspec.structs.replace(
        answer, parts=(TextPart(text=told or "(nothing)"),), stop_reason="stop"
    )
    correction = Message(
        id=make_id("msg"),
        session_id=answer.session_id,
        role="user",
        parts=(TextPart(text=f"That cannot be used: {complaint}. Try again.", is_synthetic=True),),
    )
    return msgspec.structs.replace(request, messages=(*request.messages, wrote, correction))


def make_example(schema: object, root: object = None, depth: int = 0) -> object:
    """Return a value of the right shape, to show a model what arguments look like."""
    root = schema if root is None else root
    part = resolve(schema, root)
    if "const" in part:
        return part["const"]
    for key in ("enum", "examples"):
        if isinstance(part.get(key), list) and part[key]:
            return part[key][0]
    if "default" in part:
        return part["default"]
    for key in ("anyOf", "oneOf"):
        if isinstance(part.get(key), list) and part[key]:
            return make_example(part[key][0], root, depth + 1)
    kinds = list_types(part)
    if "object" in kinds or "properties" in part:
        named = part.get("properties")
        required = part.get("required") or []
        if not isinstance(named, dict) or depth > _MAX_EXAMPLE_DEPTH:
            return {}
        return {
            name: make_example(inner, root, depth + 1)
            for name, inner in named.items()
            if name in required
        }
    simple: dict[str, object] = {"array": [], "integer": 1, "number": 1.5, "boolean": True}
    return next((simple[kind] for kind in kinds if kind in simple), "text")


def _move(schema: JsonObject, prefix: str, definitions: JsonObject) -> JsonObject:
    """Return a schema whose own definitions have moved to a shared place."""
    for group in ("$defs", "definitions"):
        own = schema.get(group)
        if isinstance(own, dict):
            for name, part in own.items():
                definitions[prefix + name] = _rewrite(part, prefix)
    kept = {key: item for key, item in schema.items() if key not in {"$defs", "definitions"}}
    moved = _rewrite(kept, prefix)
    return moved if isinstance(moved, dict) else {}


def _rewrite(value: object, prefix: str) -> object:
    if isinstance(value, dict):
        done = {key: _rewrite(item, prefix) for key, item in value.items()}
        reference = value.get("$ref")
        if isinstance(reference, str):
            for start in ("#/$defs/", "#/definitions/"):
                if reference.startswith(start):
                    done["$ref"] = f"#/$defs/{prefix}{reference.removeprefix(start)}"
        return done
    if isinstance(value, list):
        return [_rewrite(item, prefix) for item in value]
    return value


def _parse_json(value: object) -> str:
    return msgspec.json.encode(value).decode()
