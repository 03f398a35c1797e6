"""OAuth 2.1 at an MCP server: the SDK's flow, with our store, our browser and our network rules.

The SDK discovers the authorization server, checks its issuer, registers us or names our metadata
document, proves the code by PKCE, binds tokens to the server, and asks for more scopes where a
call needs them. What is ours: tokens outlive the process, their age included; a browser comes
back to an address of this machine; no browser is opened where no person attends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)

from holdfast.clock import SYSTEM
from holdfast.errors import McpAuthFailed
from holdfast.mcp.callback import Callback
from holdfast.mcp.logins import KeptLogin, LoginBook
from holdfast.settings import McpEndpoint

_NOBODY: Final = "http://127.0.0.1/callback"
_LONGEST_LOGIN_S: Final = 600.0

Visit = Callable[[str], Awaitable[None]]
"""Shows a person the page of a login."""


class LoginStore:
    """The tokens of one server, as the SDK asks for them."""

    def __init__(
        self,
        name: str,
        endpoint: McpEndpoint,
        book: LoginBook,
        *,
        client: OAuthClientInformationFull | None = None,
        redirect: str = "",
    ) -> None:
        """Keep them in this book.

        `client` is how we were registered by hand, if we were; `redirect` where a browser comes
        back to, if one is sent: a registration for another address is of no use then.
        """
        self._name = name
        self._book = book
        self._client = client
        self._redirect = redirect
        self._url = str(endpoint.url)
        self.context: Any = None

    async def read(self) -> KeptLogin:
        """Return what is kept."""
        return await asyncio.to_thread(self._book.read, self._name, self._url)

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, if we are logged in."""
        kept = await self.read()
        return OAuthToken.model_validate(kept.tokens) if kept.tokens else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep new tokens, when they end, and who gave them."""
        kept = await self.read()
        kept.tokens = tokens.model_dump(mode="json", exclude_none=True)
        kept.expires_at = SYSTEM.now() + tokens.expires_in if tokens.expires_in else None
        metadata = self.context.oauth_metadata
        if metadata is not None:
            kept.authorization_server = metadata.model_dump(mode="json", exclude_none=True)
        await asyncio.to_thread(self._book.keep, self._name, kept)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return how we are registered."""
        if self._client is not None:
            return self._client
        kept = await self.read()
        if not kept.client:
            return None
        found = OAuthClientInformationFull.model_validate(kept.client)
        known = [str(one) for one in found.redirect_uris or ()]
        return found if not self._redirect or self._redirect in known else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Keep how we are registered."""
        kept = await self.read()
        kept.client = client_info.model_dump(mode="json", exclude_none=True)
        await asyncio.to_thread(self._book.keep, self._name, kept)


class _Provider(OAuthClientProvider):
    """Knows from the store when tokens end and who refreshes them."""

    async def _initialize(self) -> None:
        await super()._initialize()
        store = cast("LoginStore", self.context.storage)
        kept = await store.read()
        self.context.token_expiry_time = kept.expires_at
        if kept.authorization_server and self.context.oauth_metadata is None:
            metadata = OAuthMetadata.model_validate(kept.authorization_server)
            self.context.oauth_metadata = metadata
            self.context.auth_server_url = str(metadata.issuer)


def make_login(
    name: str,
    endpoint: McpEndpoint,
    book: LoginBook,
    *,
    read_secret: Callable[[str], str],
    visit: Visit,
    callback: Callback | None,
) -> httpx2.Auth:
    """Return what logs in at a server.

    What `visit` raises ends the login: where no browser can be sent to a page, kept tokens are used
    and refreshed, and no more. A browser that it sends there comes back to `callback`.

    Raises:
        McpAuthFailed: a variable that the endpoint names is not set.
    """
    oauth = endpoint.oauth
    url = str(endpoint.url)
    scope = oauth.scope or None
    issuer = str(oauth.issuer) if oauth.issuer else None

    def read(variable: str) -> str:
        found = read_secret(variable)
        if not found:
            raise McpAuthFailed(endpoint=name, detail=f"the variable {variable} is not set")
        return found

    store = LoginStore(name, endpoint, book, redirect=callback.url if callback else "")
    made: OAuthClientProvider
    if oauth.grant == "client_credentials":
        made = _make_machine_login(endpoint, store, read, issuer, scope)
    else:
        redirect = callback.url if callback is not None else _NOBODY
        secret = read(oauth.client_secret_env) if oauth.client_secret_env else None
        if oauth.client_id:
            client = _make_client(oauth.client_id, secret, redirect, issuer)
            store = LoginStore(name, endpoint, book, client=client)
        told = OAuthClientMetadata.model_validate(
            {
                "client_name": "Holdfast",
                "redirect_uris": [redirect],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "scope": scope,
            }
        )
        show, wait = _make_handlers(visit, callback)
        made = _Provider(
            server_url=url,
            client_metadata=told,
            storage=store,
            redirect_handler=show,
            callback_handler=wait,
            client_metadata_url=str(oauth.client_metadata_url)
            if oauth.client_metadata_url
            else None,
        )
    store.context = made.context
    return made


def _make_machine_login(
    endpoint: McpEndpoint,
    store: LoginStore,
    read: Callable[[str], str],
    issuer: str | None,
    scope: str | None,
) -> OAuthClientProvider:
    oauth, url = endpoint.oauth, str(endpoint.url)
    if oauth.private_key_env:
        signed = SignedJWTParameters(
            issuer=oauth.client_id,
            subject=oauth.client_id,
            signing_algorithm=oauth.algorithm,
            signing_key=read(oauth.private_key_env),
        )
        return PrivateKeyJWTOAuthProvider(
            url, store, oauth.client_id, signed.create_assertion_provider(), scope, issuer or ""
        )
    return ClientCredentialsOAuthProvider(
        url,
        store,
        oauth.client_id,
        read(oauth.client_secret_env),
        "client_secret_basic",
        scope,
        issuer or "",
    )


def _make_client(
    id: str, secret: str | None, redirect: str, issuer: str | None
) -> OAuthClientInformationFull:
    return OAuthClientInformationFull.model_validate(
        {
            "client_id": id,
            "issuer": issuer,
            "client_secret": secret,
            "redirect_uris": [redirect],
            "token_endpoint_auth_method": "client_secret_basic" if secret else "none",
        }
    )


def _make_handlers(
    visit: Visit, callback: Callback | None
) -> tuple[Visit, Callable[[], Awaitable[AuthorizationCodeResult]]]:
    async def show(url: str) -> None:
        if callback is not None:
            callback.forget()
        await visit(url)

    async def wait() -> AuthorizationCodeResult:
        assert callback is not None
        try:
            async with asyncio.timeout(_LONGEST_LOGIN_S):
                given = await callback.wait()
        except TimeoutError:
            raise OAuthFlowError("no answer came back from the page in time") from None
        if "error" in given:
            told = given.get("error_description") or given["error"]
            raise OAuthFlowError(f"the page refused: {told[:200]}")
        return AuthorizationCodeResult(
            code=given.get("code", ""), state=given.get("state"), iss=given.get("iss")
        )

    return show, wait


__all__ = ["LoginStore", "Visit", "make_login"]
