"""Find, start, reuse and end language servers."""

from __future__ import annotations

import asyncio
import os
import posixpath
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.canonical import JsonObject, hash_sha256
from holdfast.errors import ToolError
from holdfast.sandbox import SandboxLimits, SandboxRunner, Workspace
from holdfast.tools.encoding import decode_file
from holdfast.tools.lsp.connection import LspConnection
from holdfast.tools.lsp.program import find_server_program
from holdfast.tools.services import OpensReader

_START_S = 30.0
_STREAM_LIMIT = 1024 * 1024
# A server stays, and some reserve far more memory than they use.
_LIMITS = SandboxLimits(cpu_s=0, memory_bytes=64 * 1024**3, timeout_s=0.0)
_PYTHON = {".py": "python", ".pyi": "python"}
_SCRIPT = {
    ".js": "javascript",
    ".jsx": "javascriptreact",
    ".mjs": "javascript",
    ".ts": "typescript",
    ".tsx": "typescriptreact",
}
_C = {".c": "c", ".h": "c", ".cc": "cpp", ".cpp": "cpp", ".hpp": "cpp"}


class LanguageServer(msgspec.Struct, frozen=True, kw_only=True):
    """A program, and the file endings that it understands with their language ids."""

    name: str
    command: tuple[str, ...]
    endings: Mapping[str, str]
    readable: tuple[str, ...] = ()
    """What it must read besides its program, the system and the workspace."""


# Looked for in the PATH, in this order. Servers that run code of the workspace to
# understand it (build scripts, macros) are not among them; configure those on purpose.
KNOWN_SERVERS = (
    LanguageServer(
        name="basedpyright", command=("basedpyright-langserver", "--stdio"), endings=_PYTHON
    ),
    LanguageServer(name="pyright", command=("pyright-langserver", "--stdio"), endings=_PYTHON),
    LanguageServer(name="pylsp", command=("pylsp",), endings=_PYTHON),
    LanguageServer(
        name="typescript", command=("typescript-language-server", "--stdio"), endings=_SCRIPT
    ),
    LanguageServer(name="gopls", command=("gopls",), endings={".go": "go"}),
    LanguageServer(name="clangd", command=("clangd",), endings=_C),
)


class Running(msgspec.Struct):
    """A server at work on one workspace."""

    server: LanguageServer
    connection: LspConnection
    capabilities: JsonObject
    loop: asyncio.AbstractEventLoop
    runner: SandboxRunner
    opened: dict[str, tuple[int, str]] = msgspec.field(default_factory=dict)


class LanguageServers:
    """The servers of a process: started when first needed, then reused.

    Each runs in the sandbox: it reads the workspace, changes nothing, and has no network,
    for some run code of the workspace to understand it. Where no sandbox works, none runs.
    """

    def __init__(
        self,
        configured: Sequence[LanguageServer] = (),
        *,
        known: Sequence[LanguageServer] = KNOWN_SERVERS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Prefer the configured ones, then the known ones that are installed."""
        self._servers = (*configured, *known)
        self._configured = {server.name for server in configured}
        self._environment = dict(environment or {})
        self._running: dict[tuple[str, str], Running] = {}
        self._starting: dict[tuple[str, str], asyncio.Lock] = {}

    async def serve(self, workspace: Workspace, path: str, open_reader: OpensReader) -> Running:
        """Return a server that understands a file, started if need be by `open_reader`.

        Raises:
            ToolError: none is installed or configured, or it does not start.
            SandboxFailed: it cannot be confined here, so it was not started.
        """
        server, program = self._choose(path, workspace)
        key = (workspace.root, server.name)
        loop = asyncio.get_running_loop()
        found = self._running.get(key)
        if found is not None and found.loop is not loop:
            del self._running[key]
            self._starting.pop(key, None)
        async with self._starting.setdefault(key, asyncio.Lock()):
            found = self._running.get(key)
            if found is None or not found.connection.is_alive:
                if found is not None:
                    await _end(found)
                found = await self._start(server, program, workspace, open_reader)
                self._running[key] = found
        return found

    async def open(self, running: Running, workspace: Workspace, path: str) -> str:
        """Show a file to a server in its present state; return its text."""
        text, _ = await asyncio.to_thread(_read_text, workspace, path)
        uri = to_uri(workspace, path)
        version, known = running.opened.get(uri, (0, ""))
        current = hash_sha256(text.encode(errors="replace"))
        if known == current:
            return text
        if version == 0:
            document = {
                "uri": uri,
                "languageId": running.server.endings[posixpath.splitext(path)[1]],
                "version": 1,
                "text": text,
            }
            await running.connection.notify("textDocument/didOpen", {"textDocument": document})
        else:
            await running.connection.notify(
                "textDocument/didChange",
                {
                    "textDocument": {"uri": uri, "version": version + 1},
                    "contentChanges": [{"text": text}],
                },
            )
        running.opened[uri] = (version + 1, current)
        return text

    async def close(self) -> None:
        """End all servers of this loop."""
        running, self._running = list(self._running.values()), {}
        self._starting.clear()
        here = asyncio.get_running_loop()
        await asyncio.gather(*(_end(one) for one in running if one.loop is here))

    def _choose(self, path: str, workspace: Workspace) -> tuple[LanguageServer, str]:
        ending = posixpath.splitext(path)[1]
        fitting = [server for server in self._servers if ending in server.endings]
        for server in fitting:
            program = shutil.which(server.command[0])
            is_ours = server.name in self._configured
            # A program inside the workspace was put there by what writes the workspace.
            if program and (is_ours or not _is_below(program, workspace.root)):
                return server, program
        detail = f"no language server for {ending or path!r} files is installed or configured"
        if names := ", ".join(server.command[0] for server in fitting):
            detail += f"; install one of: {names}"
        raise ToolError(tool="lsp", detail=detail)

    async def _start(
        self,
        server: LanguageServer,
        program: str,
        workspace: Workspace,
        open_reader: OpensReader,
    ) -> Running:
        found = await asyncio.to_thread(find_server_program, program, server.command[1:])
        runner = open_reader(
            workspace,
            limits=_LIMITS,
            environment=self._environment,
            readable=(*found.readable, *server.readable),
        )
        connection: LspConnection | None = None
        try:
            stream = await runner.open_program(
                found.argv, environment={"PATH": found.path}, line_bytes=_STREAM_LIMIT
            )
            connection = LspConnection(stream, server.name)
            answer = await connection.request(
                "initialize", _make_hello(workspace), timeout_s=_START_S
            )
            await connection.notify("initialized", {})
        except BaseException:
            if connection is not None:
                await connection.close()
            await runner.aclose()
            raise
        capabilities = answer.get("capabilities") if isinstance(answer, dict) else None
        return Running(
            server=server,
            connection=connection,
            capabilities=capabilities or {},
            loop=asyncio.get_running_loop(),
            runner=runner,
        )


async def _end(running: Running) -> None:
    await running.connection.close()
    await running.runner.aclose()


def to_uri(workspace: Workspace, path: str) -> str:
    """The URI of a file of the workspace."""
    return Path(workspace.root, workspace.canonical(path)).as_uri()


def _read_text(workspace: Workspace, path: str) -> tuple[str, object]:
    return decode_file(workspace.read(path, max_bytes=4 * 1024 * 1024), path)


def _is_below(program: str, root: str) -> bool:
    real = os.path.realpath(program)
    return os.path.commonpath([real, root]) == root


def _make_hello(workspace: Workspace) -> JsonObject:
    uri = Path(workspace.root).as_uri()
    tree = {"hierarchicalDocumentSymbolSupport": True}
    return {
        # It could not see our process, and would take us for dead.
        "processId": None,
        "clientInfo": {"name": "holdfast"},
        "rootUri": uri,
        "rootPath": workspace.root,
        "workspaceFolders": [{"uri": uri, "name": os.path.basename(workspace.root)}],
        "capabilities": {
            "general": {"positionEncodings": ["utf-16"]},
            "textDocument": {
                "synchronization": {"didSave": False},
                "hover": {"contentFormat": ["markdown", "plaintext"]},
                "definition": {"linkSupport": True},
                "implementation": {"linkSupport": True},
                "references": {},
                "documentSymbol": tree,
                "callHierarchy": {},
                "typeHierarchy": {},
            },
            "workspace": {
                "symbol": {},
                "configuration": True,
                "workspaceFolders": True,
            },
        },
    }
