"""Logging in at an identity provider: who began it ends it, and nobody else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from served import Running, running

from holdfast.errors import ConfigError
from holdfast.server import create_app
from holdfast.settings import load_settings


class FakeProvider:
    """An issuer with one key, which lets in whoever comes."""

    def __init__(self) -> None:
        self.signer = ec.generate_private_key(ec.SECP256R1())
        self.url = ""
        self.issuer = ""
        self.claims: dict[str, Any] = {}
        self.asked: dict[str, str] = {}
        self.authorization = ""
        self.nonce = ""
        self.challenge = ""

    async def describe(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.issuer or self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
            }
        )

    async def exchange(self, request: web.Request) -> web.Response:
        form = dict(await request.post())
        self.asked = {name: str(value) for name, value in form.items()}
        self.authorization = request.headers.get("authorization", "")
        digest = hashlib.sha256(self.asked.get("code_verifier", "").encode()).digest()
        is_same = base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == self.challenge
        if self.asked.get("code") != "good" or not is_same:
            return web.json_response({"error": "invalid_grant"}, status=400)
        claims = {"iss": self.url, "aud": "holdfast", "sub": "ada", "exp": 9_999_999_999,
                  "roles": ["viewer"], "nonce": self.nonce, **self.claims}  # fmt: skip
        token = jwt.encode(claims, self.signer, algorithm="ES256", headers={"kid": "one"})
        return web.json_response({"id_token": token, "token_type": "Bearer"})


@asynccontextmanager
async def providing(place: Path, **more: Any) -> AsyncIterator[tuple[Running, FakeProvider]]:
    """Serve with a provider on this machine."""
    provider = FakeProvider()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", provider.describe)
    app.router.add_post("/token", provider.exchange)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    sockets: Any = site._server
    provider.url = f"http://127.0.0.1:{sockets.sockets[0].getsockname()[1]}"
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(provider.signer.public_key()))
    place.mkdir(exist_ok=True)
    keys = place / "keys.json"
    keys.write_text(json.dumps({"keys": [public | {"kid": "one", "use": "sig"}]}))
    options = {"jwt.issuer": provider.url, "jwt.audience": "holdfast", "jwt.jwks_file": str(keys),
               "jwt.client_id": "holdfast", "jwt.jwks_networks": ["127.0.0.0/8"],
               **more}  # fmt: skip
    try:
        async with running(place / "state", **options) as server:
            yield server, provider
    finally:
        await runner.cleanup()


class FakeBrowser:
    """Keeps cookies, and follows no redirect by itself."""

    def __init__(self, server: Running) -> None:
        self.server = server
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def get(self, path: str) -> tuple[int, str, str]:
        """Return the status, where it leads, and the page."""
        url = self.server.url + path
        async with self.http.get(url, allow_redirects=False) as answer:
            return answer.status, answer.headers.get("location", ""), await answer.text()

    async def begin(self, provider: FakeProvider, to: str = "/dashboard") -> dict[str, str]:
        """Go to the provider; returns what it is asked."""
        status, place, _ = await self.get(f"/login/provider?to={to}")
        assert status == 303 and place.startswith(f"{provider.url}/authorize?"), place
        asked = {name: one[0] for name, one in parse_qs(urlsplit(place).query).items()}
        provider.nonce, provider.challenge = asked["nonce"], asked["code_challenge"]
        return asked


@asynccontextmanager
async def browsing(server: Running) -> AsyncIterator[FakeBrowser]:
    browser = FakeBrowser(server)
    try:
        yield browser
    finally:
        await browser.http.close()


async def test_browser_logs_in_at_the_provider_and_gets_the_page_it_wanted(tmp_path: Path) -> None:
    async with providing(tmp_path) as (server, provider), browsing(server) as browser:
        _, _, page = await browser.get("/dashboard/login?next=/dashboard/runs")
        assert "/login/provider?to=/dashboard/runs" in page
        asked = await browser.begin(provider, "/dashboard/runs")
        assert asked["redirect_uri"] == f"{server.url}/login/callback"
        assert asked["response_type"] == "code" and asked["code_challenge_method"] == "S256"
        status, _, page = await browser.get(f"/login/callback?code=good&state={asked['state']}")
        assert status == 200 and 'url=/dashboard/runs"' in page
        assert provider.asked["client_id"] == "holdfast" and not provider.authorization
        status, _, page = await browser.get("/dashboard/runs")
        assert status == 200 and "ada" in page
        assert (await browser.get("/dashboard/keys"))[0] == 403
        # The attempt is over: the same answer again opens nothing.
        again = await browser.get(f"/login/callback?code=good&state={asked['state']}")
        assert again[1].endswith("/dashboard/login?wrong=provider")


@pytest.mark.parametrize("wrong", ["state", "code", "refused", "nonce", "audience", "issuer"])
async def test_login_that_is_not_whole_opens_nothing(tmp_path: Path, wrong: str) -> None:
    async with providing(tmp_path) as (server, provider), browsing(server) as browser:
        asked = await browser.begin(provider)
        state = "x" * 43 if wrong == "state" else asked["state"]
        provider.claims = {"nonce": "of-another"} if wrong == "nonce" else {}
        provider.claims |= {"aud": "another"} if wrong == "audience" else {}
        more = {"code": "code=bad", "refused": "error=access_denied"}.get(wrong, "code=good")
        more += "&iss=https://evil.example" if wrong == "issuer" else ""
        status, place, _ = await browser.get(f"/login/callback?{more}&state={state}")
        assert (status, place) == (303, "/dashboard/login?wrong=provider")
        status, _, page = await browser.get("/dashboard/login?wrong=provider")
        assert status == 401 and "identity provider refused" in page
        assert (await browser.get("/dashboard/runs"))[0] == 303


async def test_nobody_finishes_what_another_browser_began(tmp_path: Path) -> None:
    async with providing(tmp_path) as (server, provider), browsing(server) as mallory:
        asked = await mallory.begin(provider)
        async with browsing(server) as victim:
            for _ in range(2):
                answer = await victim.get(f"/login/callback?code=good&state={asked['state']}")
                assert answer[:2] == (303, "/dashboard/login?wrong=provider")
                await victim.begin(provider)


async def test_failures_at_the_provider_are_counted_as_all_others(tmp_path: Path) -> None:
    async with providing(tmp_path, failed_logins=3) as (server, _), browsing(server) as browser:
        found = [(await browser.get("/login/callback?code=x&state=y"))[0] for _ in range(5)]
        assert found == [303, 303, 303, 429, 429]


async def test_login_at_the_provider_leads_nowhere_else(tmp_path: Path) -> None:
    async with providing(tmp_path) as (server, _), browsing(server) as browser:
        for place in ("https://evil.example/", "//evil.example", "/dashboard\\@evil"):
            assert (await browser.get(f"/login/provider?to={place}"))[0] == 400, place


async def test_provider_that_describes_another_issuer_is_not_believed(tmp_path: Path) -> None:
    async with providing(tmp_path) as (server, provider), browsing(server) as browser:
        provider.issuer = "https://evil.example"
        status, place, _ = await browser.get("/login/provider")
        assert (status, place) == (303, "/dashboard/login?wrong=provider-out")
        assert "cannot be asked now" in (await browser.get(place))[2]


async def test_secret_of_the_client_is_sent_to_the_provider_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_OIDC_CLIENT_SECRET", "s3cret:/+")
    async with providing(tmp_path) as (server, provider), browsing(server) as browser:
        asked = await browser.begin(provider)
        assert "s3cret" not in json.dumps(asked)
        await browser.get(f"/login/callback?code=good&state={asked['state']}")
        sent = base64.b64decode(provider.authorization.removeprefix("Basic ")).decode()
        assert sent == "holdfast:s3cret%3A%2F%2B"
        assert "client_secret" not in provider.asked


async def test_without_a_provider_there_is_no_such_login(tmp_path: Path) -> None:
    async with running(tmp_path) as server, browsing(server) as browser:
        assert (await browser.get("/login/provider"))[0] == 404
        assert "identity provider" not in (await browser.get("/dashboard/login"))[2]


@pytest.mark.parametrize("issuer", ["http://login.example", "ftp://x", "login"])
def test_provider_over_plain_http_is_refused_before_anything_is_served(
    tmp_path: Path, issuer: str
) -> None:
    overrides = {"storage.state_dir": str(tmp_path), "server.jwt.issuer": issuer,
                 "server.jwt.client_id": "c", "server.jwt.audience": "c",
                 "server.jwt.jwks_file": str(tmp_path / "keys.json")}  # fmt: skip
    with pytest.raises(ConfigError, match="https"):
        create_app(load_settings(overrides=overrides))
