"""Names of people: when two of them mean the same identity, and which are no names.

A second consent has to come from a second person. A caller that may choose its name could sign
twice under spellings that look alike, so names are compared by a skeleton in the manner of UTS 39:
case, width, accents, spaces and invisible characters do not count, and letters that look alike
are one.
"""

from __future__ import annotations

import functools
import unicodedata

from holdfast.errors import UsageError

_LONGEST = 200
# Letters, after case folding, that a reader takes for the Latin one on the right.
_ALIKE = {
    "a": "аαɑａ", "b": "ЬьвβƅᏏ", "c": "сϲⅽᴄ", "d": "ԁⅾᏧ", "e": "еεҽ℮ɛ", "f": "ſϝ", "g": "ɡցƍ",
    "h": "һհᏂн", "i": "іɩιıɪӏ|!1l", "j": "јϳ", "k": "κкⲕ", "m": "мⅿϻ", "n": "ոռпη", "o": "оοօσ0ⲟ೦०",
    "p": "рρⲣ", "q": "ԛգզ", "r": "гⲅᴦ", "s": "ѕꜱ5ƽ", "t": "тτ", "u": "υսᴜʋ", "v": "νѵⅴᴠ",
    "w": "ԝաѡω", "x": "хχⅹ", "y": "уүγყ", "z": "ᴢʐ2",
}  # fmt: skip
_SKELETON = {ord(one): letter for letter, alike in _ALIKE.items() for one in alike.casefold()}
# Several letters that together look like one.
_PAIRS = (("rn", "m"), ("vv", "w"), ("ci", "d"))


@functools.lru_cache(maxsize=1_024)
def make_skeleton(name: str) -> str:
    """Return what two names have in common that a reader cannot tell apart."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    plain = unicodedata.normalize("NFKD", plain)
    kept = [
        char
        for char in plain
        # Marks, invisible characters, spaces and punctuation tell no two people apart.
        if unicodedata.category(char)[0] in "LNS" or char in "@|!"
    ]
    text = "".join(kept).translate(_SKELETON)
    for pair, letter in _PAIRS:
        text = text.replace(pair, letter)
    return text


def is_same_person(one: str, other: str) -> bool:
    """Say whether two names mean the same identity, or could be taken for each other."""
    return make_skeleton(one) == make_skeleton(other)


def clean_person(name: str) -> str:
    """Return the one spelling in which a name is kept.

    Raises:
        UsageError: it is empty, too long, or holds characters that no screen shows.
    """
    text = " ".join(unicodedata.normalize("NFKC", name).split())
    if not make_skeleton(text):
        raise UsageError(detail="An answer needs the name of who gives it.")
    if len(text) > _LONGEST or any(unicodedata.category(char)[0] == "C" for char in text):
        raise UsageError(
            detail=f"{ascii(text)[:80]} is no name: it is too long, or hides something."
        )
    return text


__all__ = ["clean_person", "is_same_person", "make_skeleton"]
