"""An endpoint refuses nonsense and shows no secret."""

from __future__ import annotations

import copy
import logging
import pickle
from typing import Any

import msgspec
import pytest
from wire_kit import KEY, answer, ask

from holdfast.errors import ConfigError, LLMConnectionError
from holdfast.providers.wire import Endpoint, HttpTransport, Secret, Timeouts, WireModel
from holdfast.testing.fake_server import FakeServer, Reply

HIDDEN = ("hunter22", "qs-value", "header-value", KEY)


def endpoint(**changes: Any) -> Endpoint:
    given: dict[str, Any] = {"provider": "p", "base_url": "https://h/v1", **changes}
    return Endpoint(**given)


def test_no_form_of_an_endpoint_shows_a_secret() -> None:
    made = endpoint(
        base_url="https://user:hunter22@h:8443/v1/?key=qs-value",
        key=Secret(KEY),
        headers={"X-Token": "header-value"},
    )
    shown = f"{made!r} {made} {made.shown_url} {made.key!r} {made.key}"
    for secret in HIDDEN:
        assert secret not in shown
    assert made.shown_url == "https://h:8443/v1/?key=***"
    assert made.url("/messages") == "https://h:8443/v1/messages?key=qs-value"


def test_a_secret_does_not_travel() -> None:
    secret = Secret(KEY)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        msgspec.json.encode(endpoint(key=secret))
    assert copy.deepcopy(secret) is secret and copy.copy(secret) is secret
    assert secret == Secret(KEY) != Secret("other") and hash(secret) == hash(Secret(KEY))
    assert secret != KEY and secret and not Secret()


@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": ""},
        {"base_url": "h/v1"},
        {"base_url": "ftp://h/v1"},
        {"base_url": "file:///etc/passwd"},
        {"base_url": "http://"},
        {"base_url": "http://h:99999/v1"},
        {"base_url": "http://h/v1#x"},
        {"base_url": "http://h/v 1"},
        {"base_url": "http://h/v1\r\nX: y"},
        {"base_url": "http://[::1/v1"},
        {"headers": {"X Y": "z"}},
        {"headers": {"X": "a\r\nY: b"}},
        {"headers": {"content-LENGTH": "3"}},
        {"headers": {"Transfer-Encoding": "chunked"}},
    ],
    ids=range(14),
)
def test_what_cannot_be_meant_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        endpoint(**changes)


@pytest.mark.parametrize("bad", [0, -1, float("inf"), float("nan")])
def test_limits_must_be_positive_and_finite(bad: float) -> None:
    with pytest.raises(ConfigError):
        Timeouts(idle_s=bad)


@pytest.mark.parametrize("key", ["a\r\nX: y", "schlüssel", "a\x00"])
def test_a_key_that_is_no_header_is_refused_unnamed(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        endpoint(key=Secret(key)).make_auth_headers()
    assert key not in str(caught.value)


def test_credentials_go_where_each_api_wants_them() -> None:
    assert endpoint(key=Secret("k")).make_auth_headers() == {"Authorization": "Bearer k"}
    assert endpoint(key=Secret("k"), api="anthropic").make_auth_headers() == {"x-api-key": "k"}
    login = endpoint(base_url="https://a:b@h/v1")
    assert login.make_auth_headers() == {"Authorization": "Basic YTpi"}
    assert endpoint().make_auth_headers() == {}


async def test_nothing_that_is_logged_or_kept_shows_the_key(
    model: WireModel, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.answers.append(Reply(text="Hello."))
    message = await answer(model)
    await server.stop()
    with pytest.raises(LLMConnectionError):
        await answer(model)
    shown = caplog.text + repr(message) + repr(model) + repr(model.endpoint) + repr(vars(model))
    assert KEY not in shown


async def test_a_rotated_key_is_used_at_once(
    wire: str, server: FakeServer, transport: HttpTransport
) -> None:
    class Rotating:
        value = "sk-old-0123456789"

        def reveal(self) -> str:
            return self.value

    source = Rotating()
    made = endpoint(base_url=server.base_url, api=wire, key=source)
    model = WireModel(made, "m", transport)
    source.value = KEY
    server.answers.append(Reply(text="Hello."))
    assert (await answer(model, ask())).text == "Hello."


async def test_a_proxy_of_the_environment_is_used(
    wire: str, monkeypatch: pytest.MonkeyPatch, transport: HttpTransport
) -> None:
    async with FakeServer([Reply(text="Through the proxy.")], check=False) as proxy:
        monkeypatch.setenv("http_proxy", proxy.origin.replace("://", "://user:pass@"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        made = endpoint(base_url="http://provider.invalid/v1", api=wire)
        found = await answer(WireModel(made, "m", transport))
        assert found.text == "Through the proxy."
        assert proxy.requests[0].headers["host"] == "provider.invalid"
        assert proxy.requests[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"
        monkeypatch.setenv("no_proxy", "provider.invalid")
        assert HttpTransport().proxy(made) is None


@pytest.mark.parametrize("host", ["127.0.0.1:1234", "localhost:11434", "[::1]:8080", "b.test:90"])
def test_this_machine_and_what_is_excepted_is_not_asked_through_a_proxy(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("http", "https"):
        monkeypatch.setenv(f"{scheme}_proxy", "http://proxy.invalid:3128")
        monkeypatch.setenv("no_proxy", "b.test:90")
        assert HttpTransport().proxy(endpoint(base_url=f"{scheme}://{host}/v1")) is None
        assert HttpTransport().proxy(endpoint(base_url=f"{scheme}://c.test/v1")) is not None


def test_certificates_that_cannot_be_read_are_a_mistake_in_the_configuration() -> None:
    with pytest.raises(ConfigError):
        HttpTransport().tls(endpoint(ca_file="/nowhere/ca.pem"))
    assert HttpTransport().tls(endpoint()) is True
    assert HttpTransport().tls(endpoint(verify_tls=False)) is False
