"""What a page is asked: by whom, for what, and how it asks operations in turn."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from holdfast.operations import OWNER, Caller, Operation, StreamOperation
from holdfast.runtime import Runtime
from holdfast.server.app import HttpApplication
from holdfast.server.http import Send, ServerRequest, ServerResponse
from holdfast.server.redaction import hold_pieces

CONTENT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS: Final = (
    ("content-security-policy", CONTENT_POLICY),
    ("x-frame-options", "DENY"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    # With `no-referrer` a browser would send forms as if they came from nowhere (`Origin: null`).
    ("referrer-policy", "same-origin"),
)
"""What every answer of the dashboard brings along."""
_MOST_KEPT: Final = 5_000
P = ParamSpec("P")
T = TypeVar("T")


class Ask:
    """One request for a page, of a caller who is logged in."""

    def __init__(
        self,
        request: ServerRequest,
        caller: Caller,
        runtime: Runtime,
        *,
        root: str,
        csrf: str = "",
        form: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Take the request as it came; `root` is where the dashboard is mounted."""
        self.request = request
        self.caller = caller
        self.runtime = runtime
        self.root = root
        self.csrf = csrf
        self.fields = list(form)
        self.form: Mapping[str, str] = dict(form)
        self.query: Mapping[str, str] = dict(request.read_query())
        self.send: Send | None = None
        self.app: HttpApplication | None = None
        self.kept: dict[Any, Any] = {}
        """What is costly to read and may be a little old; shared by all requests."""
        self.words: dict[str, str] = {}
        """The words of the path that its pattern names."""

    def keep(self, key: object, found: object) -> None:
        """Keep something for later requests; when there is too much, all is forgotten."""
        if len(self.kept) >= _MOST_KEPT:
            self.kept.clear()
        self.kept[key] = found

    async def perform(self, operation: Operation[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask an operation in the name of the caller."""
        return await operation.perform(self.runtime, self.caller, *args, **kwargs)

    def stream(
        self, operation: StreamOperation[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> AsyncGenerator[T, None]:
        """Ask an operation for its stream."""
        return hold_pieces(operation.perform(self.runtime, self.caller, *args, **kwargs))

    def may(self, scope: str) -> bool:
        """Say whether a button that needs this scope is worth showing; operations decide."""
        return self.caller.may(scope)

    @property
    def name(self) -> str:
        """Who is logged in, for people."""
        return "owner" if self.caller is OWNER else self.caller.subject

    @property
    def by(self) -> str:
        """In whose name something is decided: the owner says it, all others are themselves."""
        return "owner" if self.caller is OWNER else ""

    def link(self, *words: str, **query: object) -> str:
        """Return the address of a page."""
        path = "/".join([self.root, *(quote(word, safe="") for word in words)])
        given = {name: value for name, value in query.items() if value not in ("", None)}
        return f"{path}?{urlencode(given)}" if given else path

    @property
    def here(self) -> str:
        """The address of this page, with its query."""
        words = self.request.segments[1:]
        return self.link(*words, **dict(self.request.read_query()))


class ShownPage(msgspec.Struct, frozen=True):
    """A page to be shown: a template, and what stands in it."""

    template: str
    values: Mapping[str, Any] = {}
    status: int = 200
    file_name: str = ""
    """The browser saves it under this name, and does not show it."""


class GoTo(msgspec.Struct, frozen=True):
    """Another page, after something was done; `note` is said there, one of `NOTES`."""

    address: str
    note: str = ""


class Streamed:
    """The answer was sent as a stream."""


Shown: TypeAlias = "ShownPage | GoTo | ServerResponse | Streamed"
View: TypeAlias = Callable[[Ask], Awaitable[Shown]]

__all__ = [
    "CONTENT_POLICY",
    "PAGE_HEADERS",
    "Ask",
    "GoTo",
    "Shown",
    "ShownPage",
    "Streamed",
    "View",
]
