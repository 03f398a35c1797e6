"""Find tool calls in what a weak model wrote as text.

Small models often write a call instead of making it: bare JSON, a fenced block,
`<tool_call>` tags, a Python dict, a Python call. Everything found is data: it is parsed,
never evaluated, and counts only when it names an offered tool.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.canonical import JsonObject
from holdfast.messages import ToolSpec
from holdfast.providers.json_schema import list_problems, list_types, resolve
from holdfast.providers.lazy_patterns import compile_on_use

MAX_TEXT = 200_000
_MAX_PYTHON = 20_000
_MAX_NESTING = 40
_MAX_CALLS = 32
_MAX_CANDIDATES = 64

_TAGGED = compile_on_use(
    r"<(?P<tag>tool_call|function_call|tool_use|tool)>(?P<body>.*?)(?:</(?P=tag)>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_FUNCTION_TAG = compile_on_use(
    r"<function=(?P<name>[\w.:-]{1,128})>(?P<body>.*?)(?:</function>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_FENCED = compile_on_use(
    r"```[\w \t-]{0,40}\n(?P<body>.*?)(?:```|\Z)",
    re.DOTALL,
)
_THOUGHT = compile_on_use(
    r"\A\s*<(?P<tag>think|thinking)>.*?</(?P=tag)>",
    re.DOTALL | re.IGNORECASE,
)
_CALL_BEGINS = compile_on_use(
    r"\s*(\{\s*([\"']|\Z)|\[\s*(\{|\Z)|```[\w \t-]*(\n\s*([{\[<]|\Z)|\Z)|<tool|<function)",
)
_NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action", "recipient_name")
_ARGUMENT_KEYS = (
    "arguments", "parameters", "args", "input", "tool_input", "params", "kwargs", "action_input",
    "tool_arguments",
)  # fmt: skip
_LIST_KEYS = ("tool_calls", "calls", "function_calls", "tools")


class RescuedCall(NamedTuple):
    """A call that was found; `problems` says how its arguments fail the tool's schema."""

    tool: str
    arguments: JsonObject
    problems: tuple[str, ...] = ()


class _Unreadable(Exception):
    """A text is no JSON and no Python literal."""


def rescue_calls(
    text: str, tools: Sequence[ToolSpec], *, only: str = "", whole: bool = False
) -> list[RescuedCall]:
    """Return the tool calls that a text contains, in order; empty if there are none.

    A call must name one of `tools`. With `only`, bare arguments of that tool count as
    well. With `whole`, the text must be calls and nothing else: a JSON example inside
    prose is then no call. Never raises, never evaluates, bounded in time and depth.
    """
    if not tools or len(text) > MAX_TEXT:
        return []
    offered = {tool.name: tool for tool in tools}
    text = drop_thoughts(text)
    for candidates in _iterate_stages(text, offered, whole=whole):
        found: list[RescuedCall] = []
        for value in candidates:
            found.extend(_list_calls(value, offered, only, depth=0))
            if len(found) >= _MAX_CALLS:
                break
        if found:
            return found[:_MAX_CALLS]
    return []


def looks_like_call(start: str) -> bool:
    """Say whether a text that begins so may turn out to be a tool call."""
    if _CALL_BEGINS.match(start):
        return True
    head = start.lstrip()
    marks = ("```", "<tool", "<function")
    return any(mark.startswith(head) for mark in marks)


def drop_thoughts(text: str) -> str:
    """Return a text without what the model thought aloud before it, in `<think>` tags."""
    return _THOUGHT.sub("", text, count=1)


def find_json(text: str) -> object:
    """Return the JSON that a text is, or the only one among its words; raises ValueError."""
    said = drop_thoughts(text)
    try:
        return parse_value(_strip_fence(said))
    except ValueError:
        found = list_embedded_values(said)
        if len(found) != 1:
            raise
        return found[0]


def _strip_fence(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith("```") and "\n" in stripped:
        return stripped.partition("\n")[2].removesuffix("```").strip()
    return stripped


def list_embedded_values(text: str) -> list[object]:
    """Return the JSON values among the words of a text: fenced ones, else bare objects."""
    if len(text) > MAX_TEXT:
        return []
    fenced = _read_all(match["body"] for match in _FENCED.finditer(text))
    return fenced or _read_all(_find_balanced(text))


def parse_value(text: str) -> Any:  # noqa: ANN401 - whatever a model wrote
    """Read JSON, or a Python literal in its place; raises `ValueError` for anything else."""
    try:
        return _parse(text)
    except _Unreadable as error:
        raise ValueError("neither JSON nor a Python literal") from error


def coerce(value: object, schema: object, root: object) -> object:
    """Turn text into the number or truth value that the schema wants, and descend."""
    part = resolve(schema, root)
    wanted = set(list_types(part))
    if isinstance(value, str) and wanted and "string" not in wanted:
        return _from_text(value, wanted)
    if isinstance(value, dict) and isinstance(part.get("properties"), dict):
        named = part["properties"]
        return {
            key: coerce(item, named[key], root) if key in named else item
            for key, item in value.items()
        }
    if isinstance(value, list) and "items" in part:
        return [coerce(item, part["items"], root) for item in value]
    return value


def _from_text(value: str, wanted: set[str]) -> object:
    text = value.strip()
    if "boolean" in wanted and text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if wanted & {"number", "integer"} and re.fullmatch(r"-?\d{1,15}", text):
        return int(text)
    if "number" in wanted and re.fullmatch(r"-?\d{1,15}\.\d{1,15}", text):
        return float(text)
    if "null" in wanted and text.lower() in {"null", "none", ""}:
        return None
    if wanted & {"object", "array"} and text[:1] in {"{", "["}:
        try:
            return _parse(text)
        except _Unreadable:
            return value
    return value


def _iterate_stages(
    text: str, offered: Mapping[str, ToolSpec], *, whole: bool
) -> Iterator[list[object]]:
    """Yield groups of candidates, the surest kind of call first."""
    named = [
        {"name": match["name"], "arguments": match["body"].strip() or "{}"}
        for match in _FUNCTION_TAG.finditer(text)
    ]
    yield [*named]
    yield _read_all(match["body"] for match in _TAGGED.finditer(text))
    fenced = [match["body"] for match in _FENCED.finditer(text)]
    if not whole or not _FENCED.sub("", text).strip():
        yield _read_all(fenced)
    yield _read_all([text])
    yield _read_lines(text)
    if not whole:
        yield _read_all(_find_balanced(text))
        yield _read_all(_iterate_python_calls(text, offered))


def _read_all(texts: Iterator[str] | Sequence[str]) -> list[object]:
    values: list[object] = []
    for number, text in enumerate(texts):
        if number >= _MAX_CANDIDATES:
            break
        try:
            values.append(_parse(text))
        except _Unreadable:
            lines = _read_lines(text)
            values.extend(lines)
    return values


def _read_lines(text: str) -> list[object]:
    """Several values, one per line; nothing unless every line is one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not 1 < len(lines) <= _MAX_CANDIDATES:
        return []
    try:
        return [_parse(line) for line in lines]
    except _Unreadable:
        return []


def _parse(text: str) -> Any:  # noqa: ANN401 - whatever a model wrote
    stripped = text.strip().rstrip(";")
    if not stripped or not _is_shallow(stripped):
        raise _Unreadable
    try:
        return msgspec.json.decode(stripped)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _parse_python(stripped)


def _is_shallow(text: str) -> bool:
    """Bound the nesting before a parser sees it; brackets inside texts count too."""
    depth = deepest = 0
    for char in text:
        if char in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "}])":
            depth -= 1
    return deepest <= _MAX_NESTING


def _parse_python(text: str) -> Any:  # noqa: ANN401 - whatever a model wrote
    if len(text) > _MAX_PYTHON:
        raise _Unreadable
    try:
        with warnings.catch_warnings():
            # A stray backslash in the model's text is no warning of ours.
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
        return _parse_literal(tree.body, 0)
    except (SyntaxError, ValueError, RecursionError, MemoryError, TypeError) as error:
        raise _Unreadable from error


_WORDS = {"true": True, "false": False, "null": None, "None": None, "True": True, "False": False}


def _parse_literal(node: ast.expr, depth: int) -> Any:  # noqa: ANN401 - whatever a model wrote
    """Turn a syntax tree into data; names, calls and operators are not evaluated."""
    if depth > _MAX_NESTING:
        raise _Unreadable
    if isinstance(node, ast.Constant):
        if _is_plain(node.value):
            return node.value
    elif isinstance(node, ast.Name) and node.id in _WORDS:
        return _WORDS[node.id]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _parse_literal(node.operand, depth + 1)
        if isinstance(inner, int | float) and not isinstance(inner, bool):
            return -inner if isinstance(node.op, ast.USub) else inner
    elif isinstance(node, ast.List | ast.Tuple):
        return [_parse_literal(item, depth + 1) for item in node.elts]
    elif isinstance(node, ast.Dict):
        if any(key is None for key in node.keys):
            raise _Unreadable
        keys = [_parse_literal(key, depth + 1) for key in node.keys if key is not None]
        values = [_parse_literal(item, depth + 1) for item in node.values]
        return {str(key): value for key, value in zip(keys, values, strict=True)}
    elif isinstance(node, ast.Call):
        return _parse_written_call(node, depth)
    raise _Unreadable


def _is_plain(value: object) -> bool:
    """Say whether a constant can be JSON."""
    if isinstance(value, str):
        return not any("\ud800" <= char <= "\udfff" for char in value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < 2**63
    return value is None


def _parse_written_call(node: ast.Call, depth: int) -> JsonObject:
    """`name(key=value)` as data; positional arguments have no name and are refused."""
    if not isinstance(node.func, ast.Name) or node.args:
        raise _Unreadable
    arguments: JsonObject = {}
    for keyword in node.keywords:
        if keyword.arg is None:
            raise _Unreadable
        arguments[keyword.arg] = _parse_literal(keyword.value, depth + 1)
    return {"name": node.func.id, "arguments": arguments}


def _find_balanced(text: str) -> Iterator[str]:
    """Yield the outermost `{…}` pieces of a text; quotes are respected."""
    depth = start = 0
    quote = ""
    is_escaped = False
    for place, char in enumerate(text):
        if quote:
            if is_escaped:
                is_escaped = False
            elif char == "\\":
                is_escaped = True
            elif char == quote:
                quote = ""
        elif depth and char == '"':
            quote = char
        elif char == "{":
            start = place if depth == 0 else start
            depth += 1
        elif char == "}" and depth:
            depth -= 1
            if depth == 0:
                yield text[start : place + 1]


def _iterate_python_calls(text: str, offered: Mapping[str, ToolSpec]) -> Iterator[str]:
    """Yield lines that are a written call of an offered tool."""
    for line in text.splitlines():
        stripped = line.strip().strip("`")
        name = stripped.partition("(")[0]
        if name in offered and stripped.endswith(")"):
            yield stripped


def _list_calls(
    value: object, offered: Mapping[str, ToolSpec], only: str, depth: int
) -> list[RescuedCall]:
    if depth > 4:
        return []
    if isinstance(value, list):
        found = [call for item in value for call in _list_calls(item, offered, only, depth + 1)]
        return found[:_MAX_CALLS]
    if not isinstance(value, dict):
        return []
    for key in _LIST_KEYS:
        if isinstance(value.get(key), list):
            return _list_calls(value[key], offered, only, depth + 1)
    direct = _find_direct_call(value, offered)
    if direct is not None:
        return [direct]
    for key in ("function", "function_call", "tool_call", "call"):
        if isinstance(value.get(key), dict):
            return _list_calls(value[key], offered, only, depth + 1)
    if len(value) == 1:
        name, inner = next(iter(value.items()))
        if name in offered and isinstance(inner, dict):
            return [_check(offered[name], inner)]
    if only in offered:
        bare = _check(offered[only], value)
        return [bare] if not bare.problems else []
    return []


def _find_direct_call(value: dict[str, Any], offered: Mapping[str, ToolSpec]) -> RescuedCall | None:
    for key in _NAME_KEYS:
        name = value.get(key)
        if not isinstance(name, str):
            continue
        name = name.removeprefix("functions.").removeprefix("tools.")
        if name not in offered:
            continue
        given = next((value[k] for k in _ARGUMENT_KEYS if k in value and k != key), None)
        if given is None:
            # The arguments may stand beside the name.
            given = {k: v for k, v in value.items() if k not in {key, "id", "type"}}
        return _with_arguments(offered[name], given)
    return None


def _with_arguments(tool: ToolSpec, given: object) -> RescuedCall:
    if isinstance(given, str):
        try:
            given = _parse(given) if given.strip() else {}
        except _Unreadable:
            return RescuedCall(tool.name, {}, ("the arguments are no JSON object",))
    if not isinstance(given, dict):
        return RescuedCall(tool.name, {}, ("the arguments are no JSON object",))
    return _check(tool, given)


def _check(tool: ToolSpec, arguments: JsonObject) -> RescuedCall:
    coerced = coerce(arguments, tool.parameters, tool.parameters)
    final = coerced if isinstance(coerced, dict) else arguments
    return RescuedCall(tool.name, final, tuple(list_problems(final, tool.parameters)))
