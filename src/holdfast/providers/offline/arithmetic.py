"""Find the sum in a sentence, and say which single operations it takes.

Nothing is computed here: the offline model asks a tool for every result.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, TypeAlias

from holdfast.providers.lazy_patterns import compile_on_use

Operation: TypeAlias = Literal["add", "subtract", "multiply", "divide", "power", "modulo"]

SIGNS: dict[Operation, str] = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "power": "**",
    "modulo": "%",
}
_BINDING = {"add": 1, "subtract": 1, "multiply": 2, "divide": 2, "modulo": 2, "power": 4}
MAX_OPERATIONS = 12
_MAX_GOAL = 2_000
_MAX_NESTING = 20


class Number(NamedTuple):
    """A number as it was written, digits and at most one point."""

    text: str


class Binary(NamedTuple):
    """An operation on two operands."""

    operation: Operation
    left: Expression
    right: Expression


Expression: TypeAlias = "Number | Binary"


class _Token(NamedTuple):
    kind: str
    """number, sign, open, close, percent, of, and, or word."""
    text: str


_UNITS = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen".split()
    )
}
_TENS = {
    word: 10 * value
    for value, word in enumerate(
        "twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2
    )
}
_SCALES = {"hundred": 100, "thousand": 1_000, "million": 1_000_000}
_PHRASES: list[tuple[re.Pattern[str], str]] = [
    (compile_on_use(pattern), replacement)
    for pattern, replacement in [
        (r"\b(?:to the power of|raised to(?: the power of)?|\bpower\b)", " ** "),
        (r"\bdivided by\b", " / "),
        (r"\bmultiplied (?:by|with)\b|\btimes\b", " * "),
        (r"\bplus\b|\badded to\b", " + "),
        (r"\bminus\b|\bless\b", " - "),
        (r"\bmod(?:ulo)?\b", " mod "),
        (r"\bsquared\b", " ** 2 "),
        (r"\bcubed\b", " ** 3 "),
        (r"\bper ?cent\b", " % "),
    ]
]
_VERBS: list[tuple[re.Pattern[str], str]] = [
    (compile_on_use(pattern), replacement)
    for pattern, replacement in [
        (r"\b(?:sum of|add) ([^,]+?) (?:and|to) ", r"\1 + "),
        (r"\b(?:product of|multiply) ([^,]+?) (?:and|by|with) ", r"\1 * "),
        (r"\b(?:difference between|difference of) ([^,]+?) and ", r"\1 - "),
        (r"\b(?:quotient of|divide) ([^,]+?) (?:and|by) ", r"\1 / "),
        (r"\bsubtract ([^,]+?) from ([\d.]+)", r"\2 - \1"),
    ]
]
_TOKEN = compile_on_use(
    r"\s*(?:(?P<number>\d+(?:[,_]\d{3})*(?:\.\d+)?|\.\d+)|(?P<sign>\*\*|//|[-+*/^×÷·−–])"
    r"|(?P<open>\()|(?P<close>\))|(?P<percent>%)|(?P<word>[^\W\d_][\w'-]*)|(?P<other>.))",
    re.DOTALL,
)
_SIGN_NAMES: dict[str, Operation] = {
    "+": "add",
    "-": "subtract",
    "−": "subtract",
    "–": "subtract",
    "*": "multiply",
    "×": "multiply",
    "·": "multiply",
    "/": "divide",
    "÷": "divide",
    "**": "power",
    "^": "power",
}
_FILLER = set(
    "a an and answer arithmetic be by calculate calculator can compute could does do equal equals "
    "evaluate exact exactly expression find for from get give how i in is it just kindly let me "
    "much need number of only out please problem quickly reply respond result s solve sum tell "
    "thanks that the then this to tool use using value want what what's with work would you your "
    "my math maths mathematics call function equation hello hey hi".split()
)


def find_expression(goal: str) -> Expression | None:
    """Return the expression that the goal asks for, or None if it asks for something else.

    Words for numbers and signs count (`fifteen times twenty-three`, `20 percent of 150`).
    Numbers in a sentence about something else do not make it a sum.
    """
    if len(goal) > _MAX_GOAL:
        return None
    text = _replace_number_words(goal.lower().strip())
    for pattern, replacement in _PHRASES:
        text = pattern.sub(replacement, text)
    for pattern, replacement in _VERBS:
        text = pattern.sub(replacement, text)
    tokens = _format_tokens(text)
    best: Expression | None = None
    at = 0
    while at < len(tokens):
        if tokens[at].kind in {"number", "open", "sign"}:
            parsed, end = _Parser(tokens, at).run()
            if isinstance(parsed, Binary):
                if best is not None:
                    return None
                best, at = parsed, end
                continue
            if parsed is not None or tokens[at].kind == "number":
                return None
        elif not (tokens[at].kind == "word" and tokens[at].text in _FILLER):
            if tokens[at].text not in "?.!,:;=\"'`":
                return None
        at += 1
    return best if best is not None and len(list_operations(best)) <= MAX_OPERATIONS else None


def list_operations(expression: Expression) -> list[Binary]:
    """Return the operations in the order in which they can be done, operands first."""
    if isinstance(expression, Number):
        return []
    return [*list_operations(expression.left), *list_operations(expression.right), expression]


def render(expression: Expression, *, power: str = "**", binding: int = 0) -> str:
    """Write an expression with signs, and with parentheses where they are needed."""
    if isinstance(expression, Number):
        return (
            f"({expression.text})"
            if expression.text.startswith("-") and binding
            else (expression.text)
        )
    own = _BINDING[expression.operation]
    sign = power if expression.operation == "power" else SIGNS[expression.operation]
    # Equal binding on the right needs parentheses, except for the power on the left.
    is_right_first = expression.operation == "power"
    left = render(expression.left, power=power, binding=own + (1 if is_right_first else 0))
    right = render(expression.right, power=power, binding=own + (0 if is_right_first else 1))
    written = f"{left} {sign} {right}"
    return f"({written})" if own < binding else written


def _replace_number_words(text: str) -> str:
    """Replace each run of number words by its digits."""
    pieces = re.split(r"(\s+|(?<=[a-z])-(?=[a-z])|[^\w\s])", text)
    out: list[str] = []
    run: list[str] = []
    gap = ""
    for piece in pieces:
        if piece in _UNITS or piece in _TENS or (run and piece in _SCALES):
            run.append(piece)
            gap = ""
        elif run and (not piece or piece.isspace() or piece == "-"):
            gap += piece
        else:
            if run:
                out.append(str(_compute_words_value(run)) + gap)
                run, gap = [], ""
            out.append(piece)
    if run:
        out.append(str(_compute_words_value(run)) + gap)
    return "".join(out)


def _compute_words_value(words: list[str]) -> int:
    total = part = 0
    for word in words:
        if word == "hundred":
            part = max(part, 1) * 100
        elif word in _SCALES:
            total, part = total + max(part, 1) * _SCALES[word], 0
        else:
            part += _UNITS.get(word, 0) + _TENS.get(word, 0)
    return total + part


def _format_tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "other"
        value = match[kind]
        if kind == "number":
            value = value.replace(",", "").replace("_", "")
            value = f"0{value}" if value.startswith(".") else value
        elif kind == "word" and value in {"x", "mod", "of"}:
            # "15 x 23"; alone, x is a word like any other.
            is_between = bool(found) and found[-1].kind in {"number", "close", "percent"}
            if is_between:
                kind = "of" if value == "of" else "sign"
                value = {"x": "*", "mod": "mod", "of": "of"}[value]
        elif kind == "sign" and value == "//":
            kind = "other"
        if value.strip():
            found.append(_Token(kind, value))
    return found


class _Parser:
    """Precedence climbing over tokens; gives up with None instead of raising."""

    def __init__(self, tokens: list[_Token], at: int) -> None:
        self.tokens = tokens
        self.at = at
        self.depth = 0

    def run(self) -> tuple[Expression | None, int]:
        parsed = self.expression(0)
        return parsed, self.at

    def peek(self) -> _Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _Token("end", "")

    def expression(self, least: int) -> Expression | None:
        left = self.read_operand()
        while left is not None:
            operation = self.operation()
            if operation is None or _BINDING[operation] < least:
                return left
            self.at += 1
            is_power = operation == "power"
            right = self.expression(_BINDING[operation] + (0 if is_power else 1))
            if right is None:
                return None
            left = Binary(operation, left, right)
        return None

    def operation(self) -> Operation | None:
        token = self.peek()
        if token.kind == "of":
            return "multiply"
        if token.kind == "percent" or token.text == "mod":
            return "modulo"
        return _SIGN_NAMES.get(token.text) if token.kind == "sign" else None

    def read_operand(self) -> Expression | None:
        token = self.peek()
        if token.kind == "sign" and token.text in "-−–+":
            self.at += 1
            # A power binds closer than the sign before it: -2 ** 2 is -(2 ** 2).
            inner = self.expression(_BINDING["power"])
            if inner is None or token.text == "+":
                return inner
            if isinstance(inner, Number):
                return Number(inner.text[1:] if inner.text.startswith("-") else f"-{inner.text}")
            return Binary("subtract", Number("0"), inner)
        if token.kind == "number":
            self.at += 1
            return self.read_percent(Number(token.text))
        if token.kind != "open" or self.depth >= _MAX_NESTING:
            return None
        self.at += 1
        self.depth += 1
        inner = self.expression(0)
        self.depth -= 1
        if inner is None or self.peek().kind != "close":
            return None
        self.at += 1
        return self.read_percent(inner)

    def read_percent(self, value: Expression) -> Expression:
        """Read a percent sign behind an operand, unless it stands between two operands."""
        if self.peek().kind != "percent":
            return value
        following = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None
        if following is not None and following.kind in {"number", "open"}:
            return value
        self.at += 1
        return Binary("divide", value, Number("100"))
