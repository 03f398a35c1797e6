"""The sketch from which the goals of `DESIGN.md` were set, written anew from its description.

About a hundred lines on aiohttp, msgspec and SQLite: a journal with envelope and hash chain,
events for the gate and for the ledger of calls, each committed by itself, and arguments checked
by pydantic. No sessions, leases, rows to query, redaction, hooks, limits, labels or budgets. It
shows what the same goals ask for on the machine at hand.
"""

from __future__ import annotations

import hashlib
import itertools
import sqlite3
from typing import Any

import aiohttp
import msgspec
from _baselines import opening
from pydantic import BaseModel
from wire import RAW_TOOLS

from holdfast.clock import SYSTEM

_encode = msgspec.json.Encoder().encode
_numbers = itertools.count()


class _Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class _Call(msgspec.Struct):
    id: str = ""
    index: int = 0
    type: str = "function"
    function: _Function = msgspec.field(default_factory=_Function)


class _Said(msgspec.Struct):
    role: str = "assistant"
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Whole(msgspec.Struct):
    message: _Said


class _Body(msgspec.Struct):
    choices: list[_Whole]


class _Piece(msgspec.Struct):
    delta: _Said


class _Chunk(msgspec.Struct):
    choices: list[_Piece]


class _Envelope(msgspec.Struct):
    session: str
    seq: int
    time: float
    kind: str
    data: msgspec.Raw
    previous: str
    hash: str = ""


class _Arguments(BaseModel):
    a: int
    b: int
    note: str = ""


_body = msgspec.json.Decoder(_Body).decode
_chunk = msgspec.json.Decoder(_Chunk).decode


class _Journal:
    def __init__(self, path: str) -> None:
        self.log = sqlite3.connect(path, isolation_level=None)
        self.log.execute("PRAGMA journal_mode = WAL").fetchall()
        self.log.execute("PRAGMA synchronous = NORMAL")
        self.log.execute(
            "CREATE TABLE events (session TEXT, seq INTEGER, kind TEXT, envelope BLOB, "
            "PRIMARY KEY (session, seq)) WITHOUT ROWID"
        )


class _Session:
    def __init__(self, journal: _Journal) -> None:
        self._log = journal.log
        self._id, self._seq, self._hash = f"ses_{next(_numbers)}", 0, ""

    def append(self, kind: str, data: object) -> None:
        self._seq += 1
        raw = msgspec.Raw(_encode(data))
        fact = _Envelope(self._id, self._seq, SYSTEM.now(), kind, raw, self._hash)
        fact.hash = self._hash = hashlib.sha256(_encode(fact)).hexdigest()
        row = (self._id, self._seq, kind, _encode(fact))
        self._log.execute("INSERT INTO events VALUES (?, ?, ?, ?)", row)


class Sketch:
    """Runs the conversation; connections are kept for the next run."""

    def __init__(self, session: aiohttp.ClientSession, url: str, path: str) -> None:
        """Keep the journal at a path."""
        self._http, self._url = session, url
        self._journal = _Journal(path)
        self._allowed = {"multiply"}

    async def run(self, *, streamed: bool = False) -> None:
        """The conversation, every step kept."""
        session, messages = _Session(self._journal), list[Any](opening())
        session.append("run.started", messages[-1])
        while True:
            session.append("model.asked", {"messages": len(messages)})
            asked = {"model": "m", "messages": messages, "tools": RAW_TOOLS, "stream": streamed}
            said = await self._ask(_encode(asked), streamed)
            session.append("model.answered", said)
            messages.append(said)
            if not said.tool_calls:
                break
            for call in said.tool_calls:
                given = _Arguments.model_validate_json(call.function.arguments)
                is_allowed = call.function.name in self._allowed
                session.append("gate.decided", {"call_id": call.id, "is_allowed": is_allowed})
                session.append("call.started", {"call_id": call.id, "input": given.model_dump()})
                output = str(given.a * given.b)
                session.append("call.ended", {"call_id": call.id, "output": output})
                messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
        session.append("run.ended", {"answer": said.content})

    def close(self) -> None:
        """Close the journal."""
        self._journal.log.close()

    async def _ask(self, body: bytes, streamed: bool) -> _Said:
        headers = {"Content-Type": "application/json"}
        async with self._http.post(self._url, data=body, headers=headers) as response:
            if not streamed:
                return _body(await response.read()).choices[0].message
            return await _put_together(response.content)


async def _put_together(content: aiohttp.StreamReader) -> _Said:
    text: list[str] = []
    calls: dict[int, _Call] = {}
    rest = b""
    async for data in content.iter_any():
        *events, rest = (rest + data).split(b"\n\n")
        for event in events:
            if event == b"data: [DONE]":
                continue
            for choice in _chunk(event[6:]).choices:
                if choice.delta.content:
                    text.append(choice.delta.content)
                for call in choice.delta.tool_calls or ():
                    if call.id:
                        calls[call.index] = call
                    else:
                        calls[call.index].function.arguments += call.function.arguments
    return _Said(content="".join(text) or None, tool_calls=list(calls.values()) or None)
