"""Browsers log in: by a link, a key or an identity provider, once; by a cookie from then on.

A cookie stands for the key or token with which its login was begun, and opens nothing that this
one does not open any more: every request is authenticated with it again. What is stored of it is
a digest, and the key sealed with the cookie (`holdfast.identity.logins`), so that logins outlive
a restart, and are ended one by one.

Against forged requests of other pages (CSRF): a browser sends the cookie with requests of our
own pages only (`SameSite=Strict`), a request that changes something has to say that it comes
from one of them, and forms of the dashboard bring a token. Scripts cannot read the cookie.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.errors import NetworkFailed, RequestInvalid, Unauthenticated
from holdfast.identity import LoginService
from holdfast.observability import Logger
from holdfast.operations import Caller
from holdfast.server.faces import Face, FaceRequest
from holdfast.server.http import ServerResponse
from holdfast.server.identity import Authenticator, RequestHead, read_bearer
from holdfast.server.problems import ProblemRaised

if TYPE_CHECKING:
    from holdfast.server.app import HttpApplication
    from holdfast.server.oidc import IdentityProvider

HOME: Final = "/dashboard"
"""Where a browser goes that has logged in and does not say where to."""
_log = Logger("holdfast.server")
_COOKIE: Final = "holdfast_login"
_SECURE_COOKIE: Final = "__Host-holdfast_login"
"""Over HTTPS: a browser takes it from this very host only, and never sends it elsewhere."""
_LONGEST_BEARER: Final = 8_000
_OWN_WORDS: Final = frozenset({"links", "end", "provider", "callback"})
_HTML: Final = "text/html; charset=utf-8"
_PAGE_HEADERS: Final = (
    ("content-security-policy", "default-src 'none'; base-uri 'none'; frame-ancestors 'none'"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
)


class LoginLink(msgspec.Struct, frozen=True, kw_only=True):
    """A path that logs a browser in, once, until a time."""

    path: str
    expires_at: float


class BrowserLogins:
    """Knows callers by the cookies of their browsers, besides what another one knows them by."""

    def __init__(self, authenticator: Authenticator, logins: LoginService) -> None:
        """Ask this one who has a key or token, and keep logins there."""
        self._inner = authenticator
        self._logins = logins

    async def authenticate(self, request: RequestHead) -> Caller:
        """Return the caller by its Authorization header, or else by its cookie.

        Raises:
            Unauthenticated: it is none that is known, or its login has ended.
            ProblemRaised: a page of others sent it with the cookie of ours (403).
        """
        if "authorization" not in request.headers:
            bearer = await self.find_bearer(request)
            if bearer:
                check_own_page(request)
                return await self.check(request, bearer)
        return await self._inner.authenticate(request)

    async def check(self, request: RequestHead, bearer: str) -> Caller:
        """Return who has a key or token, asking from where this request comes.

        Raises:
            Unauthenticated: it opens nothing.
            RateLimitError: it, its tenant, or failures from that address came too often.
        """
        kept = {k: v for k, v in request.headers.items() if k not in ("cookie", "authorization")}
        if bearer and len(bearer) <= _LONGEST_BEARER and bearer.isascii() and bearer.isprintable():
            kept["authorization"] = f"Bearer {bearer}"
        return await self._inner.authenticate(msgspec.structs.replace(request, headers=kept))

    async def create_link(self, request: RequestHead, bearer: str, *, to: str = "") -> LoginLink:
        """Return a path that logs a browser in with this key or token, once and soon.

        Raises:
            RequestInvalid: `to` is no path of this server.
            Unauthenticated: the key or token opens nothing.
        """
        target = check_target(to) if to else ""
        caller = await self.check(request, bearer)
        login, code = await self._logins.begin(
            bearer, tenant=caller.tenant, subject=caller.subject, kind="link"
        )
        query = f"?to={target}" if target else ""
        return LoginLink(path=f"/login/{code}{query}", expires_at=login.expires_at)

    async def use_link(self, request: RequestHead, code: str) -> tuple[str, str]:
        """Return the cookie of a new login, as a header; the link is spent.

        Raises:
            Unauthenticated: it was used, is too old, or never was.
        """
        # Without a bearer this fails, and is counted as every failure is: codes are not guessed.
        return await self.begin(request, await self._logins.use_link(code))

    async def begin(self, request: RequestHead, bearer: str) -> tuple[str, str]:
        """Return the cookie of a new login, as a header.

        Raises:
            Unauthenticated: the key or token opens nothing.
        """
        caller = await self.check(request, bearer)
        login, token = await self._logins.begin(
            bearer, tenant=caller.tenant, subject=caller.subject
        )
        return make_cookie(request, token, max_age=int(login.expires_at - login.created_at))

    async def find_bearer(self, request: RequestHead) -> str:
        """Return the key or token of a request's cookie, which may be void by now; else empty."""
        token = read_cookie(request)
        found = await self._logins.find(token) if token else None
        return found[1] if found is not None else ""

    async def end(self, request: RequestHead) -> tuple[str, str]:
        """End the login of a request; returns the header that takes the cookie away."""
        token = read_cookie(request)
        if token:
            await self._logins.end(token)
        return make_cookie(request, "", max_age=0)


def check_own_page(request: RequestHead) -> None:
    """Return if a request only reads, or comes from a page of this server.

    Raises:
        ProblemRaised: it changes something, and comes from elsewhere or does not say whence.
    """
    if request.method in ("GET", "HEAD"):
        return
    own = f"{request.scheme}://{request.headers.get('host', '')}".lower()
    origin = request.headers.get("origin", "").lower()
    if origin == own or (not origin and request.headers.get("sec-fetch-site") == "same-origin"):
        return
    raise ProblemRaised(403, "request.origin", "a login of a browser only acts from our pages")


def check_target(path: str) -> str:
    """Return a path of this server, to which a browser may be sent.

    Raises:
        RequestInvalid: it may lead elsewhere.
    """
    is_plain = path.isascii() and all(c.isalnum() or c in "/-._~%" for c in path)
    if not is_plain or not path.startswith("/") or "//" in path or len(path) > 500:
        raise RequestInvalid(detail="`to` is a path of this server, such as /dashboard/runs")
    return path


def name_cookie(request: RequestHead) -> str:
    """Return the name of the cookie: with the port, since browsers do not tell ports apart."""
    if request.scheme == "https":
        return _SECURE_COOKIE
    _, _, port = request.headers.get("host", "").rpartition(":")
    return f"{_COOKIE}_{port}" if port.isdigit() else _COOKIE


def read_cookie(request: RequestHead) -> str:
    """Return the token in the cookie of a request; empty if there is none, or there are two."""
    name = name_cookie(request)
    pairs = (part.partition("=") for part in request.headers.get("cookie", "").split(";"))
    found = [value.strip() for one, _, value in pairs if one.strip() == name]
    return found[0] if len(found) == 1 else ""


def make_cookie(request: RequestHead, token: str, *, max_age: int) -> tuple[str, str]:
    """Return the header that gives a browser its cookie; with an age of 0, takes it away."""
    parts = [f"{name_cookie(request)}={token}", "Path=/", "HttpOnly", "SameSite=Strict"]
    parts += [f"Max-Age={max_age}", *(["Secure"] if request.scheme == "https" else [])]
    return ("set-cookie", "; ".join(parts))


def make_login_face(app: HttpApplication) -> Face:
    """Return what answers below `/login`.

    `POST /login/links` with a key makes a link, `GET /login/{code}` uses it, `POST /login` takes
    a key in a form, `POST /login/end` ends the login. `GET /login` leads to the page of the form.
    Where an identity provider is configured, `GET /login/provider` leads there, and
    `/login/callback` is where it sends browsers back to.

    Raises:
        ConfigError: an identity provider is configured, and cannot be used so.
    """
    logins = app.logins
    provider = None
    if app.options.jwt.client_id is not None:
        from holdfast.server.oidc import IdentityProvider  # noqa: PLC0415 - only where configured

        provider = IdentityProvider(app.settings)

    async def answer(request: FaceRequest) -> ServerResponse:
        head, root = request.request.head, str(request.request.scope.get("root_path", ""))
        query = dict(request.request.read_query())
        match request.method, request.words:
            case "GET" | "HEAD", ():
                return _send_to(f"{root}{HOME}/login")
            case "POST", ():
                check_own_page(head)
                form = dict(await request.read_form())
                to = check_target(form.get("to", "") or HOME)
                return _send_to(root + to, await logins.begin(head, form.get("key", "").strip()))
            case "POST", ("links",):
                bearer = read_bearer(request.headers)
                link = await logins.create_link(head, bearer, to=query.get("to", ""))
                link = msgspec.structs.replace(link, path=root + link.path)
                return ServerResponse(201, msgspec.json.encode(link))
            case "POST", ("end",):
                check_own_page(head)
                return _send_to(f"{root}{HOME}", await logins.end(head))
            case "GET", ("provider" | "callback" as word,) if provider is not None:
                return await _use_provider(provider, logins, head, root, word, query)
            case "GET", (code,) if code not in _OWN_WORDS:
                to = check_target(query.get("to", "") or HOME)
                try:
                    cookie = await logins.use_link(head, code)
                except Unauthenticated:
                    if "text/html" not in request.headers.get("accept", ""):
                        raise
                    return _send_to(f"{root}{HOME}/login?wrong=link")
                return _make_welcome(root + to, cookie)
            case _:
                raise ProblemRaised(404, "request.no_route", "there is nothing at this path")

    return Face(answer=answer, is_open=True)


async def _use_provider(
    provider: IdentityProvider,
    logins: BrowserLogins,
    head: RequestHead,
    root: str,
    word: str,
    query: Mapping[str, str],
) -> ServerResponse:
    """Send a browser to the provider, or log it in as it comes back: the attempt is over then."""
    ended = provider.end(head)
    try:
        if word == "provider":
            to = check_target(query.get("to", "") or HOME)
            place, kept = await provider.begin(head, root, to)
            return _send_to(place, kept)
        try:
            bearer, to = await provider.finish(head, root, query)
        except Unauthenticated:
            bearer, to = "", HOME  # which opens nothing, and is counted as every failure is
        cookie = await logins.begin(head, bearer)
    except NetworkFailed as error:
        _log.warning("the identity provider cannot be asked", error=str(error))
        return _send_to(f"{root}{HOME}/login?wrong=provider-out", ended)
    except Unauthenticated:
        return _send_to(f"{root}{HOME}/login?wrong=provider", ended)
    return _make_welcome(root + check_target(to), cookie, ended)


def _send_to(path: str, *headers: tuple[str, str]) -> ServerResponse:
    return ServerResponse(303, b"", "text/plain; charset=utf-8", (("location", path), *headers))


def _make_welcome(path: str, *cookies: tuple[str, str]) -> ServerResponse:
    """Return a page that leads on.

    Not a redirect: that one would still count as coming from where the link stood, and a browser
    would leave the strict cookie out.
    """
    place = html.escape(path, quote=True)
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Logged in</title>'
        f'<meta http-equiv="refresh" content="0; url={place}"></head>'
        f'<body><main><h1>You are logged in</h1><a href="{place}">Go on</a></main></body></html>'
    )
    return ServerResponse(200, page.encode(), _HTML, (*cookies, *_PAGE_HEADERS))


__all__ = [
    "HOME",
    "BrowserLogins",
    "LoginLink",
    "check_own_page",
    "check_target",
    "make_login_face",
    "read_cookie",
]
