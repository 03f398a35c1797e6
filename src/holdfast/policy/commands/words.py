"""Turn one word of the tree into the argument that it means, or refuse to guess."""

from __future__ import annotations

import re

from tree_sitter import Node


class NotLiteral(Exception):
    """A word whose value depends on more than its text; `str()` says why."""


# What stands for itself outside quotes. Globs, `~` and braces are looked at as a whole word.
_BARE = re.compile(r"[\w./:=,@%+^~{}!#-]*", re.ASCII)
_EXPANDS = re.compile(r"\$[\w{(@*#?!$'\"-]|\$\[|`")
_TILDE = re.compile(r"(^|[:=])~")


def format_literal(node: Node) -> str:
    """Return the exact argument that a word node means.

    Raises:
        NotLiteral: it expands to something that its text does not show.
    """
    pieces = _split_pieces(node)
    bare = "".join(text if is_bare else "\0" for text, is_bare in pieces)
    if _TILDE.search(bare):
        raise NotLiteral("it has a tilde, which expands")
    if "{" in bare and ("," in bare or ".." in bare):
        raise NotLiteral("it has braces, which expand")
    return "".join(text for text, _ in pieces)


def _split_pieces(node: Node) -> list[tuple[str, bool]]:
    """The parts of a word, each with whether it stands outside quotes."""
    kind, text = node.type, _render_text(node)
    if kind in ("word", "number"):
        return _strip(text)
    if kind == "raw_string":
        return [(text[1:-1], False)]
    if kind == "string":
        return [(_read_double_quoted(node), False)]
    if kind == "concatenation":
        return [piece for child in _list_parts(node) for piece in _split_pieces(child)]
    if kind == "$":
        return [("$", False)]
    raise NotLiteral(f"it has a {kind.replace('_', ' ')}")


def _list_parts(node: Node) -> list[Node]:
    """The children of a concatenation, which must touch each other."""
    end = node.start_byte
    for child in node.children:
        is_dollar_before = child.type == "$" and child.id != node.children[-1].id
        if child.start_byte != end or is_dollar_before:
            raise NotLiteral("it has a word whose parts do not simply follow each other")
        end = child.end_byte
    return node.children


def _strip(text: str) -> list[tuple[str, bool]]:
    """Undo backslashes; what follows one is as good as quoted."""
    found: list[tuple[str, bool]] = []
    for index, part in enumerate(re.split(r"\\(.)", text)):
        if index % 2:
            found.append((part, False))
        elif _is_plain(part):
            found.append((part, True))
        else:
            odd = next(one for one in part if not _is_plain(one))
            raise NotLiteral(f"it has an unquoted {odd!r}")
    return found


def _is_plain(text: str) -> bool:
    ascii_part = "".join(one for one in text if one.isascii())
    letters = all(one.isalnum() for one in text if not one.isascii())
    return letters and _BARE.fullmatch(ascii_part) is not None


def _read_double_quoted(node: Node) -> str:
    for child in node.children:
        if child.type not in ('"', "string_content", "$"):
            raise NotLiteral(f"it has a {child.type.replace('_', ' ')} inside quotes")
    inside = _render_text(node)[1:-1]
    unescaped = re.sub(r"\\.", "", inside, flags=re.DOTALL)
    if _EXPANDS.search(unescaped):
        raise NotLiteral("it has an expansion inside quotes")
    return re.sub(r'\\([$`"\\])', r"\1", inside)


def _render_text(node: Node) -> str:
    return (node.text or b"").decode()


__all__ = ["NotLiteral", "format_literal"]
