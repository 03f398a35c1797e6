"""Find out what the offered tools can do, from their names and schemas, and fill them in.

A tool is used only when everything that it requires can be filled in; nothing is
guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from holdfast.canonical import JsonObject
from holdfast.messages import ToolSpec
from holdfast.providers.json_schema import fits, list_types, resolve
from holdfast.providers.lazy_patterns import compile_on_use
from holdfast.providers.offline.arithmetic import (
    SIGNS,
    Binary,
    Expression,
    Number,
    Operation,
    render,
)

Role: TypeAlias = Literal["list", "read", "grep", "glob"]

_NAMES: dict[Role, tuple[str, ...]] = {
    "list": ("list", "ls", "list_dir", "list_directory", "list_files", "directory_tree"),
    "read": ("read", "read_file", "view", "view_file", "cat", "open_file", "read_text_file"),
    "grep": ("grep", "search", "search_files", "grep_search", "ripgrep", "rg", "search_text"),
    "glob": ("glob", "find_files", "file_search", "glob_search"),
}
_FIELDS: dict[str, tuple[str, ...]] = {
    "file": ("file_path", "path", "file", "filename", "filepath", "target_file"),
    "directory": ("path", "directory", "dir", "dir_path", "directory_path", "folder", "root"),
    "pattern": ("pattern", "query", "regex", "search", "text", "glob_pattern"),
    "include": ("include", "glob", "file_pattern", "include_pattern"),
    "limit": ("limit", "max_lines", "lines"),
}
_OPERATION_WORDS: dict[Operation, tuple[str, ...]] = {
    "add": ("add", "addition", "plus", "sum", "+"),
    "subtract": ("subtract", "subtraction", "minus", "sub", "difference", "-"),
    "multiply": ("multiply", "multiplication", "times", "mul", "mult", "product", "*", "x", "×"),
    "divide": ("divide", "division", "div", "quotient", "/", "÷"),
    "power": ("power", "pow", "exponent", "exponentiate", "exponentiation", "**", "^"),
    "modulo": ("modulo", "mod", "modulus", "remainder", "%"),
}
_OPERATION_FIELDS = ("operation", "operator", "op", "action", "method", "function")
_EXPRESSION_FIELDS = ("expression", "expr", "formula", "calculation", "equation")
_VAGUE_FIELDS = ("input", "query")
"""Fields that many tools have, for anything: only a tool that speaks of sums means one."""

_MAX_DIGITS = 300
_SUMS = r"calc\w*|maths?|mathematic\w*|arithmetic\w*|sums?"
_DOES_SUMS = compile_on_use(rf"\b(?:{_SUMS})\b", re.I)
_CALCULATES = compile_on_use(rf"\b(?:{_SUMS}|evaluat\w*|comput\w*|expressions?|formulas?)\b", re.I)


class OfflineCall(NamedTuple):
    """A tool call to make."""

    tool: str
    arguments: JsonObject


class Toolbox:
    """The offered tools by what they can do."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        """Look at names and schemas once."""
        self.tools = tuple(tools)
        self._by_role: dict[Role, ToolSpec] = {}
        for role, names in _NAMES.items():
            found = [tool for name in names for tool in tools if _strip(tool.name) == name]
            if found:
                self._by_role[role] = found[0]

    def has(self, role: Role) -> bool:
        """Say whether a tool of this kind is offered."""
        return role in self._by_role

    def find_role(self, tool: str) -> Role | None:
        """Return what an offered tool is used for here, if anything."""
        return next((role for role, spec in self._by_role.items() if spec.name == tool), None)

    def list_call(self, path: str = ".") -> OfflineCall | None:
        """List a directory."""
        return self._fill("list", {"directory": path})

    def read_call(self, path: str, limit: int = 0) -> OfflineCall | None:
        """Read a file, its first `limit` lines if the tool can be told so."""
        wanted: dict[str, object] = {"file": path}
        if limit:
            wanted["limit"] = limit
        return self._fill("read", wanted)

    def grep_call(self, pattern: str) -> OfflineCall | None:
        """Search the workspace for a regular expression."""
        return self._fill("grep", {"pattern": pattern, "directory": "."})

    def glob_call(self, pattern: str) -> OfflineCall | None:
        """Find files by pattern."""
        return self._fill("glob", {"pattern": pattern, "directory": "."})

    def _fill(self, role: Role, wanted: dict[str, object]) -> OfflineCall | None:
        spec = self._by_role.get(role)
        if spec is None:
            return None
        known = _read_properties(spec)
        filled: JsonObject = {}
        for meaning, value in wanted.items():
            name = next((name for name in _FIELDS[meaning] if name in known), None)
            if name is None:
                if meaning in {"file", "pattern"}:
                    return None
                continue
            if name not in filled and fits(value, known[name]):
                filled[name] = value
        call = OfflineCall(spec.name, filled)
        return call if fits(filled, spec.parameters) else None


def make_expression_call(tools: Sequence[ToolSpec], expression: Expression) -> OfflineCall | None:
    """Ask a tool that takes a whole expression, if there is one."""
    for spec in tools:
        known = _read_properties(spec)
        spoken = f"{_format_snake(spec.name).replace('_', ' ')} {spec.description}"
        fields: tuple[str, ...] = ()
        if _CALCULATES.search(spoken):
            fields += _EXPRESSION_FIELDS
        if _DOES_SUMS.search(spoken):
            fields += _VAGUE_FIELDS
        for name in fields:
            if name not in known:
                continue
            about = spec.description + str(known[name].get("description", ""))
            power = "^" if "^" in about and "**" not in about else "**"
            arguments: JsonObject = {name: render(expression, power=power)}
            if fits(arguments, spec.parameters):
                return OfflineCall(spec.name, arguments)
    return None


def make_operation_call(tools: Sequence[ToolSpec], step: Binary) -> OfflineCall | None:
    """Ask a tool for one operation on two numbers, if there is one that can."""
    if not isinstance(step.left, Number) or not isinstance(step.right, Number):
        return None
    for spec in tools:
        arguments = _make_operation_arguments(spec, step.operation, step.left.text, step.right.text)
        if arguments is not None and fits(arguments, spec.parameters):
            return OfflineCall(spec.name, arguments)
    return None


def read_number(output: str) -> str | None:
    """Find the result in a calculator's answer: its last number."""
    found = re.findall(r"(?<![\w.])[-−]?\d+(?:[,_]\d{3})*(?:\.\d+)?(?:[eE][-+]?\d+)?", output)
    if not found or len(found[-1]) > _MAX_DIGITS:
        return None
    number = str(found[-1]).replace(",", "").replace("_", "").replace("−", "-")
    if re.fullmatch(r"-?\d+\.0+", number):
        number = number.partition(".")[0]
    return number


def _make_operation_arguments(
    spec: ToolSpec, operation: Operation, left: str, right: str
) -> JsonObject | None:
    known = _read_properties(spec)
    numbers = [name for name, schema in known.items() if _takes_number(schema)]
    selector = next((name for name in _OPERATION_FIELDS if name in known), None)
    if selector is None:
        words = set(re.split(r"[^a-z0-9]+", _format_snake(spec.name)))
        if not words & set(_OPERATION_WORDS[operation]):
            return None
        lists = [name for name, schema in known.items() if "array" in list_types(schema)]
        if len(numbers) < 2 and len(lists) == 1:
            return {lists[0]: [as_number(left), as_number(right)]}
    else:
        numbers = [name for name in numbers if name != selector]
    if len(numbers) < 2:
        texts = [name for name, schema in known.items() if name in {"a", "b", "x", "y"}]
        if len(texts) != 2:
            return None
        arguments: JsonObject = {texts[0]: left, texts[1]: right}
    else:
        arguments = {numbers[0]: as_number(left), numbers[1]: as_number(right)}
    if selector is not None:
        chosen = _find_operation_word(spec, known[selector], operation)
        if chosen is None:
            return None
        arguments[selector] = chosen
    return arguments


def _find_operation_word(spec: ToolSpec, schema: JsonObject, operation: Operation) -> str | None:
    words = _OPERATION_WORDS[operation]
    choices = schema.get("enum")
    if isinstance(choices, list):
        return next(
            (choice for word in words for choice in choices if str(choice).lower() == word), None
        )
    about = f"{schema.get('description', '')} {spec.description}".lower()
    spoken = [word for word in words if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", about)]
    if not spoken and any(re.search(rf"\b{other}\b", about) for other in SIGNS):
        return None
    return spoken[0] if spoken else words[0]


def _read_properties(spec: ToolSpec) -> dict[str, JsonObject]:
    root = resolve(spec.parameters, spec.parameters)
    named = root.get("properties")
    if not isinstance(named, dict):
        return {}
    return {str(name): resolve(schema, spec.parameters) for name, schema in named.items()}


def _takes_number(schema: JsonObject) -> bool:
    if {"number", "integer"} & set(list_types(schema)):
        return True
    branches = schema.get("anyOf") or schema.get("oneOf")
    return isinstance(branches, list) and any(
        isinstance(branch, dict) and {"number", "integer"} & set(list_types(branch))
        for branch in branches
    )


def as_number(text: str) -> int | float | None:
    """Return a number that JSON carries as it is; None when it is too large."""
    if len(text) > _MAX_DIGITS:
        return None
    number = int(text) if re.fullmatch(r"-?\d+", text) else float(text)
    return number if abs(number) < 2**63 else None


def _strip(name: str) -> str:
    """The tool's own name, without a server's prefix."""
    return re.split(r"__|[.:/]", _format_snake(name))[-1]


def _format_snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()
