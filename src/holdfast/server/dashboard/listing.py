"""Pages that are lists: what a view says of its rows, cells and forms; one template shows all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.server.dashboard.asks import Ask, ShownPage
from holdfast.server.dashboard.words import Markup, format_json


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a form, or of a filter."""

    name: str
    label: str
    value: str = ""
    options: Sequence[str] = ()
    is_long: bool = False
    is_required: bool = False
    kind: str = "text"


class FormAction(msgspec.Struct, frozen=True, kw_only=True):
    """A form with one button; without fields it is only the button."""

    label: str
    address: str
    scope: str
    fields: Sequence[FormField] = ()
    hidden: dict[str, str] = {}
    confirm: str = ""
    is_danger: bool = False
    method: str = "post"


class ListRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a list."""

    cells: Sequence[Any]
    actions: Sequence[FormAction] = ()


class PageListing(msgspec.Struct, kw_only=True):
    """A page that is a list, with what stands above and below it."""

    title: str
    about: str = ""
    filters: Sequence[FormField] = ()
    columns: Sequence[str] = ()
    rows: Sequence[ListRow] = ()
    empty: str = ""
    next_step: str | Markup = ""
    blocks: Sequence[tuple[str, Any]] = ()
    """Titles with what stands below each: HTML that we made."""
    forms: Sequence[tuple[str, FormAction]] = ()
    below: Sequence[tuple[str, Any]] = ()
    """The same as blocks, at the end of the page and closed until they are opened."""
    older: str = ""
    place: str = ""


def show_listing(ask: Ask, listing: PageListing) -> ShownPage:
    """Return the page of a list; forms that the caller may not send are left out."""
    return ShownPage("listing.html", {"listing": listing, **_name_place(listing)})


def _name_place(listing: PageListing) -> dict[str, str]:
    return {"place": listing.place} if listing.place else {}


def make_badge(word: str) -> Markup:
    """Return a state in its colour."""
    return Markup('<span class="badge {}">{}</span>').format(word, word.replace("_", " "))


def make_link(address: str, words: str, below: str = "") -> Markup:
    """Return a link, with a quiet line below it."""
    more = Markup('<span class="sub">{}</span>').format(below) if below else ""
    return Markup('<a href="{}">{}</a>{}').format(address, words, more)


def make_lines(words: str, below: str) -> Markup:
    """Return words with a quiet line below them."""
    return Markup('{}<span class="sub">{}</span>').format(words, below)


def make_code(value: object) -> Markup:
    """Return a short piece of code, or data as JSON."""
    if value is None or value == "":
        return Markup('<span class="quiet">–</span>')
    text = value if isinstance(value, str) else format_json(value).replace("\n", " ")
    shown = text if len(text) <= 200 else text[:200] + "…"
    return Markup("<code>{}</code>").format(shown)


def make_pre(value: object) -> Markup:
    """Return a text, or data as JSON, as it is."""
    text = value if isinstance(value, str) else format_json(value)
    return Markup('<pre class="wrap" tabindex="0">{}</pre>').format(text)


def make_facts(facts: Sequence[tuple[str, Any]]) -> Markup:
    """Return names with their values; empty ones are left out."""
    shown = [
        Markup("<dt>{}</dt><dd>{}</dd>").format(name, value)
        for name, value in facts
        if value not in ("", None, (), [], {})
    ]
    return Markup('<dl class="facts">{}</dl>').format(Markup("").join(shown))


__all__ = [
    "FormAction",
    "FormField",
    "ListRow",
    "PageListing",
    "make_badge",
    "make_code",
    "make_facts",
    "make_lines",
    "make_link",
    "make_pre",
    "show_listing",
]
