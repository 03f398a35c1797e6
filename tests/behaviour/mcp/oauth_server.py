"""An MCP server that wants OAuth, and the authorization server beside it, on one address."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from typing import Any
from urllib.parse import parse_qs, urlencode

from mcp_server import make_server

Send = Any


class OAuthServer:
    """Lets in who has a token of it; notes what it was asked."""

    def __init__(self, **metadata: Any) -> None:
        self.inner = make_server().streamable_http_app()
        self.metadata = metadata
        self.port = 0
        self.asked: list[str] = []
        self.forms: list[dict[str, str]] = []
        self.codes: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, str] = {}
        self.scope = "read"
        self.iss = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        if scope["type"] != "http":
            await self.inner(scope, receive, send)
            return
        path = scope["path"]
        self.asked.append(path)
        if path == "/mcp":
            given = dict(scope["headers"]).get(b"authorization", b"").decode()
            held = self.tokens.get(given.removeprefix("Bearer "))
            if held is None or self.scope not in held.split():
                await self.refuse(send, is_known=held is not None)
                return
            await self.inner(scope, receive, send)
        elif path.startswith("/.well-known/oauth-protected-resource"):
            about = {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
            await self.answer(send, about)
        elif path.startswith("/.well-known/oauth-authorization-server"):
            await self.answer(send, self.describe())
        elif path == "/register":
            body = json.loads(await read(receive))
            await self.answer(send, {**body, "client_id": secrets.token_hex(4)}, 201)
        elif path == "/authorize":
            await self.authorize(scope, send)
        elif path == "/token":
            await self.give_token(await read(receive), send)
        else:
            await self.answer(send, {}, 404)

    def describe(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            **self.metadata,
        }

    async def refuse(self, send: Send, *, is_known: bool) -> None:
        place = f"{self.url}/.well-known/oauth-protected-resource/mcp"
        told = f'Bearer resource_metadata="{place}", scope="{self.scope}"'
        if is_known:
            told += ', error="insufficient_scope"'
        head = [(b"www-authenticate", told.encode())]
        await self.answer(send, {}, 403 if is_known else 401, head)

    async def authorize(self, scope: Any, send: Send) -> None:
        given = {name: value[0] for name, value in parse_qs(scope["query_string"].decode()).items()}
        code = secrets.token_hex(8)
        self.codes[code] = given
        back = {"code": code, "state": given["state"]} | ({"iss": self.iss} if self.iss else {})
        place = f"{given['redirect_uri']}?{urlencode(back)}"
        await self.answer(send, {}, 302, [(b"location", place.encode())])

    async def give_token(self, body: bytes, send: Send) -> None:
        form = {name: value[0] for name, value in parse_qs(body.decode()).items()}
        self.forms.append(form)
        asked = self.codes.pop(form.get("code", ""), None)
        if form["grant_type"] == "authorization_code":
            verifier = form.get("code_verifier", "").encode()
            digest = base64.urlsafe_b64encode(hashlib.sha256(verifier).digest()).rstrip(b"=")
            if asked is None or digest.decode() != asked["code_challenge"]:
                await self.answer(send, {"error": "invalid_grant"}, 400)
                return
        token = secrets.token_hex(8)
        granted = (asked or {}).get("scope") or self.scope
        self.tokens[token] = granted
        told = {"access_token": token, "token_type": "Bearer", "scope": granted}
        await self.answer(send, {**told, "expires_in": 3600, "refresh_token": "again"})

    async def answer(self, send: Send, body: Any, status: int = 200, headers: Any = ()) -> None:
        head = [(b"content-type", b"application/json"), *headers]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})


async def read(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body
