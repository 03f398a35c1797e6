"""Redaction on the way: what is taken out of requests before they are read, and out of answers.

Both lie below everything that reads and answers, as the checks of the address do, so that they
hold for every protocol on the address. Off unless `server.redact_requests` or
`server.redact_answers` names `secrets` or `personal`. What is opaque to us (uploaded files,
contents of artifacts) passes as it is; keys of callers travel in headers, which nothing changes.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, MutableMapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from holdfast.agents import ChildPiece
from holdfast.errors import HoldfastError, UsageError
from holdfast.providers import Delta, ReasoningDelta, TextDelta
from holdfast.redaction import Redactor
from holdfast.server.http import AsgiApp, Receive, Scope, Send, read_pairs
from holdfast.server.open_requests import OpenRequest
from holdfast.settings import Settings

_FORM: Final = "application/x-www-form-urlencoded"
_LINES: Final = frozenset({"text/event-stream", "application/x-ndjson"})
_TEXTS: Final = frozenset({"text/html", "text/plain"})
_OWN_FIELDS: Final = frozenset({"key", "csrf", "cursor"})
"""Of forms and queries: what callers and we ourselves are known by."""
_MOST_HELD: Final = 4_000
_KEPT_BACK: Final = 1_000
_Item = TypeVar("_Item")


class PassingRedaction:
    """What is taken out of what goes one way; nothing, where there is no redactor."""

    def __init__(self, redactors: Sequence[Redactor]) -> None:
        """Take out what these find."""
        self._redactors = tuple(redactors)

    def __bool__(self) -> bool:
        """Say whether anything is taken out."""
        return bool(self._redactors)

    def clean_text(self, text: str) -> str:
        """Return a text without it."""
        for one in self._redactors:
            text = one.text(text)
        return text

    def clean_json(self, data: bytes) -> bytes:
        """Return JSON without it, in the same shape; what is no JSON as the text that it is."""
        try:
            for one in self._redactors:
                data = one.json(data)
        except UsageError:
            return self.clean_text(data.decode("utf-8", "replace")).encode()
        return data

    def clean_line(self, line: bytes) -> bytes:
        """Return a line of a stream without it."""
        body = line.rstrip(b"\r\n")
        head = b"data: " if body.startswith(b"data: ") else b""
        return head + self.clean_json(body[len(head) :]) + line[len(body) :] if body else line


NOTHING: Final = PassingRedaction(())
ANSWERS: Final = ContextVar("holdfast_answer_redaction", default=NOTHING)
"""What is taken out of the answer to the request that is answered now."""


async def hold_pieces(items: AsyncGenerator[_Item, None]) -> AsyncGenerator[_Item, None]:
    """Yield the pieces of an answer; with whole lines of text where answers are redacted.

    What is taken out may be split over pieces, so text waits until its line is whole.
    """
    redaction = ANSWERS.get()
    held: dict[str, list[ChildPiece | Delta]] = {}
    async with contextlib.aclosing(items):
        async for item in items:
            if not redaction:
                yield item
                continue
            path = item.path if isinstance(item, ChildPiece) else ""
            waiting = held.setdefault(path, [])
            piece: Any = item
            if waiting and type(_read_text_piece(waiting[0])) is not type(_read_text_piece(piece)):
                for one in _flush(waiting, redaction, is_all=True):
                    yield one
            if _read_text_piece(piece) is None:
                yield item
                continue
            waiting.append(piece)
            if "\n" in _read_text_piece(piece).text or len(waiting) % 64 == 0:
                for one in _flush(waiting, redaction, is_all=False):
                    yield one
        for waiting in held.values():
            for one in _flush(waiting, redaction, is_all=True):
                yield one


def _read_text_piece(item: Any) -> Any:  # noqa: ANN401 - a piece of text, of whichever kind
    found = item.item if isinstance(item, ChildPiece) else item
    return found if isinstance(found, TextDelta | ReasoningDelta) else None


def _flush(waiting: list[Any], redaction: PassingRedaction, *, is_all: bool) -> list[Any]:
    """Return what may be shown by now as one piece, and keep the rest."""
    if not waiting:
        return []
    first, text = waiting[0], "".join([_read_text_piece(one).text for one in waiting])

    def make(part: str) -> Any:  # noqa: ANN401 - as it came
        made = type(_read_text_piece(first))(part)
        return msgspec.structs.replace(first, item=made) if isinstance(first, ChildPiece) else made

    end = len(text) if is_all else _find_end(text)
    waiting[:] = [make(text[end:])] if end < len(text) else []
    return [make(redaction.clean_text(text[:end]))] if end else []


def _find_end(text: str) -> int:
    """Return up to where a text that goes on can be judged: a whole line, outside of a key."""
    opened = text.rfind("-----BEGIN")
    if opened >= 0 and "-----END" not in text[opened:] and len(text) - opened < _MOST_HELD:
        return text.rfind("\n", 0, opened) + 1
    end = text.rfind("\n") + 1
    return end if end or len(text) < _MOST_HELD else len(text) - _KEPT_BACK


class Redaction:
    """What a server takes out of requests and answers."""

    def __init__(self, settings: Settings, secrets: Redactor) -> None:
        """Do as the settings say; `secrets` knows those of this process."""
        options = settings.server
        personal = Redactor(formats=(), has_personal=True)
        by_name = {"secrets": secrets, "personal": personal}
        self.requests = PassingRedaction([by_name[one] for one in options.redact_requests])
        self.answers = PassingRedaction([by_name[one] for one in options.redact_answers])
        self._most = options.max_body_bytes

    def wrap(self, app: AsgiApp) -> AsgiApp:
        """Return an application around another one; itself, where nothing is taken out."""
        if not (self.requests or self.answers):
            return app

        async def pass_on(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"].startswith("/login"):
                # It takes keys and gives links: that is what it is for.
                await app(scope, receive, send)
                return
            if self.requests:
                self._clean_query(scope)
                receive = _CleanRequest(scope, receive, self.requests, self._most).receive
            if self.answers and scope["method"] != "HEAD":
                ANSWERS.set(self.answers)
                send = _CleanAnswer(scope, send, self.answers).send
            await app(scope, receive, send)

        return pass_on

    def _clean_query(self, scope: Scope) -> None:
        with contextlib.suppress(HoldfastError):  # what is no query is refused later
            pairs = read_pairs(scope.get("query_string", b""), "query")
            clean = _clean_pairs(pairs, self.requests)
            if clean != pairs:
                scope["query_string"] = urlencode(clean).encode()


class _CleanRequest:
    """Reads the body of a request as a whole, and hands it on without what is taken out."""

    def __init__(self, scope: Scope, receive: Receive, clean: PassingRedaction, most: int) -> None:
        self._receive = receive
        self._clean = clean
        self._most = most
        self._kind = _read_kind(scope["headers"])
        self._is_read = not (_is_json(self._kind) or self._kind in ("", _FORM))

    async def receive(self) -> MutableMapping[str, Any]:
        if self._is_read:
            return await self._receive()
        body = bytearray()
        while True:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            is_last = not message.get("more_body", False)
            if is_last or len(body) > self._most:
                break
        self._is_read = True
        # What is too large is refused where it is read.
        found = self._clean_body(bytes(body)) if is_last else bytes(body)
        return {"type": "http.request", "body": found, "more_body": not is_last}

    def _clean_body(self, body: bytes) -> bytes:
        if self._kind == _FORM:
            with contextlib.suppress(HoldfastError):
                pairs = read_pairs(body, "form")
                clean = _clean_pairs(pairs, self._clean)
                return body if clean == pairs else urlencode(clean).encode()
            return body
        return self._clean.clean_json(body) if body else body


class _CleanAnswer:
    """Sends an answer without what is taken out: JSON as a whole, streams line by line."""

    def __init__(self, scope: Scope, send: Send, clean: PassingRedaction) -> None:
        self._open: OpenRequest = scope["holdfast.open"]
        self._send = send
        self._clean = clean
        self._start: MutableMapping[str, Any] | None = None
        self._kind = ""
        self._body = bytearray()

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._kind = _read_kind(message.get("headers", ()))
            if _is_json(self._kind) or self._kind in _TEXTS:
                self._start = message  # its length is known with the body
                return
        elif message["type"] == "http.response.body" and not self._open.shows_secret:
            if self._start is not None:
                self._body += message.get("body", b"")
                if message.get("more_body", False):
                    return
                await self._send_whole()
                return
            if self._kind in _LINES:
                message = {**message, "body": self._take_lines(message)}
        elif self._start is not None:
            start, self._start = self._start, None
            await self._send(start)
        await self._send(message)

    async def _send_whole(self) -> None:
        assert self._start is not None
        body = bytes(self._body)
        if _is_json(self._kind):
            body = self._clean.clean_json(body) if body else body
        else:
            body = self._clean.clean_text(body.decode("utf-8", "replace")).encode()
        kept = [(n, v) for n, v in self._start["headers"] if n.lower() != b"content-length"]
        self._start["headers"] = [*kept, (b"content-length", str(len(body)).encode())]
        await self._send(self._start)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def _take_lines(self, message: MutableMapping[str, Any]) -> bytes:
        self._body += message.get("body", b"")
        end = len(self._body)
        if message.get("more_body", False):
            end = self._body.rfind(b"\n") + 1
        lines, self._body = bytes(self._body[:end]), self._body[end:]
        return b"".join(map(self._clean.clean_line, lines.splitlines(keepends=True)))


def _clean_pairs(pairs: list[tuple[str, str]], clean: PassingRedaction) -> list[tuple[str, str]]:
    return [(n, v if n in _OWN_FIELDS else clean.clean_text(v)) for n, v in pairs]


def _read_kind(headers: Sequence[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name.lower() == b"content-type":
            return value.decode("latin-1").partition(";")[0].strip().lower()
    return ""


def _is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


__all__ = ["PassingRedaction", "Redaction"]
