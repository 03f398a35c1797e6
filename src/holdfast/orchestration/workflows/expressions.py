"""A small language for conditions and for what goes from one step to the next.

Names, literals, `.name`, `[index]`, comparisons, `in`, `and`, `or`, `not`, `+` and `-` of
numbers, and a few functions; no calls of anything else, no loops, no assignments. Reading and
working out are bounded, so a hostile expression costs no more than a clumsy one. Values that
are put into a text are never read as expressions again.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from holdfast.errors import ExpressionInvalid

LONGEST: Final = 2_000
"""Characters of one expression."""
LARGEST_TEXT: Final = 1_000_000
"""Characters of a text that expressions are put into."""
_DEEPEST: Final = 30
_MOST_NODES: Final = 300

Value: TypeAlias = Any
"""JSON: a text, a number, true, false, null, a list or an object."""
Names: TypeAlias = Mapping[str, Value]

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>\d{1,15}(?:\.\d{1,15})?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]{0,99})
    | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<sign>==|!=|<=|>=|[<>+\-.,()\[\]])
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", '"': '"', "'": "'"}
_WORDS = {"true": True, "false": False, "null": None}
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})


@dataclass(frozen=True)
class Node:
    """One operation: what it is, its operands, and the literal or name that it holds."""

    kind: str
    parts: tuple[Node, ...] = ()
    value: Value = None


class _Missing(Exception):
    """What was named is not there; `default` catches it."""


class _Wrong(Exception):
    """The values do not fit the operation."""


# --- reading -------------------------------------------------------------------------


@functools.lru_cache(maxsize=2_048)
def parse(text: str) -> Node:
    """Return an expression as a tree.

    Raises:
        ExpressionInvalid: it cannot be read, or is too long or too deep.
    """
    if len(text) > LONGEST:
        raise ExpressionInvalid(text=f"{text[:60]}…", detail=f"it is longer than {LONGEST}")
    return _Parser(text).whole()


class _Parser:
    """Reads one expression, an operator at a time."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._place = 0
        self._nodes = 0

    def whole(self) -> Node:
        if not self._tokens:
            self._fail("it is empty")
        node = self._choose_either(0)
        if self._place < len(self._tokens):
            self._fail(f"{self._peek()[1]!r} stands where an operator should")
        return node

    def _split(self) -> list[tuple[str, str]]:
        found, place = [], 0
        end = len(self._text.rstrip())
        while place < end:
            match = _TOKEN.match(self._text, place, end)
            if match is None or match.lastgroup is None:
                self._fail(f"{self._text[place : place + 10].strip()!r} cannot be read")
                break
            found.append((match.lastgroup, match[match.lastgroup]))
            place = match.end()
        return found

    def _choose_either(self, depth: int) -> Node:
        node = self._parse_and(depth)
        while self._take("name", "or"):
            node = self._parse_node("or", (node, self._parse_and(depth)))
        return node

    def _parse_and(self, depth: int) -> Node:
        node = self._parse_not(depth)
        while self._take("name", "and"):
            node = self._parse_node("and", (node, self._parse_not(depth)))
        return node

    def _parse_not(self, depth: int) -> Node:
        self._check(depth)
        if self._take("name", "not"):
            return self._parse_node("not", (self._parse_not(depth + 1),))
        return self._parse_comparison(depth)

    def _parse_comparison(self, depth: int) -> Node:
        node = self._sum(depth)
        kind, text = self._peek()
        if kind == "name" and text == "not" and self._peek(1) == ("name", "in"):
            self._place += 2
            return self._parse_node("not", (self._parse_node("in", (node, self._sum(depth))),))
        if text in _COMPARISONS and kind in ("sign", "name"):
            self._place += 1
            node = self._parse_node(text, (node, self._sum(depth)))
            if self._peek()[0] == "sign" and self._peek()[1] in _COMPARISONS:
                self._fail("comparisons cannot be chained; join them with `and`")
        return node

    def _sum(self, depth: int) -> Node:
        node = self._sign(depth)
        while (found := self._peek()) in (("sign", "+"), ("sign", "-")):
            self._place += 1
            node = self._parse_node(found[1], (node, self._sign(depth)))
        return node

    def _sign(self, depth: int) -> Node:
        self._check(depth)
        if self._take("sign", "-"):
            return self._parse_node("negative", (self._sign(depth + 1),))
        return self._read_path(depth)

    def _read_path(self, depth: int) -> Node:
        node = self._parse_primary(depth)
        while True:
            if self._take("sign", "."):
                kind, text = self._take_next("a name after the dot")
                if kind != "name":
                    self._fail(f"{text!r} is no name")
                node = self._parse_node("field", (node,), text)
            elif self._take("sign", "["):
                node = self._parse_node("item", (node, self._choose_either(depth + 1)))
                self._expect("]")
            else:
                return node

    def _parse_primary(self, depth: int) -> Node:
        self._check(depth)
        kind, text = self._take_next("a value")
        if kind == "number":
            return self._parse_node("literal", (), float(text) if "." in text else int(text))
        if kind == "text":
            return self._parse_node("literal", (), _unescape(text[1:-1]))
        if kind == "name":
            return self._find_named(text, depth)
        if text == "(":
            node = self._choose_either(depth + 1)
            self._expect(")")
            return node
        if text == "[":
            return self._parse_node("list", self._list_several("]", depth))
        self._fail(f"{text!r} stands where a value should")
        raise AssertionError

    def _find_named(self, name: str, depth: int) -> Node:
        if name in _WORDS:
            return self._parse_node("literal", (), _WORDS[name])
        if name in ("and", "or", "not", "in"):
            self._fail(f"{name!r} stands where a value should")
        if not self._take("sign", "("):
            return self._parse_node("name", (), name)
        if name not in FUNCTIONS and name != "default":
            self._fail(f"there is no function {name}; there are {', '.join(sorted(_find_known()))}")
        return self._parse_node("call", self._list_several(")", depth), name)

    def _list_several(self, end: str, depth: int) -> tuple[Node, ...]:
        found: list[Node] = []
        if self._take("sign", end):
            return ()
        while True:
            found.append(self._choose_either(depth + 1))
            if self._take("sign", end):
                return tuple(found)
            self._expect(",")

    def _parse_node(self, kind: str, parts: tuple[Node, ...] = (), value: Value = None) -> Node:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            self._fail("it has too many parts")
        return Node(kind, parts, value)

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self._place + ahead
        return self._tokens[place] if place < len(self._tokens) else ("end", "")

    def _take_next(self, wanted: str) -> tuple[str, str]:
        found = self._peek()
        if found[0] == "end":
            self._fail(f"it ends where {wanted} should stand")
        self._place += 1
        return found

    def _take(self, kind: str, text: str) -> bool:
        if self._peek() != (kind, text):
            return False
        self._place += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._take("sign", text):
            self._fail(f"{text!r} is missing")

    def _check(self, depth: int) -> None:
        if depth > _DEEPEST:
            self._fail("it is too deep")

    def _fail(self, detail: str) -> None:
        raise ExpressionInvalid(text=self._text[:200], detail=detail)


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text, flags=re.DOTALL)


# --- working out ---------------------------------------------------------------------


def evaluate(text: str, names: Names) -> Value:
    """Return the value of an expression.

    Raises:
        ExpressionInvalid: it cannot be read, names what is not there, or mixes what does
            not fit together.
    """
    try:
        return _read_value(parse(text), names)
    except (_Missing, _Wrong) as wrong:
        raise ExpressionInvalid(text=text[:200], detail=str(wrong)) from None


def is_true(text: str, names: Names) -> bool:
    """Say whether a condition holds; `${…}` around it is welcome.

    False, null, 0 and what is empty do not hold; everything else does.
    """
    return bool(evaluate(strip_quotes(text), names))


def strip_quotes(text: str) -> str:
    """Return a condition without the `${…}` around it."""
    stripped = text.strip()
    pieces = split(stripped)
    if len(pieces) == 1 and pieces[0][0] == "expression":
        return pieces[0][1]
    return stripped


def _read_value(node: Node, names: Names) -> Value:
    match node.kind:
        case "literal":
            return node.value
        case "name":
            if node.value not in names:
                raise _Missing(f"there is no {node.value}")
            return names[node.value]
        case "list":
            return [_read_value(part, names) for part in node.parts]
        case "and":
            return bool(_read_value(node.parts[0], names)) and bool(
                _read_value(node.parts[1], names)
            )
        case "or":
            return bool(_read_value(node.parts[0], names)) or bool(
                _read_value(node.parts[1], names)
            )
        case "not":
            return not _read_value(node.parts[0], names)
        case "field":
            return _read_field(_read_value(node.parts[0], names), node.value)
        case "item":
            return _read_item(_read_value(node.parts[0], names), _read_value(node.parts[1], names))
        case "negative":
            return -_read_number(_read_value(node.parts[0], names))
        case "call":
            return _call(node, names)
    left, right = (_read_value(part, names) for part in node.parts)
    return _operate(node.kind, left, right)


def _operate(sign: str, left: Value, right: Value) -> Value:
    if sign == "+":
        return _read_number(left) + _read_number(right)
    if sign == "-":
        return _read_number(left) - _read_number(right)
    if sign in ("==", "!="):
        return _equal(left, right) == (sign == "==")
    if sign == "in":
        return _contains(left, right)
    if isinstance(left, str) != isinstance(right, str):
        raise _Wrong(f"{_classify_kind(left)} and {_classify_kind(right)} have no order")
    if not isinstance(left, str):
        left, right = _read_number(left), _read_number(right)
    return {
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[sign]


def _equal(left: Value, right: Value) -> bool:
    # In Python 1 == True; in JSON they are different things.
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _contains(left: Value, right: Value) -> bool:
    if isinstance(right, str):
        if not isinstance(left, str):
            raise _Wrong(f"{_classify_kind(left)} cannot be in a text")
        return left in right
    if isinstance(right, Mapping):
        return isinstance(left, str) and left in right
    if isinstance(right, list | tuple):
        return any(_equal(left, one) for one in right)
    raise _Wrong(f"nothing can be in {_classify_kind(right)}")


def _read_field(value: Value, name: str) -> Value:
    if not isinstance(value, Mapping):
        raise _Missing(f"{_classify_kind(value)} has no .{name}")
    if name not in value:
        raise _Missing(f"there is no .{name}")
    return value[name]


def _read_item(value: Value, key: Value) -> Value:
    if isinstance(value, Mapping) and isinstance(key, str):
        return _read_field(value, key)
    if not isinstance(value, list | tuple | str) or isinstance(key, bool) or type(key) is not int:
        raise _Wrong(f"{_classify_kind(value)} cannot be asked for {_classify_kind(key)}")
    if not -len(value) <= key < len(value):
        raise _Missing(f"there is no item {key}")
    return value[key]


def _read_number(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Wrong(f"{_classify_kind(value)} is no number")
    return value


def _classify_kind(value: Value) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, int | float):
        return "a number"
    return "an object" if isinstance(value, Mapping) else "a list"


def _call(node: Node, names: Names) -> Value:
    name = node.value
    if name == "default":
        if len(node.parts) != 2:
            raise _Wrong("default takes two values")
        try:
            found = _read_value(node.parts[0], names)
        except _Missing:
            found = None
        return _read_value(node.parts[1], names) if found is None else found
    values = [_read_value(part, names) for part in node.parts]
    count, function = FUNCTIONS[name]
    if len(values) != count:
        raise _Wrong(f"{name} takes {count}, not {len(values)}")
    return function(*values)


def _measure_length(value: Value) -> int:
    if not isinstance(value, str | list | tuple | Mapping):
        raise _Wrong(f"{_classify_kind(value)} has no length")
    return len(value)


def _render_text(value: Value) -> str:
    if not isinstance(value, str):
        raise _Wrong(f"{_classify_kind(value)} is no text")
    return value


def _to_number(value: Value) -> float:
    if not isinstance(value, str):
        return _read_number(value)
    try:
        read = msgspec.json.decode(value.strip()[:50])
    except msgspec.DecodeError:
        read = None
    if isinstance(read, bool) or not isinstance(read, int | float):
        raise _Wrong(f"{value[:50]!r} is no number")
    return read


def _join(values: Value, between: Value) -> str:
    if not isinstance(values, list | tuple):
        raise _Wrong(f"{_classify_kind(values)} cannot be joined")
    pieces = [as_text(value) for value in values]
    if sum(map(len, pieces)) + len(_render_text(between)) * len(pieces) > LARGEST_TEXT:
        raise _Wrong(f"a text would be longer than {LARGEST_TEXT}")
    return _render_text(between).join(pieces)


FUNCTIONS: Final[Mapping[str, tuple[int, Callable[..., Value]]]] = {
    "len": (1, _measure_length),
    "str": (1, lambda value: as_text(value)),
    "number": (1, _to_number),
    "lower": (1, lambda value: _render_text(value).lower()),
    "upper": (1, lambda value: _render_text(value).upper()),
    "trim": (1, lambda value: _render_text(value).strip()),
    "lines": (1, lambda value: _render_text(value).splitlines()),
    "join": (2, _join),
}
"""How many values each function takes, and what it does; `default` stands apart."""


def _find_known() -> list[str]:
    return [*FUNCTIONS, "default"]


# --- texts with expressions in them ------------------------------------------------------


@functools.lru_cache(maxsize=2_048)
def split(text: str) -> tuple[tuple[str, str], ...]:
    """Return a text in pieces: (`text`, …) and (`expression`, …).

    `$${` stands for a plain `${`.

    Raises:
        ExpressionInvalid: a `${` has no end.
    """
    pieces: list[tuple[str, str]] = []
    plain, place = "", 0
    while (start := text.find("${", place)) >= 0:
        if start > 0 and text[start - 1] == "$":
            plain += text[place : start - 1] + "${"
            place = start + 2
            continue
        plain += text[place:start]
        end = _end_of(text, start + 2)
        if plain:
            pieces.append(("text", plain))
        pieces.append(("expression", text[start + 2 : end]))
        plain, place = "", end + 1
    plain += text[place:]
    return (*pieces, ("text", plain)) if plain or not pieces else tuple(pieces)


def _end_of(text: str, start: int) -> int:
    """Find the `}` that ends an expression; one inside quotes does not."""
    quote, place = "", start
    while place < len(text):
        char = text[place]
        if quote:
            if char == "\\":
                place += 1
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        elif char == "}":
            return place
        place += 1
    raise ExpressionInvalid(text=text[start - 2 : start + 60], detail="its `}` is missing")


def render(template: Value, names: Names) -> Value:
    """Return a value with its expressions worked out, also inside lists and objects.

    A text that is one expression and nothing else becomes its value, whatever the type;
    otherwise values become text: texts as they are, everything else as JSON.

    Raises:
        ExpressionInvalid: an expression does not work, or the text would be too long.
    """
    if isinstance(template, str):
        return _render(template, names)
    if isinstance(template, Mapping):
        return {key: render(value, names) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [render(value, names) for value in template]
    return template


def _render(text: str, names: Names) -> Value:
    if "${" not in text:
        return text
    pieces = split(text)
    if len(pieces) == 1 and pieces[0][0] == "expression":
        return evaluate(pieces[0][1], names)
    made, size = [], 0
    for kind, piece in pieces:
        made.append(piece if kind == "text" else as_text(evaluate(piece, names)))
        size += len(made[-1])
        if size > LARGEST_TEXT:
            raise ExpressionInvalid(text=text[:60], detail=f"it is longer than {LARGEST_TEXT}")
    return "".join(made)


def as_text(value: Value) -> str:
    """Return a value as it stands in a text: a text as it is, all else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def list_expressions(template: Value) -> list[str]:
    """Return every expression of a template, also inside lists and objects.

    Raises:
        ExpressionInvalid: a `${` has no end.
    """
    if isinstance(template, str):
        return [piece for kind, piece in split(template) if kind == "expression"]
    if isinstance(template, Mapping):
        return [found for value in template.values() for found in list_expressions(value)]
    if isinstance(template, list | tuple):
        return [found for value in template for found in list_expressions(value)]
    return []


def list_references(node: Node) -> list[tuple[str, ...]]:
    """Return what an expression names: `steps.a.output[0]` gives ("steps", "a", "output")."""
    path, rest = _split_dotted(node)
    if path:
        return [path, *[found for part in rest for found in list_references(part)]]
    return [found for part in node.parts for found in list_references(part)]


def _split_dotted(node: Node) -> tuple[tuple[str, ...], list[Node]]:
    """Return the leading names of a path, and the operands inside its brackets."""
    match node.kind:
        case "name":
            return (node.value,), []
        case "field":
            path, rest = _split_dotted(node.parts[0])
            return ((*path, node.value), rest) if path else ((), [])
        case "item":
            path, rest = _split_dotted(node.parts[0])
            return (path, [*rest, node.parts[1]]) if path else ((), [])
    return (), []


__all__ = [
    "FUNCTIONS",
    "LARGEST_TEXT",
    "LONGEST",
    "Names",
    "Node",
    "Value",
    "as_text",
    "evaluate",
    "is_true",
    "list_expressions",
    "list_references",
    "parse",
    "render",
    "split",
    "strip_quotes",
]
