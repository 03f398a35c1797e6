"""Browsers log in at an identity provider (OpenID Connect), where one is configured.

The authorization code flow with PKCE: the browser goes to the provider with a state, a nonce and
a challenge, comes back with a code, and the server exchanges that for a token over a connection
of its own. The token then is a credential as any other: it is verified with the keys of
`server.jwt`, and a login ends with it. What belongs to one attempt is in a cookie of that browser
(`HttpOnly`, ten minutes), so that no other browser can finish a login that this one began.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from holdfast.clock import SYSTEM
from holdfast.errors import ConfigError, HoldfastError, NetworkFailed, Unauthenticated
from holdfast.ids import make_random_token
from holdfast.observability import Logger
from holdfast.policy import NetworkRules, open_every_port
from holdfast.server.guard import is_loopback
from holdfast.server.identity import RequestHead
from holdfast.settings import Settings
from holdfast.tools import HttpRequest, SafeHttpClient

_log = Logger("holdfast.server")
CALLBACK: Final = "/login/callback"
_COOKIE: Final = "holdfast_oidc"
_ATTEMPT_S: Final = 600
_KEPT_S: Final = 3_600.0
"""So long what the provider says of itself is believed."""
_LARGEST: Final = 256 * 1024


class ProviderEndpoints(msgspec.Struct, frozen=True):
    """What a provider says of itself, as far as it is needed here."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)


class LoginAttempt(msgspec.Struct, frozen=True, array_like=True):
    """What a browser keeps while it is at the provider."""

    state: str
    nonce: str
    verifier: str
    to: str


class IdentityProvider:
    """Sends browsers to the issuer of `server.jwt`, and takes them back with a token."""

    def __init__(self, settings: Settings) -> None:
        """Use the issuer and the client of the settings; nothing is asked yet.

        Raises:
            ConfigError: the issuer is no https address, or no keys are configured for its tokens.
        """
        self._options = settings.server.jwt
        self._secret = settings.secrets.oidc_client_secret
        issuer = self._options.issuer or ""
        if not _is_safe(issuer):
            raise ConfigError(
                detail="server.jwt.client_id: browsers can log in only where `issuer` is an https "
                "address"
            )
        if self._options.jwks_file is None and self._options.jwks_url is None:
            raise ConfigError(detail="server.jwt.client_id: `jwks_url` or `jwks_file` is needed")
        self._endpoints: ProviderEndpoints | None = None
        self._read_at = 0.0

    async def begin(self, request: RequestHead, root: str, to: str) -> tuple[str, tuple[str, str]]:
        """Return where a browser goes to log in, and the cookie with which it comes back.

        Raises:
            NetworkFailed: the provider cannot be asked, or says nothing that can be used.
        """
        found = await self._read_endpoints()
        attempt = LoginAttempt(
            state=make_random_token(32),
            nonce=make_random_token(32),
            verifier=make_random_token(32),
            to=to,
        )
        digest = hashlib.sha256(attempt.verifier.encode()).digest()
        asked = {
            "response_type": "code",
            "client_id": self._options.client_id,
            "redirect_uri": _make_callback(request, root),
            "scope": self._options.login_scope,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        mark = "&" if urlsplit(found.authorization_endpoint).query else "?"
        kept = base64.urlsafe_b64encode(msgspec.json.encode(attempt)).rstrip(b"=").decode()
        cookie = _make_cookie(request, kept, max_age=_ATTEMPT_S)
        return f"{found.authorization_endpoint}{mark}{urlencode(asked)}", cookie

    async def finish(
        self, request: RequestHead, root: str, query: Mapping[str, str]
    ) -> tuple[str, str]:
        """Return the token for which a code was exchanged, and where the browser wanted to go.

        Raises:
            Unauthenticated: this browser did not begin it, or the provider refused.
            NetworkFailed: the provider cannot be asked.
        """
        attempt = _read_attempt(request)
        state = query.get("state", "")
        if attempt is None or not hmac.compare_digest(attempt.state.encode(), state.encode()):
            raise Unauthenticated
        if not query.get("code"):
            told = query.get("error", "")[:200]
            _log.warning("the identity provider refused a login", error=told)
            raise Unauthenticated
        found = await self._read_endpoints()
        if query.get("iss", found.issuer) != found.issuer:
            raise Unauthenticated
        fields = {
            "grant_type": "authorization_code",
            "code": query["code"],
            "redirect_uri": _make_callback(request, root),
            "client_id": self._options.client_id or "",
            "code_verifier": attempt.verifier,
        }
        answer = await self._exchange(found, fields)
        token = answer.get("access_token" if self._options.login_token == "access" else "id_token")
        if not isinstance(token, str):
            raise Unauthenticated
        if self._options.login_token == "id" and not _has_nonce(token, attempt.nonce):
            raise Unauthenticated
        return token, attempt.to

    def end(self, request: RequestHead) -> tuple[str, str]:
        """Return the header that takes the cookie of an attempt away."""
        return _make_cookie(request, "", max_age=0)

    async def _exchange(
        self, found: ProviderEndpoints, fields: dict[str, str]
    ) -> Mapping[str, Any]:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        if self._secret is not None:
            secret = self._secret.get_secret_value()
            if "client_secret_post" in found.token_endpoint_auth_methods_supported:
                fields = {**fields, "client_secret": secret}
            else:
                pair = f"{quote(fields['client_id'], safe='')}:{quote(secret, safe='')}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        body = urlencode(fields).encode()
        status, data = await self._ask(found.token_endpoint, "POST", headers=headers, body=body)
        if status != 200:
            _log.warning("the identity provider did not take the code", status=status)
            raise Unauthenticated
        try:
            return msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise Unauthenticated from error

    async def _read_endpoints(self) -> ProviderEndpoints:
        if self._endpoints is not None and SYSTEM.monotonic() - self._read_at < _KEPT_S:
            return self._endpoints
        issuer = str(self._options.issuer)
        address = f"{issuer.rstrip('/')}/.well-known/openid-configuration"
        status, data = await self._ask(address, "GET")
        try:
            found = msgspec.json.decode(data, type=ProviderEndpoints) if status == 200 else None
        except msgspec.DecodeError:
            found = None
        is_whole = found is not None and found.issuer == issuer
        if found is None or not is_whole or not _is_safe(found.authorization_endpoint):
            raise NetworkFailed(url=address, detail="it does not describe the issuer")
        self._endpoints, self._read_at = found, SYSTEM.monotonic()
        return found

    async def _ask(
        self, url: str, method: str, *, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> tuple[int, bytes]:
        """Ask a host of the provider, and no other, over https unless it is this machine."""
        if not _is_safe(url):
            raise NetworkFailed(url=url[:200], detail="the address is not https")
        rules = NetworkRules(
            allow_net=True,
            allowed_hosts=(open_every_port(urlsplit(url).hostname or ""),),
            private_networks=self._options.jwks_networks,
        )
        asked = HttpRequest(
            url=url,
            method=method,
            headers=headers or {},
            body=body,
            max_bytes=_LARGEST,
            timeout_s=10.0,
        )
        try:
            answer = await SafeHttpClient(rules).fetch(asked)
        except HoldfastError as error:
            raise NetworkFailed(url=url, detail=str(error)) from error
        return answer.status, answer.body


def _is_safe(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    )


def _make_callback(request: RequestHead, root: str) -> str:
    """Return where the provider sends the browser back to: the name was checked by the guard."""
    return f"{request.scheme}://{request.headers.get('host', '')}{root}{CALLBACK}"


def _name_cookie(request: RequestHead) -> str:
    if request.scheme == "https":
        return f"__Host-{_COOKIE}"
    _, _, port = request.headers.get("host", "").rpartition(":")
    return f"{_COOKIE}_{port}" if port.isdigit() else _COOKIE


def _make_cookie(request: RequestHead, value: str, *, max_age: int) -> tuple[str, str]:
    # Lax: the browser comes back from another site, and has to bring it along.
    parts = [f"{_name_cookie(request)}={value}", "Path=/", "HttpOnly", "SameSite=Lax"]
    parts += [f"Max-Age={max_age}", *(["Secure"] if request.scheme == "https" else [])]
    return ("set-cookie", "; ".join(parts))


def _read_attempt(request: RequestHead) -> LoginAttempt | None:
    name = _name_cookie(request)
    pairs = (part.partition("=") for part in request.headers.get("cookie", "").split(";"))
    found = [value.strip() for one, _, value in pairs if one.strip() == name]
    if len(found) != 1 or len(found[0]) > 2_000:
        return None
    try:
        data = base64.urlsafe_b64decode(found[0] + "=" * (-len(found[0]) % 4))
        return msgspec.json.decode(data, type=LoginAttempt)
    except (ValueError, msgspec.DecodeError):
        return None


def _has_nonce(token: str, nonce: str) -> bool:
    """Say whether an ID token is of this attempt; its signature is checked with each request."""
    try:
        part = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (IndexError, ValueError, msgspec.DecodeError):
        return False
    given = claims.get("nonce") if isinstance(claims, dict) else None
    return isinstance(given, str) and hmac.compare_digest(given.encode(), nonce.encode())


__all__ = ["CALLBACK", "IdentityProvider", "LoginAttempt", "ProviderEndpoints"]
