"""Texts as the lexical index sees them, for many languages.

The index splits at everything that is no letter or digit, folds case and accents, and
stems English. What it cannot do is done here: scripts written without spaces become
overlapping pairs of characters, emoji become words, parts of names in code are findable.
Queries are built from words only; whatever a user types, no operator reaches the index.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence

_MAX_QUERY_WORDS = 32
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUNS = re.compile(f"[{_UNSPACED}]+")
_SILENT = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
                     "\u064b-\u065f\u0670\u06d6-\u06ed\u0640\u200c\u200d\ufe0e\ufe0f]")  # fmt: skip
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_SYMBOLS = re.compile(r"[^\w\s\x00-\x7f]")
_CAMEL = re.compile(r"\b[A-Za-z0-9]*[a-z0-9][A-Z][A-Za-z0-9]*\b")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W_]+")
_ENGLISH_FILLERS = frozenset(
    "a about after again all also am an and any are as at be because been before being but by "
    "can could did do does doing for from had has have having he her hers him his how i if in "
    "into is it its just me my myself of on or our ours out she should so some such than that "
    "the their theirs them then there these they this those to too up us was we were what when "
    "where which while who whom whose why will with would you your yours".split()
)


def index_text(text: str) -> str:
    """Return the text as it is indexed."""
    hidden = " ".join(_HUMP.sub(" ", found) for found in _CAMEL.findall(text))
    if not text.isascii():
        text = _SILENT.sub("", unicodedata.normalize("NFKD", text))
        text = unicodedata.normalize("NFKC", text).casefold()
        text = _RUNS.sub(lambda found: f" {' '.join(_list_pairs(found[0]))} ", text)
        text = _SYMBOLS.sub(_name_symbol, text)
    text = _CONTROL.sub(" ", text)
    return f"{text} {hidden}" if hidden else text


def query_words(text: str, *, leave_out: frozenset[str] = frozenset()) -> list[str]:
    """Return the words to look for, without fillers and without the given names.

    If nothing else is there, fillers and names are looked for after all.
    """
    words = list(dict.fromkeys(_split(index_text(text))))
    telling = [word for word in words if word not in leave_out and word not in _ENGLISH_FILLERS]
    return (telling or words)[:_MAX_QUERY_WORDS]


def is_filler(word: str) -> bool:
    """Say whether a word of a query is one that nearly every text holds."""
    return word in _ENGLISH_FILLERS


def match_expression(places: Sequence[str], words: Iterable[str]) -> str:
    """Return a query for rows of these places, or of all, that hold any of the words."""
    what = f"{{own before}} : ({' OR '.join(_stem_term(word) for word in words)})"
    if not places:
        return what
    where = " OR ".join(f'"{place}"' for place in places)
    return f"{{place}} : ({where}) AND {what}"


def match_place(place: str) -> str:
    """Return a query for all rows of a place."""
    return f'{{place}} : ("{place}")'


def match_word(word: str) -> str:
    """Return a query for rows of any place that hold a word."""
    return f"{{own before}} : ({_stem_term(word)})"


def name_place(*parts: str) -> str:
    """Return a word that stands for a place; no text can contain it by chance or on purpose."""
    digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()
    return f"p{int.from_bytes(digest[:16]):040d}"


def name_words(name: str) -> frozenset[str]:
    """Return the words of a speaker's name as they appear in queries."""
    return frozenset(word for word in _split(index_text(name)) if len(word) > 1)


def drop_names(text: str, names: Iterable[str]) -> str:
    """Return the text without these names: whom it is about is metadata, not meaning."""
    known = [re.escape(name) for name in names if name.strip()]
    if not known:
        return text
    pattern = rf"\b(?:{'|'.join(sorted(known, key=len, reverse=True))})\b(?:['\u2019]s)?"
    stripped = re.sub(pattern, "", text, flags=re.IGNORECASE).strip()
    return stripped or text


def _list_pairs(run: str) -> list[str]:
    """Cut a run into overlapping pairs, its last character alone.

    Digits, so that the stemmer leaves them alone. A single character is looked for as the
    beginning of a pair, which finds it anywhere.
    """
    return [
        "x" + "".join(f"{ord(letter):07d}" for letter in run[start : start + 2])
        for start in range(len(run))
    ]


def _name_symbol(found: re.Match[str]) -> str:
    symbol = found[0]
    if unicodedata.category(symbol) in ("So", "Sk", "Sm", "Sc"):
        return f" y{ord(symbol):07d} "
    return symbol


def _split(text: str) -> list[str]:
    words: list[str] = []
    # Marks that are no letters are nowhere in ASCII, so that it need not be looked at in parts.
    for chunk in [text.casefold()] if text.isascii() else text.casefold().split():
        if not chunk.isascii() and any(
            unicodedata.category(letter).startswith("M") for letter in chunk
        ):
            # Letters with marks that are no letters: a phrase, as the index splits it alike.
            words += [chunk] if _WORD.search(chunk) else []
        else:
            words += _WORD.findall(chunk)
    if len(words) > 1:
        # Of a run of pairs the last character alone says nothing more.
        return [word for word in words if not is_pair_start(word)] or words
    return words


def is_pair_start(word: str) -> bool:
    """Say whether a word of a query is one character of a script without spaces."""
    return len(word) == 8 and word[0] == "x" and word[1:].isdigit()


def _stem_term(word: str) -> str:
    quoted = '"' + word.replace('"', " ") + '"'
    return quoted + " *" if is_pair_start(word) else quoted


__all__ = [
    "index_text",
    "is_filler",
    "is_pair_start",
    "match_expression",
    "match_place",
    "match_word",
    "name_place",
    "name_words",
    "query_words",
    "drop_names",
]
