"""What programs send to the proxy is read in one way only, or not at all."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import yaml
from hello_kit import extension, made_hello, server_name
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.egress.client_hello import BadHello, ClientHello, is_retry, read_hello
from holdfast.tools.egress.http_head import BadHead, ProxyRequest, parse_answer, parse_head

CORPUS = yaml.safe_load((Path(__file__).parents[2] / "corpora/egress.yaml").read_text())


def hello_for(name: str | None) -> bytes:
    """The first bytes that the platform's own TLS client sends."""
    context = ssl.create_default_context()
    context.check_hostname = False
    inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(inbound, outbound, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outbound.read()


@pytest.mark.parametrize("head", CORPUS["refused_heads"])
def test_head_that_could_be_read_in_two_ways_is_refused(head):
    with pytest.raises(BadHead):
        parse_head(head.encode("latin-1"))


@pytest.mark.parametrize("case", CORPUS["accepted_heads"], ids=lambda case: case["target"])
def test_plain_head_is_read_and_written_anew(case):
    request = parse_head(case["head"].encode("latin-1"))
    assert f"{request.method} {request.host}:{request.port}" == case["target"]
    if not request.is_tunnel:
        written = request.written(request.host).decode("latin-1")
        assert written == case["written"]
        # What goes on is itself a head that can be read, but for its target.
        lines = written.split("\r\n")
        assert not any(line.lower().startswith("proxy-") for line in lines)


@given(st.binary(max_size=400))
def test_no_bytes_crash_the_reader_of_heads(data):
    for tail in (b"", b"\r\n\r\n"):
        for parse in (parse_head, parse_answer):
            try:
                parse(data + tail)
            except BadHead:
                continue


_TOKENS = st.sampled_from(
    ["GET ", "CONNECT ", "POST ", "http://", "a.test", ":80", "/", "?", "#", "@", "\\", " HTTP/1.1",
     " HTTP/1.0", "\r\n", "\n", "\r", "Host: ", "Host:", " ", "\t", "Content-Length: ", "5", "0",
     "Transfer-Encoding: ", "chunked", "identity", ",", "Connection: ", "close", "\0", "\x85"]
)  # fmt: skip


@given(st.lists(_TOKENS, max_size=24))
def test_what_is_read_goes_on_as_one_request_for_one_host(tokens):
    data = "".join(tokens).encode("latin-1") + b"\r\n\r\n"
    try:
        request = parse_head(data)
    except BadHead:
        return
    assert isinstance(request, ProxyRequest)
    if request.is_tunnel:
        return
    written = request.written(request.host)
    head, _, rest = written.partition(b"\r\n\r\n")
    assert rest == b""
    lines = head.split(b"\r\n")
    assert not any(b"\n" in line or b"\r" in line or b"\0" in line for line in lines)
    names = [line.partition(b":")[0].lower() for line in lines[1:]]
    assert names.count(b"host") == 1
    assert names.count(b"content-length") + names.count(b"transfer-encoding") <= 1
    assert lines[0].count(b" ") == 2


def test_real_clients_name_is_read_from_its_first_message():
    for name in ("api.example.org", None):
        data = hello_for(name)
        expected = ClientHello(server_name=name or "", hides_name=False, size=len(data))
        assert read_hello(data + b"and more") == expected


def test_first_message_is_read_however_it_is_cut():
    for records in (1, 2, 7):
        data = made_hello(server_name(b"a.test"), records=records)
        for at in range(1, len(data)):
            assert read_hello(data[:at]) is None
        found = read_hello(data)
        assert found is not None and found.server_name == "a.test"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"SSH-2.0-x\r\n",
        b"\x16\x02\x00\x00\x05hello",
        b"\x17\x03\x03\x00\x05hello",
        b"\x16\x03\x01\x00\x00",
        made_hello(server_name(b"a.test") * 2),
        made_hello(server_name(b"a.test", b"b.test")),
        made_hello(server_name(b"")),
        made_hello(server_name(b"a.test\0.evil.test")),
        made_hello(server_name("ä.test".encode())),
        made_hello(extension(0, b"")),
        made_hello(extension(0, b"\0\x05\x01\0\x02ab")),
        made_hello(server_name(b"a.test"))[:-1] + b"\xff\xff",
    ],
    ids=range(13),
)
def test_first_message_that_says_no_one_name_is_refused(data):
    with pytest.raises(BadHello):
        found = read_hello(data)
        # What is only cut off is not accepted either.
        raise BadHello(str(found)) if found is None else AssertionError(found)


@pytest.mark.parametrize("kind", [0xFE0D, 0xFFCE], ids=["ech", "esni"])
def test_hidden_name_is_noticed(kind):
    found = read_hello(made_hello(server_name(b"a.test") + extension(kind, b"x")))
    assert found is not None and found.hides_name


def test_second_message_behind_a_retry_is_found_behind_filler():
    filler = b"\x14\x03\x03\x00\x01\x01" + b"\x17\x03\x03\x00\x03abc"
    data = filler + made_hello(server_name(b"b.test"))
    with pytest.raises(BadHello):
        read_hello(data)
    found = read_hello(data, is_second=True)
    assert found is not None and found.server_name == "b.test"
    retry = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
    head = b"\x16\x03\x03\x00\x58\x02\x00\x00\x54\x03\x03"
    assert is_retry(head + retry)
    assert not is_retry(head + bytes(32))


@given(st.binary(max_size=300), st.booleans())
def test_no_bytes_crash_the_reader_of_first_messages(data, is_second):
    for start in (b"", b"\x16\x03\x01\x00\x40\x01\x00\x00\x3c\x03\x03"):
        try:
            found = read_hello(start + data, is_second=is_second)
        except BadHello:
            continue
        assert found is None or isinstance(found, ClientHello)


@given(st.integers(0, 200), st.integers(0, 255))
def test_changed_byte_never_yields_another_name_unseen(at, value):
    data = bytearray(made_hello(server_name(b"a.test") + extension(43, b"\x02\x03\x04")))
    data[at % len(data)] = value
    try:
        found = read_hello(bytes(data))
    except BadHello:
        return
    if found is not None and found.server_name == "a.test":
        return
    # Another name, or none, is what the check compares.
    assert found is None or found.server_name != "a.test"
