"""The redactor: finds secrets and puts markers in their place.

A `Redactor` knows two things: the secrets of this process, by value (from settings, the
environment and the secrets file, registered by the caller that starts things), and the formats of
common keys. What it finds it replaces by a stable marker such as `[redacted:openai-key]`.

Known secrets are also found with JSON escapes in them (`\\u0073`, `\\/`), URL-encoded, and
inside base64. Formats are found in clear text, and in texts packed as base64.

It is no wall: a program that is given a secret can always spell it backwards. It keeps
secrets from lying around in files that no caller meant to hold them.
"""

from __future__ import annotations

import base64
import binascii
import functools
import itertools
import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from holdfast.errors import UsageError
from holdfast.redaction.formats import (
    FORMATS,
    KEY_NAMES,
    LONG,
    PASSWORD_NAMES,
    PERSONAL,
    KeyFormat,
    is_assigned_key,
    is_assigned_password,
)

SHORTEST = 6
"""Shorter values are not taken for secrets: they would be found everywhere."""

_BASE64_LETTERS = string.ascii_letters + string.digits + "+/"


@functools.cache
def _compile_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern by its name; most processes meet few of them."""
    return re.compile(_PATTERNS[name], re.IGNORECASE if name in _ANY_CASE else 0)


_PATTERNS = {
    # Names of variables that hold secrets.
    "name": r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PWD|CREDENTIALS?|PAT|"
    r"DSN|COOKIE|AUTH|PRIVATE_KEY|ACCESS_KEY|WEBHOOK(?:_URL)?|CONNECTION_STRING)(?:_?(?:ID|\d+))?$",
    # What people write where a key is demanded but none is needed, and plain settings.
    "not a secret": r"lm-?studio|ollama|not[-_ ]?needed|none|null|empty|dummy|placeholder|changeme|"
    r"example|true|false|enabled|disabled|(?:sk-)?no-key-required|your[-_].*|<.*>|x+|\*+|"
    r"/[\w./-]*|\d{1,5}",
    "password in a url": r"[a-z][a-z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@",
    "base64": r"[A-Za-z0-9+/]{12,}={0,2}",
    "packed": r"[A-Za-z0-9+/]{32,}={0,2}",
    "percent": r"%([0-9a-fA-F]{2})",
    "backslash": r"\\+(?:u[0-9a-fA-F]{4}(?:\\+u[0-9a-fA-F]{4})*|(?=[\"'/\\]))",
    "no word": r"[^a-z0-9]+",
}
_ANY_CASE = frozenset({"name", "not a secret", "password in a url"})


class Redactor:
    """Finds secrets and puts markers in their place; safe to share between threads.

    Registering a secret makes it known from then on; nothing is ever forgotten.
    """

    def __init__(
        self,
        secrets: Mapping[str, str] | None = None,
        *,
        formats: Iterable[KeyFormat] | None = None,
        has_personal: bool = False,
    ) -> None:
        """Know secrets by name, and formats of keys (all, unless some are given).

        Personal data is looked for only if asked to.
        """
        chosen = [*(FORMATS if formats is None else formats), *(PERSONAL if has_personal else ())]
        self._has_assignments = formats is None
        # Keys that are told by their own letters come before those told by what stands around
        # them, since the latter may end where one of the former begins.
        self._formats = tuple(sorted(map(_Format, chosen), key=lambda one: one.rank))
        self._starts = tuple({clue for one in self._formats for clue in one.long_clues})
        self._openings = frozenset(_iterate_openings(self._starts))
        self._known: tuple[_Known, ...] = ()
        self._index()
        for name, value in (secrets or {}).items():
            self.register(name, value)

    def register(self, name: str, value: str) -> bool:
        """Make a secret known under a name; say whether it can be told from plain text.

        Values that are too short or obviously no secret (`none`, `lm-studio`, a path) are
        left alone, because hiding them would only hide other things.
        """
        value = value.strip()
        password = _compile_pattern("password in a url").match(value)
        if password is not None:
            self.register(f"{name}-password", unquote(password[1]))
        if len(value) < SHORTEST or _compile_pattern("not a secret").fullmatch(value):
            return False
        if all(one.value != value for one in self._known):
            known = _Known(_compile_pattern("no word").sub("-", name.lower()).strip("-"), value)
            # Longest first, in case one holds another; and replaced as a whole, so that a
            # search in another thread sees a sound table.
            self._known = tuple(sorted((*self._known, known), key=lambda one: -len(one.value)))
            self._index()
        return True

    def register_environment(self, environ: Mapping[str, str]) -> None:
        """Make the values known of all variables whose names look like those of secrets."""
        for name, value in environ.items():
            password = _compile_pattern("password in a url").match(value.strip())
            if password is not None:
                self.register(f"{name}-password", unquote(password[1]))
            elif _compile_pattern("name").search(name):
                self.register(name, value)

    def text(self, text: str) -> str:
        """Return the text with markers where secrets stood; the same object if none did."""
        return self._redact(text, may_unpack=True)

    def _redact(self, text: str, *, may_unpack: bool) -> str:
        data = text.encode("utf-8", "surrogatepass")
        present, likely = self._scan(data)
        for known in present:
            text = known.replace(text)
        if present:
            # What was glued to a secret stands at the beginning of a word now.
            data = text.encode("utf-8", "surrogatepass")
            likely = self._scan(data)[1]
        for one in likely:
            text = one.pattern.sub(one.mark, text)
        if may_unpack and self._has_guilty_pack(data):
            text = _compile_pattern("packed").sub(self._repack, text)
        return text

    def _repack(self, found: re.Match[str]) -> str:
        """Redact a text inside base64 and pack it again."""
        inner = _unpack(found[0].encode())
        clean = self._redact(inner, may_unpack=False)
        return found[0] if clean == inner else base64.b64encode(clean.encode()).decode()

    def json(self, data: bytes) -> bytes:
        """Return a JSON text with markers inside its strings; the same object if none.

        The result is valid JSON of the same shape: only strings and keys change, and what
        a `bytes` field holds as base64 stays base64.

        Raises:
            UsageError: the data is no JSON.
        """
        return self.render_json_texts((data,))[0]

    def render_json_texts(self, texts: Sequence[bytes]) -> Sequence[bytes]:
        """Return JSON texts as `json` does; the same object if none of them changes.

        They are looked through together: what is not in all of them is in none.
        """
        data = b"\n".join(texts)
        known, likely = self._scan(data)
        # Misses nothing that `text` would find.
        if not (known or self._has_guilty_pack(data) or (likely and _find(likely, data))):
            return texts
        if len(texts) == 1:
            clean = [self._decode(texts[0])]
        else:
            clean = [self.json(text) for text in texts]
        return texts if clean == texts else clean

    def _decode(self, data: bytes) -> bytes:
        """Return JSON that is worth decoding with markers inside its strings."""
        try:
            value = json.loads(data)
            changed = self.value(value)
            return data if changed == value else _to_json(changed)
        except (ValueError, RecursionError) as error:
            raise UsageError(detail=f"What should be redacted is no JSON: {error}") from error

    def value(self, value: Any) -> Any:  # noqa: ANN401 - any JSON in, the same shape out
        """Return a JSON value with markers inside its strings and keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self._redact_named(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def _redact_named(self, key: object, item: Any) -> Any:  # noqa: ANN401 - any JSON
        """Return a value as `value` does; a text under a telling name is judged by that name."""
        if isinstance(item, str) and self._has_assignments and isinstance(key, str):
            low = key.lower()
            is_secret = (low.endswith(PASSWORD_NAMES) and is_assigned_password(item)) or (
                low.endswith(KEY_NAMES) and is_assigned_key(item)
            )
            if is_secret and self.text(item) == item:
                return f"[redacted:{'password' if low.endswith(PASSWORD_NAMES) else 'secret'}]"
        return self.value(item)

    def log_processor(
        self, _logger: object, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Redact one log entry; stands before the renderer in structlog's processors."""
        return {self.text(str(key)): self._log(item) for key, item in event.items()}

    def _log(self, item: Any) -> Any:  # noqa: ANN401 - whatever was logged
        if isinstance(item, Mapping):
            return {self.text(str(key)): self._log(inner) for key, inner in item.items()}
        if isinstance(item, list | tuple | set | frozenset):
            return [self._log(inner) for inner in item]
        if item is None or isinstance(item, bool | int | float):
            return item
        shown = item if isinstance(item, str) else str(item)
        redacted = self.text(shown)
        return item if redacted == shown else redacted

    def _index(self) -> None:
        """Gather the clues that are looked for in long rows of characters only, and the others."""
        self._edges = frozenset({clue[-1] for one in self._formats for clue in one.before_clues})
        self._low_clues = tuple(
            {
                (one.needs.decode("latin-1"), clue.decode("latin-1"))
                for one in self._formats
                for clue in one.low_clues
            }
        )
        self._parts = tuple({clue for one in self._known for clue in one.long_clues})
        self._has_digests: bool | None = None
        self._always = tuple(one for one in self._formats if one.is_always)
        self._short = tuple(one for one in self._known if one.has_short_clues)

    def _scan(self, data: bytes) -> tuple[Sequence[_Known], tuple[_Format, ...]]:
        """The known secrets that occur in the data, and the formats whose clues do.

        Most data is done with after a look at its long rows of letters and digits.
        """
        rows = _list_rows(data, _LONG_SHAPE, _LONG_ROW)
        # Behind an escape anything may stand.
        has_escapes = b"\\u" in data
        may_hold_key = has_escapes
        # Clues that may stand anywhere, in any case. Python finds a text in a text in half the
        # time that it takes with bytes.
        low = data.lower().decode("latin-1")
        for needs, clue in self._low_clues:
            if clue in low and needs in low:
                may_hold_key = True
        # Long rows that begin as a key may, or stand where the rest of one may.
        openings, edges = self._openings, self._edges
        for at, row in rows:
            if data[at - 1] in edges or (row[:3] in openings and _begins(row, self._starts)):
                may_hold_key = True
        likely = self._select_likely(data, rows, has_escapes) if may_hold_key else self._always
        return self._stat_present(data, rows, has_escapes) if self._known else (), likely

    def _select_likely(
        self, data: bytes, rows: list[_Row], has_escapes: bool
    ) -> tuple[_Format, ...]:
        """The formats of which a clue lies in the data."""
        long, low = _join(rows), data.lower()
        found = [one for one in self._formats if one.has_clue(data, long, low)]
        if not has_escapes:
            found = [one for one in found if one.needs in data]
        return tuple(found)

    def _stat_present(self, data: bytes, rows: list[_Row], has_escapes: bool) -> Sequence[_Known]:
        """The known secrets that occur in the data."""
        plain, wanted = "", self._short
        if has_escapes or b"%" in data or (self._short and b"\\" in data):
            plain, wanted = _unescape(data.decode("utf-8", "replace")), self._known
        elif self._parts:
            long = _join(rows)
            for part in self._parts:
                if part in long:
                    wanted = self._known
                    break
        if not wanted:
            return ()
        return [one for one in wanted if one.is_in(data) or (plain and one.folded in plain)]

    def _is_digest_harmless(self) -> bool:
        """Say whether nothing that is looked for can be spelled in the letters of a digest."""
        return not any(map(_may_look_like_digest, self._formats)) and not any(
            _is_digest(_decode_inner_base64(one.raw, shift).encode())
            for one in self._known
            for shift in range(3)
        )

    def _has_guilty_pack(self, data: bytes) -> bool:
        """Say whether a text with something to hide lies in the data as base64.

        What is no text (an image) is left alone. Digests are frequent, and no clue of any
        format can be spelled in their letters.
        """
        for _, row in _list_rows(data, _PACKED_SHAPE, _PACKED_ROW):
            if not row.translate(None, _DIGITS):
                if self._has_digests is None:  # worked out with the first digest that is met
                    self._has_digests = self._is_digest_harmless()
                if self._has_digests:
                    continue
            inner = _unpack(row)
            if inner and self._redact(inner, may_unpack=False) != inner:
                return True
        return False


_Row: TypeAlias = tuple[int, bytes]
"""A row of characters, and where it stands."""

_DIGITS = b"0123456789abcdef"
_ROWS = bytes(
    code if chr(code).isascii() and (chr(code).isalnum() or code in b"_-") else 32
    for code in range(256)
)
_ROW_LETTERS = bytes(code for code in _ROWS if code != 32)
_ESCAPES = (b"n", b"r", b"t", b"b", b"f")
_NUMERALS = tuple(bytes([code]) for code in b"0123456789")
_LONG_SHAPE = _ROWS.translate(bytes(32 if code == 32 else 120 for code in range(256)))
_LONG_ROW = b"x" * LONG
_PACKED_SHAPE = bytes(120 if chr(code) in _BASE64_LETTERS else 32 for code in range(256))
_PACKED_ROW = b"x" * 32


def _begins(row: bytes, starts: tuple[bytes, ...]) -> bool:
    """Say whether a row begins with one of the texts, or does so behind an escape.

    In JSON `\\n` leaves an n before it and `\\u001b` a whole code, a terminal's colour
    something like `31m`.
    """
    if row.startswith(starts):
        return True
    first = row[:1]
    if first in _ESCAPES and row.startswith(starts, 1):
        return True
    if first == b"u" and row.startswith(starts, 5):
        return True
    colour = row.find(b"m", 1, 3)
    return colour > 0 and row.startswith(starts, colour + 1)


def _iterate_openings(starts: Iterable[bytes]) -> Iterator[bytes]:
    """The first three letters of every row that `_begins` may find something in."""
    for start in starts:
        for before in (b"", *_ESCAPES, *(digit + b"m" for digit in _NUMERALS)):
            known = (before + start)[:3]
            for rest in itertools.product(_ROW_LETTERS, repeat=3 - len(known)):
                yield known + bytes(rest)
    for one, two in itertools.product(_NUMERALS, repeat=2):
        yield one + two + b"m"
    for digits in itertools.product(b"0123456789abcdefABCDEF", repeat=2):
        yield b"u" + bytes(digits)


def _is_digest(row: bytes) -> bool:
    """Say whether a row is made of the letters of a digest only."""
    return not row.translate(None, _DIGITS)


def _may_look_like_digest(one: _Format) -> bool:
    """Say whether a text of this format, packed as base64, may be all letters of a digest."""
    spelled = {*one.long_clues, *one.before_clues}
    spelled |= {*one.low_clues, *[clue.upper() for clue in one.low_clues]}
    return one.is_always or any(
        _is_digest(_decode_inner_base64(clue, shift).encode())
        for clue in spelled
        for shift in range(3)
    )


def _unpack(row: bytes) -> str:
    try:
        return base64.b64decode(row.rstrip(b"=") + b"=" * (-len(row.rstrip(b"=")) % 4)).decode()
    except ValueError:
        return ""


def _list_rows(data: bytes, shape_of: bytes, wanted: bytes) -> list[_Row]:
    """The rows of characters that `shape_of` makes an x of, if as long as `wanted`."""
    shape = data.translate(shape_of)
    rows = []
    start = shape.find(wanted)
    while start >= 0:
        end = shape.find(b" ", start)
        if end < 0:
            end = len(data)
        rows.append((start, data[start:end]))
        start = shape.find(wanted, end)
    return rows


def _find(likely: Sequence[_Format], data: bytes) -> bool:
    """Say whether one of the formats is found in JSON."""
    if b"\\u" in data:
        return True
    # As it reads once decoded, as far as patterns care.
    plain = data.replace(b"\\n", b"\n").replace(b"\\r", b"\r").replace(b"\\t", b"\t")
    text = plain.replace(b"\\b", b" ").replace(b"\\f", b" ").decode("utf-8", "replace")
    return any(one.pattern.search(text) for one in likely)


def _join(rows: list[_Row]) -> bytes:
    return b" ".join([row for _, row in rows])


def _find_long_part(clue: bytes) -> bytes:
    """The longest row inside a clue; empty if it is not long."""
    longest = max(clue.translate(_ROWS).split(), key=len, default=b"")
    return longest if len(longest) >= LONG else b""


class _Format:
    """One format with its clues as bytes; its pattern is compiled when a clue is met."""

    def __init__(self, written: KeyFormat) -> None:
        clues = tuple(clue.encode() for clue in written.clues)
        self.mark = written.mark
        self._written = written.pattern
        self.is_always = not clues
        self.long_clues = clues if written.is_long else ()
        self.before_clues = clues if written.is_before_long else ()
        self.low_clues = () if written.is_long or written.is_before_long else clues
        self.needs = written.needs.encode()
        is_told_by = (self.is_always, self.long_clues, self.before_clues, self.low_clues)
        self.rank = [bool(one) for one in is_told_by].index(True)

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self._written)

    def has_clue(self, data: bytes, long: bytes, low: bytes) -> bool:
        """Say whether it may be in data with such long rows, in lower case as `low`."""
        return (
            self.is_always
            or any(map(long.__contains__, self.long_clues))
            or any(map(data.__contains__, self.before_clues))
            or any(map(low.__contains__, self.low_clues))
        )


class _Known:
    """One known secret in all the spellings in which it may turn up."""

    def __init__(self, name: str, value: str) -> None:
        self.value = value
        self.folded = _unescape(value)
        self._mark = f"[redacted:{name or 'secret'}]"
        self.raw = value.encode("utf-8", "surrogatepass")
        coded = [_decode_inner_base64(self.raw, shift) for shift in range(3)]
        self._coded = tuple(code for code in coded if len(code) >= 2 * SHORTEST)
        inside = _to_json(self.raw.decode("utf-8", "replace"))[1:-1]
        twice = _to_json(inside.decode())[1:-1]
        clues = {self.raw, quote(self.raw).encode(), inside, twice}
        clues |= {clue.replace(b"/", slash) for clue in clues for slash in (b"\\/", b"\\\\/")}
        self._clues = tuple({*clues, *(code.encode() for code in self._coded)})
        long = [_find_long_part(clue) for clue in self._clues]
        self.long_clues = tuple(filter(None, long))
        self.has_short_clues = not all(long)

    @functools.cached_property
    def _spelled(self) -> re.Pattern[str]:
        return re.compile("".join(_match_any_spelling(char) for char in self.value))

    def is_in(self, data: bytes) -> bool:
        return any(clue in data for clue in self._clues)

    def replace(self, text: str) -> str:
        text = self._spelled.sub(lambda _: self._mark, text)
        if any(code in text for code in self._coded):
            text = _compile_pattern("base64").sub(self._replace_coded, text)
        return text

    def _replace_coded(self, found: re.Match[str]) -> str:
        """Replace the secret inside base64, so that what remains can still be decoded."""
        code = found[0]
        if not any(one in code for one in self._coded):
            return code
        try:
            decoded = base64.b64decode(code, validate=True)
        except binascii.Error:
            return self._mark
        if self.raw not in decoded:
            return self._mark
        return base64.b64encode(decoded.replace(self.raw, self._mark.encode())).decode()


def _match_any_spelling(char: str) -> str:
    """A pattern for one character as it is, as `\\uXXXX` or `%XX`, or behind backslashes."""
    units = char.encode("utf-16-be", "surrogatepass").hex()
    code = "".join(rf"\\+u{units[place : place + 4]}" for place in range(0, len(units), 4))
    itself = r"\\*" + re.escape(char) if char in "\"\\/'" else re.escape(char)
    in_url = f"%{ord(char):02x}" if char.isascii() else quote(char, errors="surrogatepass")
    return f"(?:{itself}|(?i:{code})|(?i:{re.escape(in_url)}))"


def _to_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _unescape(text: str) -> str:
    """The text as it reads without escapes of JSON and URLs; only for finding things."""
    text = _compile_pattern("percent").sub(lambda found: chr(int(found[1], 16)), text)
    return _compile_pattern("backslash").sub(_from_units, text)


def _from_units(found: re.Match[str]) -> str:
    units = found[0].replace("\\", "").replace("u", "")
    return bytes.fromhex(units).decode("utf-16-be", "surrogatepass")


def _decode_inner_base64(raw: bytes, shift: int) -> str:
    """The part of base64 that any text holding `raw` at this offset (mod 3) must contain."""
    coded = base64.b64encode(b"\0" * shift + raw).decode()
    # The first and last characters also depend on the neighbours.
    head = (0, 2, 3)[shift]
    tail = (0, 3, 2)[(shift + len(raw)) % 3]
    return coded[head : len(coded) - tail]
