"""Turn HTML into Markdown that a model can read; never fails, whatever the markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

_SKIPPED = frozenset("script style noscript template svg iframe object head title canvas".split())
_BLOCKS = frozenset(
    "p div section article main header footer nav aside figure figcaption address form "
    "fieldset dl dt dd details summary ul ol table thead tbody tfoot body html".split()
)
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_INLINE = {"strong": "**", "b": "**", "em": "*", "i": "*", "code": "`", "kbd": "`", "samp": "`"}
_MAX_DEPTH = 200


def convert_html_to_markdown(html: str, base_url: str = "") -> str:
    """Return the readable content of a page; links are made absolute."""
    parser = _Converter(base_url)
    parser.feed(html)
    parser.close()
    return parser.text()


def find_html_title(html: str) -> str:
    """The title of a page, or an empty text."""
    found = re.search(r"<title[^>]*>(.*?)</title>", html[:100_000], re.IGNORECASE | re.DOTALL)
    return " ".join(found[1].split())[:200] if found else ""


class _Converter(HTMLParser):
    def __init__(self, base_url: str) -> None:
        super().__init__(convert_charrefs=True)
        self._base = base_url
        self._out: list[str] = []
        self._skipping = 0
        self._pre = 0
        self._lists: list[int | None] = []
        self._links: list[tuple[str, int]] = []
        self._quotes: list[int] = []
        self._cells: list[list[str]] = []
        self._cell_start = -1

    def text(self) -> str:
        joined = "".join(self._out)
        joined = re.sub(r"[ \t]+\n", "\n", joined)
        return re.sub(r"\n{3,}", "\n\n", joined).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self._skipping += 1
        if self._skipping:
            return
        values = {name: value or "" for name, value in attrs}
        if tag in _HEADINGS:
            self._block()
            self._out.append(_HEADINGS[tag])
        elif tag == "br":
            self._out.append("\n")
        elif tag == "hr":
            self._block()
            self._out.append("---\n\n")
        elif tag == "pre":
            self._block()
            self._pre += 1
            self._out.append("```\n")
        elif tag in _INLINE:
            self._inline(_INLINE[tag])
        elif tag == "a":
            self._links.append((values.get("href", ""), len(self._out)))
        elif tag == "img":
            self._read_image(values)
        else:
            self._open_block(tag)

    def _open_block(self, tag: str) -> None:
        if tag in ("ul", "ol") and len(self._lists) < _MAX_DEPTH:
            self._format_line() if self._lists else self._block()
            self._lists.append(0 if tag == "ol" else None)
        elif tag == "li":
            self._read_item()
        elif tag == "blockquote":
            self._block()
            self._quotes.append(len(self._out))
        elif tag == "tr":
            self._cells.append([])
        elif tag in ("td", "th"):
            self._cell_start = len(self._out)
        elif tag in _BLOCKS:
            self._block()

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIPPED:
            self._skipping = max(0, self._skipping - 1)
            return
        if self._skipping:
            return
        if tag == "pre" and self._pre:
            self._pre -= 1
            self._format_line()
            self._out.append("```\n\n")
        elif tag in _INLINE:
            self._inline(_INLINE[tag])
        elif tag == "a" and self._links:
            self._close_link()
        elif tag in ("ul", "ol") and self._lists:
            self._lists.pop()
            self._format_line() if self._lists else self._block()
        elif tag == "blockquote" and self._quotes:
            self._close_quote()
        elif tag in ("td", "th") and self._cell_start >= 0:
            self._close_cell()
        elif tag == "tr" and self._cells:
            self._close_row()
        elif tag == "table":
            self._cells.clear()
            self._block()
        elif tag in _HEADINGS or tag in _BLOCKS:
            self._block()

    def handle_data(self, data: str) -> None:
        if self._skipping:
            return
        if self._pre:
            self._out.append(data)
            return
        text = re.sub(r"\s+", " ", data)
        if text.startswith(" ") and (not self._out or self._out[-1].endswith(("\n", " "))):
            text = text[1:]
        if text:
            self._out.append(text)

    def _block(self) -> None:
        if self._cell_start < 0 and self._out and not self._out[-1].endswith("\n\n"):
            self._out.append("\n" if self._out[-1].endswith("\n") else "\n\n")

    def _format_line(self) -> None:
        if self._out and not self._out[-1].endswith("\n"):
            self._out.append("\n")

    def _inline(self, mark: str) -> None:
        if not self._pre:
            self._out.append(mark)

    def _read_item(self) -> None:
        self._format_line()
        indent = "  " * max(0, len(self._lists) - 1)
        number = self._lists[-1] if self._lists else None
        if number is None:
            self._out.append(f"{indent}- ")
        else:
            self._lists[-1] = number + 1
            self._out.append(f"{indent}{number + 1}. ")

    def _read_image(self, values: dict[str, str]) -> None:
        source = values.get("src", "")
        alt = " ".join(values.get("alt", "").split())
        if source.startswith("data:") or not source:
            self._out.append(alt)
        else:
            self._out.append(f"![{alt}]({self._resolve_absolute(source)})")

    def _close_link(self) -> None:
        target, start = self._links.pop()
        label = "".join(self._out[start:]).strip()
        if not label or not target or target.startswith(("javascript:", "data:")):
            return
        del self._out[start:]
        self._out.append(f"[{label}]({self._resolve_absolute(target)})")

    def _close_quote(self) -> None:
        start = self._quotes.pop()
        quoted = "".join(self._out[start:]).strip()
        del self._out[start:]
        self._out.append("\n".join(f"> {line}" for line in quoted.split("\n")) + "\n\n")

    def _close_cell(self) -> None:
        cell = " ".join("".join(self._out[self._cell_start :]).split()).replace("|", "\\|")
        del self._out[self._cell_start :]
        self._cell_start = -1
        if self._cells:
            self._cells[-1].append(cell)

    def _close_row(self) -> None:
        row = self._cells[-1]
        self._format_line()
        self._out.append("| " + " | ".join(row) + " |\n")
        if len(self._cells) == 1:
            self._out.append("|" + " --- |" * len(row) + "\n")

    def _resolve_absolute(self, target: str) -> str:
        try:
            return urljoin(self._base, target.strip())
        except ValueError:
            return target.strip()
