"""The `lsp` tool: what a language server knows about the code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from pydantic import Field

from holdfast.canonical import JsonObject
from holdfast.errors import HoldfastError, TellModel
from holdfast.sandbox import Workspace
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool, tool
from holdfast.tools.lsp.servers import LanguageServers, Running, to_uri
from holdfast.tools.result import ToolResult
from holdfast.tools.target import make_path_target

_REQUEST_S = 60.0
_MAX_LINES = 200
_METHODS = {
    "goToDefinition": ("textDocument/definition", "definitionProvider"),
    "findReferences": ("textDocument/references", "referencesProvider"),
    "goToImplementation": ("textDocument/implementation", "implementationProvider"),
    "hover": ("textDocument/hover", "hoverProvider"),
    "documentSymbol": ("textDocument/documentSymbol", "documentSymbolProvider"),
    "workspaceSymbol": ("workspace/symbol", "workspaceSymbolProvider"),
    "prepareCallHierarchy": ("textDocument/prepareCallHierarchy", "callHierarchyProvider"),
    "incomingCalls": ("callHierarchy/incomingCalls", "callHierarchyProvider"),
    "outgoingCalls": ("callHierarchy/outgoingCalls", "callHierarchyProvider"),
    "typeHierarchy": ("textDocument/prepareTypeHierarchy", "typeHierarchyProvider"),
}
_KINDS = (
    "file module namespace package class method property field constructor enum interface "
    "function variable constant string number boolean array object key null enum-member struct "
    "event operator type-parameter"
).split()
Operation = Literal[
    "goToDefinition", "findReferences", "hover", "documentSymbol", "workspaceSymbol",
    "goToImplementation", "prepareCallHierarchy", "incomingCalls", "outgoingCalls",
    "typeHierarchy",
]  # fmt: skip


def make_lsp_tool(servers: LanguageServers) -> Tool:
    """Make the `lsp` tool on a set of language servers."""

    @tool(
        effect="read",
        tags=("code", "search"),
        labels=("private",),
        target=make_path_target("file_path"),
        timeout_s=180,
    )
    async def lsp(
        operation: Operation,
        file_path: Annotated[str, Field(min_length=1, description="File that it is about")],
        context: ToolContext,
        line: Annotated[int, Field(ge=1, description="Line, counted from 1")] = 1,
        character: Annotated[int, Field(ge=0, description="Column, counted from 1")] = 0,
        symbol: Annotated[str, Field(description="Name on the line, instead of a column")] = "",
        query: Annotated[str, Field(description="Name to search, for workspaceSymbol")] = "",
    ) -> ToolResult:
        """Ask a language server about code: definitions, references, types, symbols, calls.

        Positions are the line and either the column or the symbol's name on that line.
        documentSymbol needs only the file; workspaceSymbol needs a query and any file
        of the language.
        """
        workspace = context.workspace
        await context.look(workspace.stat, file_path)
        running = await servers.serve(workspace, file_path, context.open_reader)
        text = await servers.open(running, workspace, file_path)
        asked = _Question(running, workspace, operation, file_path)
        asked.check_supported()
        if operation == "workspaceSymbol":
            return await asked.symbols({"query": query})
        if operation == "documentSymbol":
            return await asked.symbols({"textDocument": asked.document})
        position = find_position(text, line, character, symbol)
        return await asked.at({"textDocument": asked.document, "position": position})

    return lsp


def find_position(text: str, line: int, character: int, symbol: str) -> JsonObject:
    """The position of a name or a column, as the protocol counts: from 0, in UTF-16 units."""
    lines = text.split("\n")
    if line > len(lines):
        raise TellModel(f"The file has only {len(lines)} lines.")
    content = lines[line - 1].removesuffix("\r")
    if symbol:
        found = re.search(rf"(?<!\w){re.escape(symbol)}(?!\w)", content)
        if found is None:
            raise TellModel(f"There is no {symbol!r} on line {line}: {content.strip()[:200]}")
        column = found.start()
    elif character:
        column = min(character - 1, len(content))
    else:
        name = re.search(r"\w", content)
        column = name.start() if name else 0
    return {"line": line - 1, "character": len(content[:column].encode("utf-16-le")) // 2}


class _Question:
    """One question to one server, and how its answer is shown."""

    def __init__(
        self, running: Running, workspace: Workspace, operation: Operation, path: str
    ) -> None:
        self._running = running
        self._workspace = workspace
        self._operation = operation
        self._method, self._capability = _METHODS[operation]
        self.document = {"uri": to_uri(workspace, path)}
        self._sources: dict[str, list[str]] = {}

    def check_supported(self) -> None:
        if not self._running.capabilities.get(self._capability):
            name = self._running.server.name
            raise TellModel(f"{name} does not offer {self._operation}.", retry=False)

    async def symbols(self, params: JsonObject) -> ToolResult:
        found = await self._ask(self._method, params)
        lines: list[str] = []
        for one in _list_items(found):
            self._add_symbol(one, 0, lines)
        return self._make_result(lines)

    async def at(self, params: JsonObject) -> ToolResult:
        if self._operation == "hover":
            answer = await self._ask(self._method, params)
            shown = _render_markup(answer.get("contents") if isinstance(answer, dict) else None)
            return self._make_result(shown.splitlines())
        if self._operation in ("incomingCalls", "outgoingCalls"):
            return self._make_result(await self._list_calls(params))
        if self._operation == "typeHierarchy":
            return self._make_result(await self._simplify_types(params))
        if self._operation == "findReferences":
            params = {**params, "context": {"includeDeclaration": True}}
        found = await self._ask(self._method, params)
        if self._operation == "prepareCallHierarchy":
            return self._make_result([self._find_named(one) for one in _list_items(found)])
        return self._make_result([self._format_location(one) for one in _list_items(found)])

    async def _list_calls(self, params: JsonObject) -> list[str]:
        items = _list_items(await self._ask("textDocument/prepareCallHierarchy", params))
        other = "from" if self._operation == "incomingCalls" else "to"
        lines: list[str] = []
        for item in items:
            for call in _list_items(await self._ask(self._method, {"item": item})):
                lines.append(self._find_named(call.get(other, {})))
        return lines

    async def _simplify_types(self, params: JsonObject) -> list[str]:
        lines: list[str] = []
        for item in _list_items(await self._ask(self._method, params)):
            lines.append(self._find_named(item))
            for title in ("supertypes", "subtypes"):
                found = _list_items(await self._ask(f"typeHierarchy/{title}", {"item": item}))
                lines += [f"  {title}: {self._find_named(one)}" for one in found]
        return lines

    async def _ask(self, method: str, params: JsonObject) -> Any:  # noqa: ANN401 - foreign JSON
        return await self._running.connection.request(method, params, timeout_s=_REQUEST_S)

    def _make_result(self, lines: Sequence[str]) -> ToolResult:
        shown = list(dict.fromkeys(lines)) if self._operation != "hover" else list(lines)
        count = len(shown)
        if count > _MAX_LINES:
            shown = [*shown[:_MAX_LINES], f"({count - _MAX_LINES} more)"]
        return ToolResult(
            "\n".join(shown) or f"{self._operation} found nothing there.",
            title=self._operation,
            metadata={
                "server": self._running.server.name,
                "sandbox": self._running.runner.level_name,
                "count": count,
            },
        )

    def _add_symbol(self, one: JsonObject, depth: int, lines: list[str]) -> None:
        lines.append("  " * depth + self._find_named(one))
        for child in _list_items(one.get("children")):
            if depth < 20:
                self._add_symbol(child, depth + 1, lines)

    def _find_named(self, one: JsonObject) -> str:
        kind = one.get("kind")
        word = _KINDS[kind - 1] if isinstance(kind, int) and 0 < kind <= len(_KINDS) else "symbol"
        place = one.get("location") or one
        span = place.get("selectionRange") or place.get("range") or {}
        uri = place.get("uri") or self.document["uri"]
        start = span.get("start") or {}
        return f"{word} {one.get('name', '?')}  {self._read_path(uri)}:{start.get('line', 0) + 1}"

    def _format_location(self, one: JsonObject) -> str:
        uri = one.get("targetUri") or one.get("uri") or ""
        span = one.get("targetSelectionRange") or one.get("range") or {}
        start = span.get("start") or {}
        number = start.get("line", 0)
        path = self._read_path(uri)
        source = self._render_source(path)
        text = source[number].strip()[:200] if number < len(source) else ""
        place = f"{path}:{number + 1}:{start.get('character', 0) + 1}"
        return f"{place}: {text}" if text else place

    def _read_path(self, uri: str) -> str:
        path = unquote(urlsplit(uri).path) or uri
        return path.removeprefix(self._workspace.root.rstrip("/") + "/")

    def _render_source(self, path: str) -> list[str]:
        """The lines of a file, or none if it is not ours to read."""
        if path not in self._sources:
            try:
                data = self._workspace.read(path, max_bytes=4 * 1024 * 1024)
                self._sources[path] = data.decode(errors="replace").split("\n")
            except HoldfastError:
                self._sources[path] = []
        return self._sources[path]


def _list_items(value: object) -> list[JsonObject]:
    found = value if isinstance(value, list) else [value] if isinstance(value, dict) else []
    return [one for one in found if isinstance(one, dict)]


def _render_markup(value: object) -> str:
    if isinstance(value, list):
        return "\n".join(_render_markup(one) for one in value)
    if isinstance(value, dict):
        return str(value.get("value", ""))
    return value if isinstance(value, str) else ""
