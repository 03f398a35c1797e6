"""Is a command line what it looks like? Says so before any caller parses it."""

from __future__ import annotations

import unicodedata

LONGEST = 10_000

# Dashes, quotes, slashes, bars, dots and semicolons that are not the ASCII ones.
_LOOK_ALIKES = frozenset(
    "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u02d7"
    "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u02bc\u02b9\u00b4\u2032\u2033"
    "\u2044\u2215\u29f8\u2223\u01c0\u2758\u2024\u037e\u01c3\u2216\u20e5\u02dc\u223c\u204e\u2217"
)
# Scripts whose letters pass for Latin ones; a word of theirs alone is an honest word.
_PASSING_SCRIPTS = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "DESERET")


def format_refusal(text: str) -> str:
    """Say why no caller should run this text, approved or not; empty if there is no reason.

    Characters that no screen shows, or that reorder what it shows, make an approval
    worthless: the person would approve something else than what runs.
    """
    for character in text:
        if character in "\n\t" or " " <= character <= "~":
            continue
        name = f"U+{ord(character):04X}"
        if character == "\0":
            return "it contains a NUL"
        if character == "\x1b":
            return "it contains a terminal escape sequence"
        category = unicodedata.category(character)
        if category == "Cc":
            return f"it contains the control character {name}"
        if category in ("Cf", "Zl", "Zp", "Cs", "Co", "Cn"):
            return f"it contains {name}, which is invisible or reorders the text"
        if category == "Zs":
            return f"it contains {name}, a space that is not the usual one"
    return ""


def find_objection(text: str) -> str:
    """Say why a person should look at this text first; empty if there is no reason."""
    if len(text) > LONGEST:
        return f"it is longer than {LONGEST} characters"
    if text.isascii():
        return ""
    for character in text:
        if character in _LOOK_ALIKES:
            return f"it contains U+{ord(character):04X}, which looks like an ASCII character"
    if unicodedata.normalize("NFKC", text) != unicodedata.normalize("NFC", text):
        return "it contains characters that only look like the usual ones"
    for word in text.split():
        if not word.isascii() and _mixes_scripts(word):
            return f"the word {ascii(word)[:60]} mixes scripts that look alike"
    return ""


def _mixes_scripts(word: str) -> bool:
    has_latin = any(character.isascii() and character.isalpha() for character in word)
    passing = any(
        unicodedata.name(character, "").startswith(_PASSING_SCRIPTS)
        for character in word
        if not character.isascii()
    )
    return has_latin and passing


__all__ = ["LONGEST", "find_objection", "format_refusal"]
