"""What the wire layer uses of aiohttp below its sessions; a failure here names what changed.

See `docs/decisions/0011-posts-on-the-connection-pool.md`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, RawResponseMessage
from yarl import URL


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        (aiohttp.BaseConnector.connect, ("req", "traces", "timeout")),
        (ResponseHandler.set_response_params, ("read_until_eof",)),
        (ResponseHandler.set_exception, ("exc",)),
        (ResponseHandler.read, ()),
        (Connection.release, ()),
        (Connection.close, ()),
        (aiohttp.StreamReader.readany, ()),
        (aiohttp.StreamReader.at_eof, ()),
        (aiohttp.StreamReader.is_eof, ()),
        (aiohttp.StreamReader.exception, ()),
        (aiohttp.StreamReader.set_exception, ("exc",)),
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


@pytest.mark.parametrize("method", [aiohttp.BaseConnector.connect, ResponseHandler.read])
def test_waiting_methods_are_coroutines(method: Callable[..., Any]) -> None:
    assert inspect.iscoroutinefunction(method)


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
