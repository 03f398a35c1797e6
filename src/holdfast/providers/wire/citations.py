"""Citations in the words of the vendors become ours."""

from __future__ import annotations

from typing import Any

from holdfast.messages import Citation
from holdfast.providers.wire.codec import MAX_CITATIONS

_TITLES = ("title", "document_title", "filename")
_URLS = ("url", "source")
_QUOTES = ("cited_text",)
_LONGEST_PLACE = 1 << 53


def read_citations(found: object, shift: int = 0) -> tuple[Citation, ...]:
    """Return the citations of a text that stands `shift` characters into its part.

    What is no citation is left out, and so are more than any model means to make: the text is
    no worse without them.
    """
    if not isinstance(found, list):
        return ()
    return tuple([_read(each, shift) for each in found[:MAX_CITATIONS] if _is_citation(each)])


def _is_citation(found: object) -> bool:
    return isinstance(found, dict) and isinstance(found.get("type"), str) and bool(found["type"])


def _read(found: dict[str, Any], shift: int) -> Citation:
    kind = found["type"]
    inner = found.get(kind)
    # The chat API puts what it says below its own word.
    said = dict(inner) if isinstance(inner, dict) else dict(found)
    said.pop("type", None)
    start, end = said.pop("start_index", None), said.pop("end_index", None)
    has_place = _is_place(start) and _is_place(end) and start <= end
    return Citation(
        kind=kind,
        title=_take_text(said, _TITLES),
        url=_take_text(said, _URLS),
        quote=_take_text(said, _QUOTES),
        start=start + shift if has_place else None,
        end=end + shift if has_place else None,
        details={name: value for name, value in said.items() if value is not None},
    )


def _is_place(value: object) -> bool:
    return type(value) is int and 0 <= value < _LONGEST_PLACE


def _take_text(said: dict[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        if isinstance(said.get(name), str):
            return str(said.pop(name))
    return ""
