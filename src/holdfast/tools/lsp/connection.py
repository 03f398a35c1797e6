"""JSON-RPC over the standard streams of a language server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import ToolError
from holdfast.sandbox import SandboxStream

_MAX_MESSAGE = 64 * 1024 * 1024
_METHOD_NOT_FOUND = -32601
_CLOSE_S = 2.0
_LAST_WORDS = 600
_ANSWERED_WITH_NOTHING = frozenset(
    {
        "client/registerCapability",
        "client/unregisterCapability",
        "window/workDoneProgress/create",
        "window/showMessageRequest",
        "workspace/applyEdit",
    }
)


class LspConnection:
    """One running server; requests may overlap, answers find their request."""

    def __init__(self, stream: SandboxStream, name: str) -> None:
        """Talk to a server that was just started, on the running loop."""
        self._stream = stream
        self._name = name
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._reader = asyncio.create_task(self._read())

    @property
    def is_alive(self) -> bool:
        """Whether the server can be asked."""
        return not self._stream.ended.is_set() and not self._reader.done()

    async def request(self, method: str, params: JsonObject | None, *, timeout_s: float) -> Any:  # noqa: ANN401 - foreign JSON
        """Ask and return the result as plain JSON values.

        Raises:
            ToolError: the server refused, ended, or did not answer in time.
        """
        if not self.is_alive:
            raise self._make_failure("it has ended")
        self._last_id += 1
        number = self._last_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            await self._send({"id": number, "method": method, "params": params})
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            await self.notify("$/cancelRequest", {"id": number})
            raise self._make_failure(f"no answer to {method} within {timeout_s:g} s") from error
        finally:
            self._waiting.pop(number, None)

    async def notify(self, method: str, params: JsonObject) -> None:
        """Tell the server something; there is no answer."""
        await self._send({"method": method, "params": params})

    async def close(self) -> None:
        """Ask the server to end, and end it with all its children."""
        with suppress(ToolError):
            if self.is_alive:
                await self.request("shutdown", None, timeout_s=_CLOSE_S)
                await self.notify("exit", {})
        await self._stream.aclose(grace_s=_CLOSE_S)
        self._reader.cancel()
        await asyncio.wait([self._reader], timeout=_CLOSE_S)

    async def _send(self, message: JsonObject) -> None:
        body = msgspec.json.encode({"jsonrpc": "2.0", **message})
        try:
            await self._stream.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        except (ConnectionError, RuntimeError) as error:
            raise self._make_failure("it has ended") from error

    async def _read(self) -> None:
        failure = None
        try:
            while (message := await self._read_message()) is not None:
                await self._handle(message)
        except (ConnectionError, ValueError, ToolError) as error:
            failure = self._make_failure(str(error) or "it sent something that cannot be read")
        finally:
            if self._waiting and failure is None:
                said = (await self._stream.read_complaints()).strip()[-_LAST_WORDS:]
                failure = self._make_failure(
                    "it has ended" + (f"; it said: {said}" if said else "")
                )
            for future in self._waiting.values():
                if not future.done() and failure is not None:
                    future.set_exception(failure)

    async def _read_message(self) -> JsonObject | None:
        length = 0
        while line := await self._stream.read_line():
            if line in (b"\r\n", b"\n"):
                if not 0 < length <= _MAX_MESSAGE:
                    raise ValueError(f"it announced a message of {length} bytes")
                return msgspec.json.decode(
                    await self._stream.read_exactly(length), type=dict[str, Any]
                )
            name, _, value = line.partition(b":")
            if name.strip().lower() == b"content-length":
                length = int(value)
        return None

    async def _handle(self, message: JsonObject) -> None:
        number = message.get("id")
        if "method" not in message:
            future = self._waiting.get(number) if isinstance(number, int) else None
            if future is None or future.done():
                return
            error = message.get("error")
            if isinstance(error, dict):
                future.set_exception(self._make_failure(str(error.get("message", "it refused"))))
            else:
                future.set_result(message.get("result"))
        elif number is not None:
            await self._send({"id": number, **_answer(message)})

    def _make_failure(self, detail: str) -> ToolError:
        return ToolError(tool="lsp", detail=f"{self._name}: {detail}")


def _answer(message: JsonObject) -> JsonObject:
    """What we say to a server that asks us something."""
    method = message["method"]
    if method == "workspace/configuration":
        params = message.get("params") or {}
        return {"result": [None for _ in params.get("items", [])]}
    if method in _ANSWERED_WITH_NOTHING:
        return {"result": None}
    return {"error": {"code": _METHOD_NOT_FOUND, "message": f"{method} is not supported"}}
