"""A program reaches the hosts that were allowed to it, by name and by address, and no others."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from contextlib import asynccontextmanager

import machine
import pytest
from hello_kit import extension, made_hello, server_name

from holdfast.errors import PermissionDenied, StorageError, UsageError
from holdfast.policy import NetworkRules
from holdfast.testing import FakeClock
from holdfast.tools import EgressLimits, EgressProxy, EgressRules, HostGrant, HostRates, read_grant

LOCAL = ("127.0.0.0/8",)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    openssl = machine.program("openssl", "openssl")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-subj", "/CN=ok.test", "-days", "2", "-keyout", str(folder / "key")]
    subprocess.run([*command, "-out", str(folder / "cert")], check=True, capture_output=True)
    return folder


class Place:
    """A proxy on loopback with a resolver of our own, and a server that counts."""

    def __init__(self, **rules):
        self.facts = []
        self.asked = []
        self.seen = bytearray()
        self.noted = asyncio.Condition()
        self.writers = []
        self.connections = 0
        self.addresses = ["127.0.0.1"]
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\nhello"
        self.network = NetworkRules(
            **{"allow_net": True, "allowed_hosts": ("ok.test",), "private_networks": LOCAL, **rules}
        )
        self.grants: list[HostGrant] | None = []
        self.limits = EgressLimits(head_s=5, connect_s=5, idle_s=20)
        self.rates = None

    async def lookup(self, host, port):
        self.asked.append(host)
        if isinstance(self.addresses, Exception):
            raise self.addresses
        return self.addresses

    async def note(self, fact):
        self.facts.append(fact)
        async with self.noted:
            self.noted.notify_all()

    def facts_of(self, kind):
        return [fact for fact in self.facts if type(fact).__name__ == kind]

    async def handle(self, reader, writer):
        self.connections += 1
        while data := await reader.read(65536):
            self.seen += data
            if b"\r\n\r\n" in self.seen:
                writer.write(self.answer)
                await writer.drain()
        writer.close()

    @asynccontextmanager
    async def open(self, handle=None, tls=None):
        server = await asyncio.start_server(handle or self.handle, "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        if self.grants == []:
            self.grants = [HostGrant(pattern="*", port=self.port)]
        rules = EgressRules(
            network=lambda: self.network,
            grants=None if self.grants is None else lambda: self.grants,
        )
        self.proxy = EgressProxy(
            rules,
            principal="mcp:x",
            note=self.note,
            lookup=self.lookup,
            limits=self.limits,
            rates=self.rates,
        )
        listener = socket.create_server(("127.0.0.1", 0))
        self.address = listener.getsockname()
        listener.setblocking(False)
        listening = await self.proxy.serve(listener)
        try:
            yield self
        finally:
            for writer in self.writers:
                writer.transport.abort()
            await listening.aclose()
            server.close()

    async def ask(self, data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(data)
            async with asyncio.timeout(10):
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def connect(self, host: str, port: int | None = None):
        """Open a tunnel; return the proxy's status and the streams."""
        reader, writer = await asyncio.open_connection(*self.address)
        self.writers.append(writer)
        target = f"{host}:{port or self.port}"
        writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1]), reader, writer

    async def get(self, host: str, port: int | None = None, path: str = "/") -> bytes:
        target = f"{host}:{port or self.port}"
        return await self.ask(
            f"GET http://{target}{path} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()
        )


def status(answer: bytes) -> int:
    return int(answer.split()[1])


async def test_page_of_an_allowed_host_is_fetched_counted_and_kept():
    async with Place().open() as place:
        answer = await place.get("ok.test", path="/a?b")
        assert status(answer) == 200
        assert answer.endswith(b"hello")
        assert b"keep-alive" not in answer
        assert place.seen.startswith(b"GET /a?b HTTP/1.1\r\nHost: ok.test:")
        (opened,) = place.facts_of("EgressOpened")
        assert (opened.principal, opened.host, opened.addresses) == (
            "mcp:x",
            "ok.test",
            ("127.0.0.1",),
        )
        async with place.noted:
            await place.noted.wait_for(lambda: place.facts_of("EgressClosed"))
        (closed,) = place.facts_of("EgressClosed")
        assert closed.bytes_up == len(place.seen)
        assert closed.bytes_down == len(place.answer)
        assert closed.error == ""


async def test_tunnel_carries_tls_for_its_own_name_only(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert", certificate / "key")
    client = ssl.create_default_context(cafile=certificate / "cert")
    client.check_hostname = False
    async with Place().open(tls=context) as place:
        code, reader, writer = await place.connect("ok.test")
        assert code == 200
        await writer.start_tls(client, server_hostname="ok.test")
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.readexactly(12) == b"HTTP/1.1 200"
        writer.close()
        before = place.connections
        code, reader, writer = await place.connect("ok.test")
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await writer.start_tls(client, server_hostname="other.test")
        writer.close()
        assert place.connections == before
        (refused,) = place.facts_of("EgressRefused")
        assert "other.test" in refused.because


@pytest.mark.parametrize(
    "first",
    [
        made_hello(server_name(b"evil.test")),
        made_hello(b""),
        made_hello(server_name(b"ok.test") + extension(0xFE0D, b"hidden")),
        made_hello(server_name(b"ok.test") * 2),
        made_hello(server_name(b"ok.test", b"evil.test")),
        b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"SSH-2.0-OpenSSH_9\r\n",
        b"\x00" * 64,
    ],
    ids=["another", "none", "ech", "twice", "two", "http", "ssh", "zeros"],
)
async def test_tunnel_that_begins_otherwise_carries_nothing(first):
    async with Place().open() as place:
        code, reader, writer = await place.connect("ok.test")
        assert code == 200
        writer.write(first)
        async with asyncio.timeout(10):
            assert await reader.read() == b"\x15\x03\x01\x00\x02\x02\x70"
        writer.close()
        assert place.seen == b""
        assert len(place.facts_of("EgressRefused")) == 1


async def test_second_first_message_cannot_ask_for_another_name():
    retry = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
    hello = made_hello(server_name(b"ok.test"))
    place = Place()

    async def wants_another(reader, writer):
        await reader.readexactly(len(hello))
        writer.write(b"\x16\x03\x03\x00\x28\x02\x00\x00\x24\x03\x03" + retry)
        while data := await reader.read(65536):
            place.seen += data
            writer.write(b"welcome")
        writer.close()

    async with place.open(wants_another):
        for name, expected in ((b"ok.test", b"welcome"), (b"evil.test", b"\x15\x03")):
            second = b"\x14\x03\x03\x00\x01\x01" + made_hello(server_name(name))
            # Also one that comes before it is asked for, in one piece with the first or behind it.
            for early in (0, len(second), len(second) - 3):
                code, reader, writer = await place.connect("ok.test")
                assert code == 200
                writer.write(hello + second[:early])
                await reader.readexactly(43)
                writer.write(second[early:])
                async with asyncio.timeout(10):
                    assert (await reader.readexactly(len(expected))) == expected
                writer.close()
    assert b"evil.test" not in place.seen


async def test_what_a_client_sends_early_reaches_the_server_behind_its_first_message():
    hello = made_hello(server_name(b"ok.test"))
    early = b"\x17\x03\x03\x00\x05early"
    place = Place()

    async def answers(reader, writer):
        place.seen += await reader.readexactly(len(hello))
        writer.write(b"\x16\x03\x03\x00\x28\x02\x00\x00\x24\x03\x03" + bytes(32))
        place.seen += await reader.readexactly(len(early))
        writer.write(b"done")
        writer.close()

    async with place.open(answers):
        _, reader, writer = await place.connect("ok.test")
        writer.write(hello + early)
        async with asyncio.timeout(10):
            assert (await reader.read())[43:] == b"done"
        writer.close()
    assert bytes(place.seen) == hello + early


async def test_host_that_is_not_allowed_is_not_even_resolved():
    async with Place(blocked_hosts=("bad.ok.test",)).open() as place:
        for host in ("evil.test", "ok.test.evil.test", "secret-data.evil.test", "okXtest"):
            assert status(await place.get(host)) == 403
            assert (await place.connect(host))[0] == 403
        assert place.asked == []
        assert place.connections == 0


@pytest.mark.parametrize(
    "host", ["OK.test.", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "ok..test"]
)
async def test_host_in_a_strange_spelling_is_refused(host):
    async with Place(allowed_hosts=("*",)).open() as place:
        assert status(await place.get(host)) == 403
        assert place.asked == []


@pytest.mark.parametrize(
    "addresses",
    [
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::"],
        ["93.184.216.34", "192.168.0.1"],
        ["fe80::1%eth0"],
        ["0.0.0.0"],
        [],
        socket.gaierror("no such name"),
    ],
    ids=str,
)
async def test_inner_address_and_missing_name_look_the_same_from_inside(addresses):
    place = Place(private_networks=())
    place.addresses = addresses
    async with place.open():
        answer = await place.get("ok.test")
        code, reader, _writer = await place.connect("ok.test")
        expected = (
            b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Content-Length: 37\r\nConnection: close\r\n\r\nholdfast: the host cannot be reached\n"
        )
        assert answer == expected
        assert code == 502
        assert place.connections == 0
        assert not place.facts_of("EgressOpened")
        # The truth is in the audit.
        assert place.facts_of("EgressRefused")[0].because != "the host cannot be reached"


async def test_name_is_resolved_once_and_the_checked_address_is_used():
    place = Place(private_networks=LOCAL)
    answers = iter([["127.0.0.1"], ["10.9.9.9"]])

    async def rebinding(host, port):
        place.asked.append(host)
        return next(answers)

    place.lookup = rebinding
    async with place.open():
        assert status(await place.get("ok.test")) == 200
        assert place.asked == ["ok.test"]
        assert status(await place.get("ok.test")) == 502
        assert place.connections == 1


async def test_address_is_allowed_only_as_it_was_written():
    async with Place(allowed_hosts=("*",)).open() as place:
        assert status(await place.get("127.0.0.1")) == 403
        place.network = NetworkRules(
            allow_net=True, allowed_hosts=("127.0.0.1",), private_networks=LOCAL
        )
        assert status(await place.get("127.0.0.1")) == 403
        place.grants = [HostGrant(pattern="127.0.0.1", port=place.port)]
        assert status(await place.get("127.0.0.1")) == 200
        assert status(await place.get("[::ffff:127.0.0.1]")) == 403
        place.network = NetworkRules(allow_net=True, allowed_hosts=("127.0.0.1",))
        assert status(await place.get("127.0.0.1")) == 502


async def test_ports_are_those_of_the_web_unless_granted():
    place = Place()
    place.grants = None
    async with place.open():
        assert status(await place.get("ok.test")) == 403
        assert (await place.connect("ok.test", 22))[0] == 403
        place.proxy._rules = EgressRules(
            network=lambda: place.network, grants=lambda: [read_grant(f"*.test:{place.port}")]
        )
        assert status(await place.get("ok.test")) == 200
        assert (await place.connect("ok.test", 443))[0] == 403


async def test_revoked_grant_and_closed_network_hold_from_the_next_request_on():
    async with Place().open() as place:
        assert status(await place.get("ok.test")) == 200
        place.grants = [HostGrant(pattern="other.test")]
        assert status(await place.get("ok.test")) == 403
        place.grants = [HostGrant(pattern="ok.test", port=place.port)]
        assert status(await place.get("ok.test")) == 200
        place.network = NetworkRules(allowed_hosts=("ok.test",))
        assert status(await place.get("ok.test")) == 403


async def test_agents_own_rules_are_judged_too():
    place = Place()

    def judge(name, port):
        raise PermissionDenied(permission="network", target=name, because="a rule denies it")

    async with place.open():
        place.proxy._rules = EgressRules(
            network=lambda: place.network, grants=lambda: place.grants, judge=judge
        )
        assert b"a rule denies it" in await place.get("ok.test")
        assert place.asked == []


async def test_only_one_request_goes_over_a_connection():
    async with Place().open() as place:
        target = f"ok.test:{place.port}"
        hidden = b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n"
        one = f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\nContent-Length: 4\r\n\r\n"
        await place.ask(one.encode() + b"body" + hidden)
        assert place.seen.endswith(b"\r\n\r\nbody")
        assert b"evil" not in place.seen


async def test_chunks_are_written_anew_without_extensions_and_trailers():
    async with Place().open() as place:
        target = f"ok.test:{place.port}"
        head = f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding: chunked\r\n"
        body = b"4;x=y\r\nbody\r\n0\r\nX-Smuggled: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n"
        await place.ask(head.encode() + b"\r\n" + body)
        assert place.seen.endswith(b"\r\n\r\n4\r\nbody\r\n0\r\n\r\n")


@pytest.mark.parametrize("chunk", [b"-4\r\nbody", b"0x4\r\nbody", b"4\nbody\n", b"4\r\nbodyXX0"])
async def test_malformed_chunk_ends_the_request(chunk):
    place = Place()

    async def waits(reader, writer):
        while data := await reader.read(65536):
            place.seen += data
        writer.close()

    async with place.open(waits):
        target = f"ok.test:{place.port}"
        head = f"POST http://{target}/ HTTP/1.1\r\nHost: {target}\r\nTransfer-Encoding: chunked\r\n"
        answer = await place.ask(head.encode() + b"\r\n" + chunk + b"\r\n0\r\n\r\n")
        assert status(answer) == 400


@pytest.mark.parametrize(
    "answer",
    [b"hello\r\n\r\n", b"HTTP/2 200\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n", b"x" * 40_000],
    ids=["text", "h2", "switch", "endless"],
)
async def test_answer_that_is_none_reaches_no_program(answer):
    place = Place()
    place.answer = answer
    async with place.open():
        told = await place.get("ok.test")
        assert not told or status(told) == 502


async def test_flood_of_half_open_connections_is_bounded():
    place = Place()
    place.limits = EgressLimits(connections=3, head_s=1, connect_s=5, idle_s=5)
    async with place.open():
        held = [await asyncio.open_connection(*place.address) for _ in range(3)]
        for _, writer in held:
            writer.write(b"GET http://ok.test/ HTTP/1.1\r\n")
            await writer.drain()
        refused = await place.get("ok.test")
        assert not refused or status(refused) == 503
        # Each of them gets an answer, and its place becomes free, when its time is over.
        for reader, writer in held:
            assert status(await reader.read()) == 408
            writer.close()
        async with asyncio.timeout(10):
            while not (answer := await place.get("ok.test")) or status(answer) != 200:
                continue


async def test_requests_and_bytes_are_bounded():
    place = Place()
    place.limits = EgressLimits(requests=2, bytes_down=10_000, head_s=5, connect_s=5, idle_s=5)
    place.answer = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 200_000
    async with place.open():
        assert len(await place.get("ok.test")) < 100_000
        await place.get("ok.test")
        assert status(await place.get("ok.test")) == 429
        assert place.proxy.bytes_down > 10_000
        errors = {fact.error for fact in place.facts_of("EgressClosed")}
        assert errors == {"more than 10000 bytes were received"}


async def test_rate_of_a_host_is_held():
    clock = FakeClock()
    place = Place(host_rates=(("ok.test", 2),))
    place.rates = HostRates(clock)
    async with place.open():
        codes = [status(await place.get("ok.test")) for _ in range(3)]
        assert codes == [200, 200, 429]
        clock.advance(61)
        assert status(await place.get("ok.test")) == 200


async def test_repeated_refusals_do_not_flood_the_journal():
    async with Place().open() as place:
        for _ in range(25):
            await place.get("evil.test")
        counts = [fact.count for fact in place.facts_of("EgressRefused")]
        assert counts == [1, 10]
        for at in range(400):
            await place.proxy._refuse(f"h{at}.test", 80, "no")
        assert len(place.facts_of("EgressRefused")) < 220


async def test_what_cannot_be_recorded_does_not_happen():
    place = Place()

    async def full(fact):
        raise StorageError(path="journal", detail="the disk is full")

    place.note = full
    async with place.open():
        assert status(await place.get("ok.test")) == 503
        assert place.connections == 0


@pytest.mark.parametrize(
    "text", ["", "a b", "http://a.test", "a.test:0", "a.test:70000", "*.*", "u@a"]
)
def test_what_is_no_host_cannot_be_granted(text):
    with pytest.raises(UsageError):
        read_grant(text)


def test_grant_without_a_port_is_for_the_web():
    grant = read_grant("*.example.org")
    assert grant.allows("a.example.org", 443)
    assert not grant.allows("a.example.org", 8443)
    assert read_grant("a.test:8443").allows("a.test", 8443)
    assert not read_grant("a.test:8443").allows("a.test", 443)
    assert read_grant("[::1]:80").allows("::1", 80)
