"""Certificates are checked unless the endpoint says otherwise."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from wire_kit import KEY, answer

from holdfast.errors import LLMConnectionError
from holdfast.providers.wire import Endpoint, HttpTransport, Secret, WireModel
from holdfast.testing.fake_server import Reply
from holdfast.testing.fake_wires import read_whole_body


def certificate(folder: Path) -> tuple[Path, Path]:
    """Make a self-signed certificate for the loopback address and a name."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    places = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("provider.test")]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=365 * 100))
        .add_extension(x509.SubjectAlternativeName(places), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_file, key_file


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[tuple[str, Path]]:
    cert_file, key_file = certificate(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert_file, key_file)

    async def handle(request: web.Request) -> web.Response:
        body = read_whole_body("chat", Reply(text="Hello."), "m")
        return web.Response(body=body, content_type="application/json")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}/v1", cert_file
    await runner.cleanup()


async def test_an_unknown_certificate_is_refused_and_no_key_is_sent(
    place: tuple[str, Path], transport: HttpTransport
) -> None:
    endpoint = Endpoint(provider="p", base_url=place[0], key=Secret(KEY))
    with pytest.raises(LLMConnectionError) as caught:
        await answer(WireModel(endpoint, "m", transport))
    assert "certificate" in str(caught.value.context["detail"])


async def test_a_named_certificate_is_trusted(
    place: tuple[str, Path], transport: HttpTransport
) -> None:
    endpoint = Endpoint(provider="p", base_url=place[0], ca_file=str(place[1]))
    assert (await answer(WireModel(endpoint, "m", transport))).text == "Hello."


async def test_checking_can_be_switched_off_by_name(
    place: tuple[str, Path], transport: HttpTransport
) -> None:
    endpoint = Endpoint(provider="p", base_url=place[0], verify_tls=False)
    assert (await answer(WireModel(endpoint, "m", transport))).text == "Hello."


@asynccontextmanager
async def tunnel() -> AsyncIterator[tuple[int, list[bytes]]]:
    """Give the port of a proxy that connects to this machine, and what it was told first."""
    told: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []

    async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append(await reader.readuntil(b"\r\n\r\n"))
        _, _, port = told[-1].split(b" ")[1].decode().partition(":")
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        for pair in ((reader, far_writer), (far_reader, writer)):
            writers.append(pair[1])
            tasks.add(asyncio.create_task(pump(*pair)))

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], told
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_proxy_tunnels_to_the_provider_and_sees_no_key(
    place: tuple[str, Path], transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with tunnel() as (port, told):
        monkeypatch.setenv("https_proxy", f"http://user:pass@127.0.0.1:{port}")
        base_url = place[0].replace("127.0.0.1", "provider.test")
        endpoint = Endpoint(provider="p", base_url=base_url, key=Secret(KEY), ca_file=str(place[1]))
        model = WireModel(endpoint, "m", transport)
        assert (await answer(model)).text == (await answer(model)).text == "Hello."
        await transport.close()
    assert len(told) == 1 and told[0].startswith(b"CONNECT provider.test:")
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNz" in told[0]
    assert KEY.encode() not in told[0]
