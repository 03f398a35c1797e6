"""Loops that hold the conversation of `runtime.py` by hand, and keep nothing or next to nothing.

- `httpx_run`, `httpx_stream`: as one would write it first.
- `Raw`: bare asyncio streams, as little as it takes.
- `stored_wire`: our wire layer and a plain INSERT of each answer; no agent, gate or history.
  The least that a run whose answers are kept can cost with this wire.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
from wire import RAW_TOOLS, SYSTEM, TOOLS, results_of, user

from holdfast.messages import Message
from holdfast.providers import Finished, ModelRequest, WireModel

QUESTION = "Multiply a lot of numbers by 23."

Said = dict[str, Any]
_encode = msgspec.json.Encoder().encode


def opening() -> list[Said]:
    """What every conversation begins with."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]


def _goes_on(messages: list[Said], said: Said) -> bool:
    """Add an answer and the results of its calls; say whether there were any."""
    messages.append(said)
    calls = said.get("tool_calls") or ()
    for call in calls:
        given = json.loads(call["function"]["arguments"])
        output = str(given["a"] * given["b"])
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
    return bool(calls)


class _Streamed:
    """One streamed answer, put together line by line."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._calls: dict[int, Said] = {}

    def take(self, line: str | bytes) -> None:
        """Take what stands behind `data: `."""
        for choice in json.loads(line)["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                self._text.append(delta["content"])
            for piece in delta.get("tool_calls") or ():
                call = self._calls.setdefault(
                    piece["index"], {"type": "function", "function": {"arguments": ""}}
                )
                if piece.get("id"):
                    call["id"] = piece["id"]
                    call["function"]["name"] = piece["function"]["name"]
                call["function"]["arguments"] += piece["function"]["arguments"]

    def said(self) -> Said:
        """Return the whole answer."""
        said: Said = {"role": "assistant", "content": "".join(self._text) or None}
        if self._calls:
            said["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        return said


# --- httpx ---------------------------------------------------------------------------


async def httpx_run(client: httpx.AsyncClient, url: str) -> None:
    """The conversation with whole answers."""
    messages = opening()
    while True:
        body = {"model": "m", "messages": messages, "tools": RAW_TOOLS}
        said = (await client.post(url, json=body)).json()["choices"][0]["message"]
        if not _goes_on(messages, said):
            return


async def httpx_stream(client: httpx.AsyncClient, url: str) -> None:
    """The same, streamed."""
    messages = opening()
    while True:
        body = {"model": "m", "messages": messages, "tools": RAW_TOOLS, "stream": True}
        answer = _Streamed()
        async with client.stream("POST", url, json=body) as response:
            async for line in response.aiter_lines():
                if line.startswith("data: ") and not line.startswith("data: [DONE]"):
                    answer.take(line[6:])
        if not _goes_on(messages, answer.said()):
            return


# --- bare asyncio --------------------------------------------------------------------

_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Raw:
    """Requests written and answers read by hand; connections are kept for the next run."""

    def __init__(self, url: str) -> None:
        """Talk to this address."""
        place = urlsplit(url)
        self._host, self._port = place.hostname, place.port
        self._head = (
            f"POST {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        self._idle: list[_Connection] = []

    async def run(self, *, streamed: bool = False) -> None:
        """The conversation."""
        connection = self._idle.pop() if self._idle else await self._connect()
        messages = opening()
        while True:
            body = {"model": "m", "messages": messages, "tools": RAW_TOOLS, "stream": streamed}
            if not _goes_on(messages, await self._ask(connection, json.dumps(body).encode())):
                break
        self._idle.append(connection)

    async def close(self) -> None:
        """Close all connections."""
        for _, writer in self._idle:
            writer.close()
            await writer.wait_closed()

    async def _connect(self) -> _Connection:
        return await asyncio.open_connection(self._host, self._port)

    async def _ask(self, connection: _Connection, body: bytes) -> Said:
        reader, writer = connection
        writer.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        _, found, length = head.partition(b"content-length:")
        if found:
            whole = await reader.readexactly(int(length.partition(b"\r\n")[0]))
            said: Said = json.loads(whole)["choices"][0]["message"]
            return said
        answer = _Streamed()
        # The server sends each event as a chunk of its own.
        while size := int(await reader.readline(), 16):
            event = await reader.readexactly(size + 2)
            if not event.startswith(b"data: [DONE]"):
                answer.take(event[6:])
        await reader.readline()
        return answer.said()


# --- our wire, and a log -------------------------------------------------------------


class StoredWire:
    """Our wire layer, with each answer inserted into a table before its calls are made."""

    def __init__(self, path: str) -> None:
        """Make the log, with the same promises as ours: it outlives the process."""
        self._log = sqlite3.connect(path, isolation_level=None)
        self._log.execute("PRAGMA journal_mode = WAL").fetchall()
        self._log.execute("PRAGMA synchronous = NORMAL")
        self._log.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, data BLOB)")

    async def run(self, model: WireModel, *, deltas: bool = False) -> None:
        """The conversation."""
        messages: tuple[Message, ...] = (user(QUESTION),)
        while True:
            request = ModelRequest(messages=messages, system=SYSTEM, tools=TOOLS)
            async for delta in model.stream(request, deltas=deltas):
                if isinstance(delta, Finished):
                    said = delta.message
            self._log.execute("INSERT INTO log VALUES (NULL, ?)", (_encode(said),))
            if not said.tool_calls:
                return
            messages = (*messages, said, results_of(said))

    def close(self) -> None:
        """Close the log."""
        self._log.close()
