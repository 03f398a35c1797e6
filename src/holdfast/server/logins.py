"""Browsers sign in: a one-time link or a key, once; a cookie from then on.

A cookie stands for the key or token with which its session was begun, and opens nothing that
this one does not open any more: every request is authenticated with it again. Sessions live in
the memory of the process, so that a restart ends them, and nothing of them is on a disk.

Against forged requests of other pages (CSRF) a cookie counts only where the browser says that
the request comes from our own page, except for reading; it is out of reach of scripts.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import RequestInvalid, Unauthenticated
from holdfast.ids import make_random_token
from holdfast.operations import Caller
from holdfast.server.faces import Face, FaceRequest
from holdfast.server.http import ServerResponse
from holdfast.server.identity import Authenticator, RequestHead, read_bearer
from holdfast.server.problems import ProblemRaised

if TYPE_CHECKING:
    from holdfast.server.app import HttpApplication

LINK_TTL_S: Final = 120.0
SESSION_TTL_S: Final = 12 * 3600.0
_MOST_LINKS: Final = 100
_MOST_SESSIONS: Final = 10_000
_COOKIE: Final = "holdfast_session"


class SignIn(msgspec.Struct, frozen=True, kw_only=True):
    """What a link or a cookie stands for."""

    bearer: str
    expires_at: float


class LoginLink(msgspec.Struct, frozen=True, kw_only=True):
    """A path that signs a browser in, once, until a time."""

    path: str
    expires_at: float


class LoginSessions:
    """The browsers that are signed in, and the links that were not used yet."""

    def __init__(self, authenticator: Authenticator, *, clock: Clock = SYSTEM) -> None:
        """Know callers by cookies besides what this one knows them by."""
        self._inner = authenticator
        self._clock = clock
        self._links: dict[str, SignIn] = {}
        self._sessions: dict[str, SignIn] = {}
        self.home = "/"
        """Where a browser goes that has signed in and does not say where to."""

    async def authenticate(self, request: RequestHead) -> Caller:
        """Return the caller by its Authorization header, or else by its cookie.

        Raises:
            Unauthenticated: it is none that is known, or its session has ended.
            ProblemRaised: a page of others sent it with the cookie of ours (403).
        """
        if "authorization" not in request.headers and "cookie" in request.headers:
            found = self._find_session(request)
            if found is not None:
                check_own_page(request)
                headers = {**request.headers, "authorization": f"Bearer {found.bearer}"}
                request = msgspec.structs.replace(request, headers=headers)
        return await self._inner.authenticate(request)

    def create_link(self, bearer: str, *, to: str = "") -> LoginLink:
        """Return a path that signs a browser in with this key or token, once and soon.

        Raises:
            RequestInvalid: `to` is no path of this server.
        """
        target = check_target(to) if to else ""
        code, now = make_random_token(32), self._clock.now()
        _make_room(self._links, _MOST_LINKS, now)
        self._links[_digest(code)] = SignIn(bearer=bearer, expires_at=now + LINK_TTL_S)
        query = f"?to={target}" if target else ""
        return LoginLink(path=f"/login/{code}{query}", expires_at=now + LINK_TTL_S)

    def use_link(self, code: str) -> str:
        """Return the token of a new session; the link is spent. Raises Unauthenticated."""
        found = self._links.pop(_digest(code), None)
        if found is None or found.expires_at <= self._clock.now():
            raise Unauthenticated
        return self.begin(found.bearer)

    def begin(self, bearer: str) -> str:
        """Return the token of a new session, for the cookie."""
        token, now = make_random_token(32), self._clock.now()
        _make_room(self._sessions, _MOST_SESSIONS, now)
        self._sessions[_digest(token)] = SignIn(bearer=bearer, expires_at=now + SESSION_TTL_S)
        return token

    def end(self, request: RequestHead) -> None:
        """End the session of a request; safe to repeat."""
        self._sessions.pop(_digest(read_cookie(request)), None)

    def has_session(self, request: RequestHead) -> bool:
        """Say whether a request comes with the cookie of a session; its key may be void by now."""
        return self._find_session(request) is not None

    def _find_session(self, request: RequestHead) -> SignIn | None:
        token = read_cookie(request)
        found = self._sessions.get(_digest(token)) if token else None
        return found if found is not None and self._clock.now() < found.expires_at else None


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
    raise ProblemRaised(403, "request.origin", "a session of a browser only acts from our pages")


def check_target(path: str) -> str:
    """Return a path of this server, to which a browser may be sent.

    Raises:
        RequestInvalid: it may lead elsewhere.
    """
    is_plain = path.isascii() and all(c.isalnum() or c in "/-._~%" for c in path)
    if not is_plain or not path.startswith("/") or "//" in path or len(path) > 500:
        raise RequestInvalid(detail="`to` is a path of this server, such as /runs")
    return path


def name_cookie(request: RequestHead) -> str:
    """Return the name of the cookie: with the port, since browsers do not tell ports apart."""
    _, _, port = request.headers.get("host", "").rpartition(":")
    return f"{_COOKIE}_{port}" if port.isdigit() else _COOKIE


def read_cookie(request: RequestHead) -> str:
    """Return the token in the cookie of a request; empty if there is none."""
    name = name_cookie(request)
    found = [
        value.strip()
        for one, _, value in (part.partition("=") for part in request.headers["cookie"].split(";"))
        if one.strip() == name
    ] if "cookie" in request.headers else []  # fmt: skip
    return found[0] if len(found) == 1 else ""


def make_cookie(request: RequestHead, token: str) -> tuple[str, str]:
    """Return the header that gives a browser its cookie; without a token, takes it away."""
    kept = f"Max-Age={int(SESSION_TTL_S) if token else 0}"
    secure = "; Secure" if request.scheme == "https" else ""
    value = f"{name_cookie(request)}={token}; Path=/; {kept}; HttpOnly; SameSite=Lax{secure}"
    return ("set-cookie", value)


def make_login_face(app: HttpApplication) -> Face:
    """Return what answers below `/login`.

    `POST /login/links` with a key makes a link, `GET /login/{code}` uses it, `POST /login` takes
    a key in a form, `POST /login/end` ends the session.
    """
    logins = app.logins

    async def answer(request: FaceRequest) -> ServerResponse:
        match request.method, request.words:
            case "POST", ():
                return await _sign_in(logins, request)
            case "POST", ("links",):
                return await _make_link(logins, request)
            case "POST", ("end",):
                check_own_page(request.request.head)
                logins.end(request.request.head)
                return _send_to(request, logins.home, "")
            case "GET", (code,) if code not in ("links", "end"):
                to = check_target(dict(request.request.read_query()).get("to", "") or logins.home)
                return _send_to(request, to, await _use(logins, request, code))
            case _:
                raise ProblemRaised(404, "request.no_route", "there is nothing at this path")

    return Face(answer=answer, is_open=True)


async def _use(logins: LoginSessions, request: FaceRequest, code: str) -> str:
    try:
        return logins.use_link(code)
    except Unauthenticated:
        # Counted as any other failure is: codes are not to be guessed.
        head = msgspec.structs.replace(request.request.head, headers={})
        await request.app.authenticator.authenticate(head)
        raise


async def _sign_in(logins: LoginSessions, request: FaceRequest) -> ServerResponse:
    """Sign a browser in with a key from a form."""
    check_own_page(request.request.head)
    form = dict(await request.read_form())
    to = check_target(form.get("to", "") or logins.home)
    bearer = form.get("key", "").strip()
    await _check(request, bearer)
    return _send_to(request, to, logins.begin(bearer))


async def _make_link(logins: LoginSessions, request: FaceRequest) -> ServerResponse:
    """Make a link for whoever can already ask with a key or token."""
    bearer = read_bearer(request.headers)
    await _check(request, bearer)
    link = logins.create_link(bearer, to=dict(request.request.read_query()).get("to", ""))
    return ServerResponse(201, msgspec.json.encode(link))


async def _check(request: FaceRequest, bearer: str) -> None:
    headers = {
        name: value
        for name, value in request.headers.items()
        if name not in ("cookie", "authorization")
    }
    head = msgspec.structs.replace(
        request.request.head, headers={**headers, "authorization": f"Bearer {bearer}"}
    )
    await request.app.authenticator.authenticate(head)


def _send_to(request: FaceRequest, path: str, token: str) -> ServerResponse:
    headers = (("location", path), make_cookie(request.request.head, token))
    return ServerResponse(303, b"", "text/plain; charset=utf-8", headers)


def _make_room(kept: dict[str, SignIn], most: int, now: float) -> None:
    """Forget what has expired, and then the oldest, so that there is room for one."""
    for key in [key for key, one in kept.items() if one.expires_at <= now]:
        del kept[key]
    while len(kept) >= most:
        del kept[next(iter(kept))]


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


__all__ = [
    "LoginLink",
    "LoginSessions",
    "check_own_page",
    "check_target",
    "make_cookie",
    "make_login_face",
    "read_cookie",
]
