"""The way of a request for a page: who asks, which page, what it shows, or what went wrong."""

from __future__ import annotations

import hashlib
import hmac
import importlib.resources
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qsl, quote

import msgspec

from holdfast.errors import HoldfastError, RequestInvalid, ServerDraining, Unauthenticated
from holdfast.identity import make_form_token
from holdfast.observability import Logger
from holdfast.operations import Caller
from holdfast.server.app import HttpApplication
from holdfast.server.dashboard.asks import (
    CONTENT_POLICY,
    PAGE_HEADERS,
    Ask,
    GoTo,
    Shown,
    Streamed,
)
from holdfast.server.dashboard.rendering import Renderer
from holdfast.server.dashboard.routes import Routes
from holdfast.server.dashboard.views import add_views
from holdfast.server.faces import Face, FaceRequest
from holdfast.server.http import Disconnected, Send, ServerRequest, ServerResponse
from holdfast.server.logins import check_own_page, read_cookie
from holdfast.server.problems import ProblemRaised, make_problem

_log = Logger("holdfast.server.dashboard")
PREFIX: Final = "dashboard"
HTML: Final = "text/html; charset=utf-8"
_TYPES: Final = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
                 ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8"}  # fmt: skip
_MOST_FIELDS: Final = 2_000
_WRONG: Final = {
    "link": "This link was used already, or is too old.",
    "provider-out": "The identity provider cannot be asked now; try again, or use a key.",
    "provider": "The identity provider refused, or its token opens nothing here.",
}
_THEMES: Final = frozenset({"light", "dark"})


class Dashboard:
    """Answers every path below `/dashboard`."""

    def __init__(self, app: HttpApplication) -> None:
        """Show what the operations of this application answer."""
        self.app = app
        self._routes = Routes()
        add_views(self._routes)
        self._kept: dict[Any, Any] = {}
        self._static = _read_static()
        css = self._static["holdfast.css"].decode()
        self._renderer = Renderer(_digest_static(self._static), css)

    async def answer(
        self, request: ServerRequest, send: Send, request_id: str
    ) -> ServerResponse | None:
        """Return a page; `None` if a stream was sent."""
        words = request.segments[1:]
        request.scope["holdfast.name"] = "/".join((PREFIX, *words[:1]))
        try:
            return await self._answer(request, send, words)
        except Disconnected:
            raise
        except Exception as error:  # noqa: BLE001 - a door: people are told what happened
            if not isinstance(error, HoldfastError | ProblemRaised):
                _log.exception("page failed", path=request.head.path)
            return self._show_problem(request, error, request_id)

    async def _answer(
        self, request: ServerRequest, send: Send, words: tuple[str, ...]
    ) -> ServerResponse | None:
        method = request.head.method
        if words[:1] == ("static",) and len(words) == 2 and method in ("GET", "HEAD"):
            return self._serve_static(words[1])
        if words == ("login",):
            return await self._log_in(request)
        cookie, caller = await self._authenticate(request)
        if caller is None:
            return self._send_to_login(request)
        if self.app.is_draining:
            raise ServerDraining
        if words == ("logout",) and method == "POST":
            await self._read_form(request, cookie)
            cookie_gone = await self.app.logins.end(request.head)
            return _go_to(f"{find_root(request)}/login", cookie_gone)
        if words == ("theme",) and method == "POST":
            return self._set_theme(request, await self._read_form(request, cookie))
        view, found = self._routes.find(method, words)
        form: list[tuple[str, str]] = []
        if method == "POST":
            form = await self._read_form(request, cookie)
        runtime = await self.app.runtimes.runtime_for(caller)
        csrf = make_form_token(cookie)
        ask = Ask(request, caller, runtime, root=find_root(request), csrf=csrf, form=form)
        ask.words = found
        ask.send, ask.app, ask.kept = send, self.app, self._kept
        return await self._show(ask, await view(ask))

    async def _show(self, ask: Ask, shown: Shown) -> ServerResponse | None:
        if isinstance(shown, Streamed):
            return None
        if isinstance(shown, ServerResponse):
            return msgspec.structs.replace(shown, headers=(*shown.headers, *PAGE_HEADERS))
        if isinstance(shown, GoTo):
            mark = "&" if "?" in shown.address else "?"
            place = f"{shown.address}{mark}note={shown.note}" if shown.note else shown.address
            return ServerResponse(303, b"", HTML, (("location", place), *PAGE_HEADERS))
        html = await self._renderer.render_page(ask, shown, theme=_read_theme(ask.request))
        saved = [("content-disposition", f'attachment; filename="{shown.file_name}"')]
        headers = (*saved, *PAGE_HEADERS) if shown.file_name else PAGE_HEADERS
        return ServerResponse(shown.status, html, HTML, headers)

    def _show_problem(
        self, request: ServerRequest, error: Exception, request_id: str
    ) -> ServerResponse:
        problem, headers = make_problem(error, request_id)
        values = {"problem": problem, "home": find_root(request)}
        html = self._renderer.render_bare("error.html", request, values, theme=_read_theme(request))
        kept = tuple(one for one in headers if one[0] in ("retry-after", "allow"))
        return ServerResponse(problem.status, html, HTML, (*kept, *PAGE_HEADERS))

    # --- who asks ---------------------------------------------------------------------

    async def _authenticate(self, request: ServerRequest) -> tuple[str, Caller | None]:
        """Return the cookie of a login and who is logged in; forms bring a token of their own."""
        logins = self.app.logins
        bearer = await logins.find_bearer(request.head)
        if not bearer:
            return "", None
        try:
            caller = await logins.check(request.head, bearer)
            self.app.note_caller(request)
            return read_cookie(request.head), caller
        except Unauthenticated:
            return "", None

    async def _read_form(self, request: ServerRequest, cookie: str) -> list[tuple[str, str]]:
        """Return the fields of a form of this login; a body that is none has the token as header.

        Raises:
            ProblemRaised: it was not made for this login (403).
        """
        form: list[tuple[str, str]] = []
        token = request.headers.get("x-csrf-token", "")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/x-www-form-urlencoded":
            form = await self._read_fields(request)
            token = token or dict(form).get("csrf", "")
        if not hmac.compare_digest(make_form_token(cookie).encode(), token.encode()):
            detail = "this form is not of your present login; load the page again, then send it"
            raise ProblemRaised(403, "request.csrf", detail)
        return form

    async def _read_fields(self, request: ServerRequest) -> list[tuple[str, str]]:
        body = await request.read_body(
            limit=self.app.options.max_body_bytes, timeout_s=self.app.options.body_timeout_s
        )
        try:
            return parse_qsl(
                body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS
            )
        except ValueError as error:
            raise RequestInvalid(detail=f"the form cannot be read: {error}") from error

    # --- login ------------------------------------------------------------------------

    async def _log_in(self, request: ServerRequest) -> ServerResponse:
        """Answer at `login`, the only page that needs no login."""
        if request.head.method in ("GET", "HEAD"):
            wrong = _WRONG.get(dict(request.read_query()).get("wrong", ""), "")
            return self._show_login(request, wrong, 401 if wrong else 200)
        if request.head.method != "POST":
            raise ProblemRaised(404, "request.no_route", "there is no page at this address")
        check_own_page(request.head)
        form = dict(await self._read_fields(request))
        try:
            cookie = await self.app.logins.begin(request.head, form.get("key", "").strip())
        except Unauthenticated:
            wrong = "This opens nothing: it is unknown, expired or revoked."
            return self._show_login(request, wrong, 401, form.get("next", ""))
        return _go_to(choose_next(form.get("next", ""), find_root(request)), cookie)

    def _show_login(
        self, request: ServerRequest, wrong: str = "", status: int = 200, next_: str = ""
    ) -> ServerResponse:
        values = {
            "wrong": wrong,
            "next": (next_ := next_ or dict(request.read_query()).get("next", "")),
            "provider": self._link_provider(request, next_),
            "has_jwt": bool(self.app.options.jwt.jwks_file or self.app.options.jwt.jwks_url),
        }
        html = self._renderer.render_bare("login.html", request, values, theme=_read_theme(request))
        return ServerResponse(status, html, HTML, PAGE_HEADERS)

    def _link_provider(self, request: ServerRequest, next_: str) -> str:
        """Return where the identity provider is asked for a login; empty without one."""
        if self.app.options.jwt.client_id is None:
            return ""
        root = find_root(request)
        place = choose_next(next_.partition("?")[0], root).removeprefix(
            root.removesuffix(f"/{PREFIX}")
        )
        return f"{root.removesuffix(f'/{PREFIX}')}/login/provider?to={quote(place)}"

    def _send_to_login(self, request: ServerRequest) -> ServerResponse:
        root = find_root(request)
        here = "/".join((root, *request.segments[1:]))
        if request.head.method not in ("GET", "HEAD") or request.segments[1:2] == ("live",):
            raise Unauthenticated
        query = request.scope.get("query_string", b"").decode("latin-1")
        wanted = quote(f"{here}?{query}" if query else here, safe="")
        place = f"{root}/login?next={wanted}" if here != root else f"{root}/login"
        if request.headers.get("hx-request"):
            return ServerResponse(401, b"", HTML, (("hx-redirect", place), *PAGE_HEADERS))
        return ServerResponse(303, b"", HTML, (("location", place), *PAGE_HEADERS))

    def _set_theme(self, request: ServerRequest, form: list[tuple[str, str]]) -> ServerResponse:
        given = dict(form)
        theme = given.get("theme", "")
        kept = f"holdfast_theme={theme if theme in _THEMES else ''}"
        age = 31_536_000 if theme in _THEMES else 0
        cookie = f"{kept}; Path=/; SameSite=Strict; HttpOnly; Max-Age={age}"
        place = choose_next(given.get("next", ""), find_root(request))
        return _go_to(place, ("set-cookie", cookie))

    # --- files ------------------------------------------------------------------------

    def _serve_static(self, name: str) -> ServerResponse:
        body = self._static.get(name)
        if body is None:
            raise ProblemRaised(404, "request.no_route", "there is no such file")
        kind = _TYPES.get(name[name.rindex(".") :], "application/octet-stream")
        # Asked for with the digest of all files in the address: a new version is a new address.
        kept = ("cache-control", "public, max-age=31536000, immutable")
        return ServerResponse(200, body, kind, (kept, *PAGE_HEADERS))


def find_root(request: ServerRequest) -> str:
    """Return where the dashboard is, behind whatever it is mounted below."""
    return f"{request.scope.get('root_path', '')}/{PREFIX}"


def choose_next(given: str, root: str) -> str:
    """Return a page of the dashboard to go to; anything else means its first page."""
    is_ours = given == root or given.startswith((f"{root}/", f"{root}?"))
    is_plain = given.isascii() and given.isprintable() and "\\" not in given and "//" not in given
    return given if is_ours and is_plain else root


def read_cookies(request: ServerRequest) -> Mapping[str, str]:
    """Return the cookies of a request; none if they cannot be read."""
    jar: SimpleCookie = SimpleCookie()
    try:
        # Some intermediaries send several headers, which are joined by commas.
        jar.load(request.headers.get("cookie", ""))
    except CookieError:
        return {}
    return {name: one.value for name, one in jar.items()}


def _go_to(place: str, *headers: tuple[str, str]) -> ServerResponse:
    return ServerResponse(303, b"", HTML, (("location", place), *headers, *PAGE_HEADERS))


def _read_theme(request: ServerRequest) -> str:
    theme = read_cookies(request).get("holdfast_theme", "")
    return theme if theme in _THEMES else ""


def _read_static() -> dict[str, bytes]:
    place = importlib.resources.files(__package__) / "static"
    return {one.name: one.read_bytes() for one in place.iterdir() if one.is_file()}


def _digest_static(files: Mapping[str, bytes]) -> str:
    whole = hashlib.sha256()
    for name in sorted(files):
        whole.update(name.encode() + b"\0" + files[name])
    return whole.hexdigest()[:12]


def make_face(app: HttpApplication) -> Face:
    """Return what answers below `/dashboard`; people without a login are shown where to log in."""
    dashboard = Dashboard(app)

    async def answer(request: FaceRequest) -> ServerResponse | None:
        return await dashboard.answer(request.request, request.send, request.id)

    return Face(answer=answer, is_open=True)


__all__ = ["CONTENT_POLICY", "PREFIX", "Dashboard", "make_face", "choose_next"]
