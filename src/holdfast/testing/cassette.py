"""Record real HTTP answers once, replay them for ever: a tape at the level of the wire."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from holdfast.errors import CassetteMismatch, ConfigError
from holdfast.providers import Endpoint, HttpTransport
from holdfast.testing.cassette_file import (
    CassetteFile,
    Exchange,
    RecordedRequest,
    Scrubber,
    load,
    read_chunk_bytes,
    record_request,
    record_response,
    save,
)

CassetteMode: TypeAlias = Literal["replay", "record", "auto"]

_HOP_BY_HOP = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "host",
        "keep-alive",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_MAX_BODY = 256 * 1024 * 1024
_DIFF_LINES = 60


class Cassette:
    """A loopback server that stands where a provider would, and answers from a file.

    Point an endpoint's base URL at `base_url`. `record` passes requests on to
    `upstream` and writes what came back, piece by piece, when the block ends without
    an error; `replay` never leaves the machine; `auto` records only when there is no
    file. Real sockets and the real client are used both times.

    Keys, cookies and every header that is not known to be harmless stay out of the
    file, and their values are removed wherever they appear.

    Replay is strict: each recorded answer is given once, and only to an equal request
    (method, path, body as JSON). Anything else is refused with status 400, and leaving
    the block raises the mismatch, whatever became of the refusal.

    Raises:
        ConfigError: (on entering) there is no such cassette, or no upstream to record.
        CassetteMismatch: (on leaving) a request was not on the tape; shows the nearest.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        upstream: str = "",
        mode: CassetteMode = "replay",
        secrets: Iterable[str] = (),
    ) -> None:
        """Prepare; nothing is read and nothing listens yet."""
        self.path = Path(path)
        self.mode: CassetteMode = mode
        self.mismatch: CassetteMismatch | None = None
        self._upstream = upstream.rstrip("/")
        self._scrub = Scrubber(secrets)
        self._exchanges: dict[int, Exchange] = {}
        self._begun = 0
        self._used: set[int] = set()
        self._lost: ConfigError | None = None
        self._is_recording = False
        self._runner: web.AppRunner | None = None
        self._transport: HttpTransport | None = None
        self._port = 0

    @property
    def base_url(self) -> str:
        """What to use instead of the provider's base URL."""
        return f"http://127.0.0.1:{self._port}{urlsplit(self._upstream).path}"

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """What is on the tape, in the order in which the requests came."""
        return tuple(exchange for _, exchange in sorted(self._exchanges.items()))

    @property
    def unused(self) -> int:
        """How many recorded answers no caller has asked for."""
        return 0 if self._is_recording else len(self._exchanges) - len(self._used)

    async def __aenter__(self) -> Self:
        """Load the tape or get ready to record, and listen on the loopback interface."""
        self._is_recording = self.mode == "record" or (
            self.mode == "auto" and not self.path.exists()
        )
        if self._is_recording:
            Endpoint(provider="cassette", base_url=self._upstream)  # refuses what is no address
            self._transport = HttpTransport()
        else:
            cassette = load(self.path)
            self._upstream = cassette.upstream
            self._exchanges = dict(enumerate(cassette.exchanges))
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self._port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop listening; write the recording, or raise the mismatch."""
        if self._runner is not None:
            await self._runner.cleanup()
        if self._transport is not None:
            await self._transport.close()
        if self.mismatch is not None and (error is None or isinstance(error, Exception)):
            raise self.mismatch from error
        if self._lost is not None and error is None:
            raise self._lost
        if self._is_recording and error is None:
            shown = urlsplit(self._upstream)
            place = f"{shown.scheme}://{shown.netloc.rpartition('@')[2]}{shown.path}"
            save(self.path, CassetteFile(upstream=place, exchanges=self.exchanges))

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        asked = record_request(
            request.method, request.path, request.query_string, request.headers, body, self._scrub
        )
        if self._transport is not None:
            return await self._record(request, body, asked, self._transport)
        return await self._replay(request, asked)

    async def _record(
        self,
        request: web.Request,
        body: bytes,
        asked: RecordedRequest,
        transport: HttpTransport,
    ) -> web.StreamResponse:
        endpoint = Endpoint(provider="cassette", base_url=self._upstream)
        parts = urlsplit(self._upstream)
        url = URL(f"{parts.scheme}://{parts.netloc}{request.raw_path}", encoded=True)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        number, self._begun = self._begun, self._begun + 1
        try:
            upstream = await transport.session().request(
                request.method,
                url,
                data=body,
                headers=headers,
                allow_redirects=False,
                proxy=transport.proxy(endpoint),
                ssl=transport.tls(endpoint),
            )
        except aiohttp.ClientError as error:
            # Neither the address nor the cause is shown: both may hold a secret.
            detail = f"The upstream of the cassette cannot be reached: {type(error).__name__}"
            self._lost = ConfigError(detail=detail)
            return web.json_response({"error": {"message": detail}}, status=502)
        async with upstream:
            self._scrub.learn(upstream.headers.getall("Set-Cookie", ()))
            kept = {k: v for k, v in upstream.headers.items() if k.lower() not in _HOP_BY_HOP}
            answer = web.StreamResponse(status=upstream.status, headers=kept)
            await answer.prepare(request)
            chunks: list[bytes] = []
            is_broken = False
            try:
                async for chunk in upstream.content.iter_any():
                    chunks.append(chunk)
                    await answer.write(chunk)
            except (aiohttp.ClientError, ConnectionError):
                # Upstream broke off, or the client left; the tape ends here for both.
                is_broken = True
            recorded = record_response(
                upstream.status, upstream.headers, chunks, is_broken, self._scrub
            )
        self._exchanges[number] = Exchange(request=asked, response=recorded)
        return await _end(request, answer, is_broken)

    async def _replay(self, request: web.Request, asked: RecordedRequest) -> web.StreamResponse:
        for index, exchange in self._exchanges.items():
            if index not in self._used and exchange.request.matches(asked):
                self._used.add(index)
                break
        else:
            return self._refuse(asked)
        recorded = exchange.response
        answer = web.StreamResponse(status=recorded.status, headers=recorded.headers)
        await answer.prepare(request)
        for chunk in recorded.chunks:
            await answer.write(read_chunk_bytes(chunk))
            await asyncio.sleep(0)
        return await _end(request, answer, recorded.is_broken)

    def _refuse(self, asked: RecordedRequest) -> web.Response:
        mismatch = CassetteMismatch(
            path=str(self.path),
            request=f"{asked.method} {asked.path}",
            difference=self._describe_difference(asked),
        )
        # The first one is the cause; what follows it is usually its consequence.
        self.mismatch = self.mismatch or mismatch
        error = {"message": str(mismatch), "type": "cassette_mismatch", "code": mismatch.code}
        return web.json_response({"error": error}, status=400)

    def _describe_difference(self, asked: RecordedRequest) -> str:
        """Show the nearest recorded request, and what is different."""
        wanted = _format_lines(asked)
        best: tuple[float, int, list[str]] | None = None
        for index, exchange in self._exchanges.items():
            lines = _format_lines(exchange.request)
            likeness = difflib.SequenceMatcher(None, lines, wanted, autojunk=False).ratio()
            if best is None or likeness > best[0]:
                best = (likeness, index, lines)
        if best is None:
            return "The cassette is empty."
        _, index, lines = best
        if lines == wanted:
            return f"Exchange {index + 1} is equal, but its answer was already given."
        was_used = ", already used" if index in self._used else ""
        title = f"exchange {index + 1} of {len(self._exchanges)}{was_used}"
        diff = list(difflib.unified_diff(lines, wanted, title, "this request", lineterm="", n=2))
        if len(diff) > _DIFF_LINES:
            diff = [*diff[:_DIFF_LINES], f"... {len(diff) - _DIFF_LINES} more lines"]
        return "The nearest one:\n" + "\n".join(diff)


async def _end(
    request: web.Request, answer: web.StreamResponse, is_broken: bool
) -> web.StreamResponse:
    if is_broken and request.transport is not None:
        request.transport.abort()
    else:
        await answer.write_eof()
    return answer


def _format_lines(request: RecordedRequest) -> list[str]:
    shown = request.body.json if request.body.json is not None else request.body
    text = msgspec.json.format(msgspec.json.encode(shown, order="sorted"), indent=2).decode()
    return [f"{request.method} {request.path}", *text.splitlines()]
