"""What the wire layer uses of aiohttp below its sessions; a failure here names what changed.

See `docs/decisions/0011-posts-on-the-connection-pool.md`.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, HttpResponseParser, RawResponseMessage
from aiohttp.http_parser import HttpResponseParserPy
from yarl import URL


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        (aiohttp.BaseConnector.connect, ("req", "traces", "timeout")),
        (ResponseHandler.connection_lost, ("exc",)),
        (Connection.close, ()),
    ],
)
def test_methods_take_what_we_give(method: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    found = inspect.signature(method).parameters
    assert set(arguments) <= set(found)
    needed = {
        name
        for name, parameter in found.items()
        if parameter.default is parameter.empty and name != "self"
    }
    assert needed <= set(arguments)


def test_waiting_methods_are_coroutines() -> None:
    assert inspect.iscoroutinefunction(aiohttp.BaseConnector.connect)


@pytest.mark.parametrize("parser", [HttpResponseParser, HttpResponseParserPy])
async def test_a_head_is_parsed_without_its_body(parser: Callable[..., Any]) -> None:
    loop = asyncio.get_running_loop()
    made = parser(ResponseHandler(loop), loop, 2**16, response_with_body=False)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    ((message, _),), is_upgraded, tail = made.feed_data(head)
    assert (message.code, message.chunked, message.should_close) == (200, True, True)
    assert message.headers["transfer-encoding"] == "chunked" and message.compression is None
    assert not is_upgraded and not tail


@pytest.mark.parametrize("parser", [HttpResponseParser, HttpResponseParserPy])
async def test_one_parser_reads_many_heads(parser: Callable[..., Any]) -> None:
    loop = asyncio.get_running_loop()
    made = parser(ResponseHandler(loop), loop, 2**16, response_with_body=False)
    for lines in (b"Content-Length: 100", b"Transfer-Encoding: chunked", b"Content-Length: 0"):
        for code in (200, 100, 204, 429) * 20:
            head = b"HTTP/1.1 %d OK\r\n%b\r\nX: %b\r\n\r\n" % (code, lines, b"y" * 4000)
            ((message, _),), _, tail = made.feed_data(head)
            assert (message.code, message.should_close, tail) == (code, False, b"")
            assert len(message.headers) == 2


async def test_a_pools_own_protocol_says_when_something_came_unasked() -> None:
    handler = ResponseHandler(asyncio.get_running_loop())
    assert handler.transport is None and not handler.should_close
    handler.data_received(b"unasked")
    assert handler.should_close


async def test_a_request_says_where_to_go_without_being_sent() -> None:
    made = aiohttp.ClientRequest(
        "POST",
        URL("http://h.example:8080/v1?x=1", encoded=True),
        headers={"X": "y"},
        proxy=URL("http://proxy.example:3128"),
        ssl=True,
    )
    assert made.headers["Host"] == "h.example:8080" and made.headers["X"] == "y"
    assert made.url.raw_path_qs == "/v1?x=1" and not made.is_ssl()
    assert made.proxy == URL("http://proxy.example:3128")
    assert made.connection_key.host == "h.example"


async def test_an_answer_has_the_parts_that_we_read() -> None:
    assert hasattr(RawResponseMessage, "code") and hasattr(RawResponseMessage, "headers")
    assert isinstance(Connection.protocol, property)
    assert isinstance(ResponseHandler.should_close, property)
    assert issubclass(HttpProcessingError, Exception)
    connector = aiohttp.TCPConnector()
    async with aiohttp.ClientSession(connector=connector) as session:
        assert session.connector is connector
