"""Find texts of which at least one must occur wherever a regular expression matches.

A quick way to leave out most files and lines. When in doubt the answer is «none known»,
never a text that a match could do without.
"""

from __future__ import annotations

from holdfast.linear_regex import find_class_end

_MIN_LENGTH = 2
_KNOWN_ESCAPES = frozenset("wWdDsSbBAZntr")
_WORD_EDGES = frozenset("<>")
_SPECIAL = frozenset("^$.")
_OPTIONAL = frozenset("*?{")


def find_required_literals(pattern: str) -> tuple[str, ...]:
    """One text per top-level alternative; empty if some alternative has none.

    Only plain ASCII counts, so that the answer holds in every encoding.
    """
    if "(?" in pattern or not pattern.isascii():
        return ()  # flags, lookarounds and comments change what the rest means
    if any(_is_strange(token) for token in _format_tokens(pattern)):
        return ()
    found: list[str] = []
    for alternative in _split_alternatives(pattern):
        longest = max(_list_runs(alternative), key=len, default="")
        if len(longest) < _MIN_LENGTH:
            return ()
        found.append(longest)
    return tuple(found)


def _format_tokens(pattern: str) -> list[str]:
    """Split into escapes, classes, groups and single characters."""
    tokens: list[str] = []
    index = 0
    while index < len(pattern):
        end = _find_token_end(pattern, index)
        tokens.append(pattern[index:end])
        index = end
    return tokens


def _find_token_end(pattern: str, start: int) -> int:
    char = pattern[start]
    if char == "\\":
        return start + 2
    if char == "[":
        return find_class_end(pattern, start)
    if char == "(":
        end = start + 1
        while end < len(pattern) and pattern[end] != ")":
            end = _find_token_end(pattern, end)
        return end + 1
    return start + 1


def _split_alternatives(pattern: str) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for token in _format_tokens(pattern):
        if token == "|":
            found.append([])
        else:
            found[-1].append(token)
    return found


def _list_runs(tokens: list[str]) -> list[str]:
    """Texts without a gap that every match of the tokens holds."""
    runs = [""]
    in_braces = False
    for token in tokens:
        literal = _parse_literal(token)
        if in_braces:
            in_braces = token != "}"
        elif token in _OPTIONAL:
            # The last character may be missing, or repeated.
            runs[-1] = runs[-1][:-1]
            runs.append("")
            in_braces = token == "{"
        elif literal and token != "+":
            runs[-1] += literal
        else:
            runs.append("")
    return runs


def _is_strange(token: str) -> bool:
    """Whether it is an escape that may swallow what follows, such as `\\x41`."""
    return token[0] == "\\" and token[1:].isalnum() and token[1:] not in _KNOWN_ESCAPES


def _parse_literal(token: str) -> str:
    if len(token) == 2 and token[0] == "\\":
        if token[1] in _WORD_EDGES:
            return ""
        return token[1] if not token[1].isalnum() and token[1].isprintable() else ""
    if len(token) == 1 and token not in _SPECIAL and token.isprintable():
        return token
    return ""
