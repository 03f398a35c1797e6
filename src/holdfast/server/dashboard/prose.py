"""Texts of models and tools as HTML: Markdown without HTML in it, and diffs in colour.

Everything here may have been written by an attacker who wants it executed. Markdown is parsed
with HTML off, links lead nowhere but to http, https and mail, and pictures are not fetched: one
that a page loads by itself tells its host who reads it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Final

from holdfast.errors import MissingExtra
from holdfast.server.dashboard.words import Markup, cut_text

try:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict
except ImportError as _error:
    raise MissingExtra(what="the dashboard", package="markdown-it-py", extra="server") from _error

_LONGEST: Final = 60_000
_LINK: Final = re.compile(r"(https?|mailto):", re.IGNORECASE)
_MOST_DIFF_LINES: Final = 1_500


def _render_link(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    token = tokens[index]
    if not _LINK.match(str(token.attrGet("href") or "")):
        token.attrs.pop("href", None)
    else:
        token.attrSet("rel", "noopener noreferrer nofollow")
        token.attrSet("target", "_blank")
    return self.renderToken(tokens, index, options, env)


def _render_image(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    token = tokens[index]
    words = Markup("[picture: {}]").format(token.content or "without a name")
    place = str(token.attrGet("src") or "")
    if not _LINK.match(place):
        return f'<span class="quiet">{words}</span>'
    return Markup('<a href="{}" rel="noopener noreferrer nofollow" target="_blank">{}</a>').format(
        place, words
    )


@functools.cache
def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True})
    parser.enable(["table", "strikethrough"])
    parser.add_render_rule("link_open", _render_link)
    parser.add_render_rule("image", _render_image)
    return parser


def render_markdown(text: str) -> Markup:
    """Return a text as HTML that holds nothing but what Markdown means."""
    html = _make_parser().render(cut_text(text, _LONGEST))
    # Wide tables scroll in a place of their own, which can be reached by keyboard.
    html = html.replace("<table>", '<div class="scroll" tabindex="0"><table>')
    html = html.replace("</table>", "</table></div>").replace("<pre>", '<pre tabindex="0">')
    # Headings of a text are not those of the page.
    html = re.sub(r"<(/?)h[1-6]>", lambda found: f"<{found[1]}h4>", html)
    return Markup(html)


def render_diff(text: str) -> Markup:
    """Return a unified diff with its lines in colour."""
    lines = text.splitlines()
    shown = []
    for line in lines[:_MOST_DIFF_LINES]:
        kind = "same"
        if line.startswith(("+++", "---", "diff ", "index ")):
            kind = "file"
        elif line.startswith("@@"):
            kind = "hunk"
        elif line.startswith("+"):
            kind = "plus"
        elif line.startswith("-"):
            kind = "minus"
        shown.append(Markup('<span class="{}">{}</span>').format(kind, line))
    if len(lines) > _MOST_DIFF_LINES:
        left = len(lines) - _MOST_DIFF_LINES
        shown.append(Markup('<span class="hunk">… {} more lines</span>').format(left))
    body = Markup("").join(shown)
    return Markup('<pre class="diff" tabindex="0">{}</pre>').format(body)


def is_diff(text: str) -> bool:
    """Say whether a text looks like a unified diff."""
    head = text[:4_000]
    return bool(re.search(r"^@@ .*@@", head, re.MULTILINE)) and bool(
        re.search(r"^(--- |diff )", head, re.MULTILINE)
    )


__all__ = ["is_diff", "render_diff", "render_markdown"]
