"""Read a directory listing, whatever the tool prints: a tree, plain paths, or JSON."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from holdfast.providers.lazy_patterns import compile_on_use
from holdfast.providers.offline.conversation import make_harmless

_MAX_LINES = 20_000
_MAX_LINE = 1_000
_GLYPHS = compile_on_use(r"^(?P<lead>(?:[\s│|]*)(?:[├└`+][─\-]{1,3}\s?|[-*•]\s)?)(?P<name>.*)$")
_NOISE = compile_on_use(
    r"^\(.*\)$|^\.{3}|^…|^\d+ (?:director|file|entr|item)|truncated|^total \d+$|"
    r"^no (?:files?|match(?:es)?|entries|results) ",
    re.I,
)
_CUT = compile_on_use(
    r"truncated|\bmore (?:files|entries|results)\b|^\(the first \d+ |^…|^\.\.\.|/…$", re.I | re.M
)
_TOTAL = compile_on_use(r"^\(in all (?:more than )?(\d{1,9}) files: (.*)\)$", re.M)
_TOPS = compile_on_use(r"^\(by directory: (.*)\)$", re.M)
_SIZE = compile_on_use(r"\s+(?:\(?\d[\d.,]*\s?(?:[kMG]i?)?B?(?:ytes)?\)?|\[\d+\])$")


class Listing(NamedTuple):
    """Files and directories by path relative to what was listed; `is_cut`: there is more.

    Where a cut listing says how many files there are in all, `total`, `endings` and `tops` do.
    """

    files: tuple[str, ...]
    directories: tuple[str, ...]
    is_cut: bool
    total: int = 0
    endings: tuple[tuple[str, int], ...] = ()
    tops: tuple[tuple[str, int], ...] = ()

    def move_below(self, path: str) -> Listing:
        """Return the listing with its paths as they are from above the directory listed."""
        prefix = path.strip("/").removeprefix("./").strip(".")
        if not prefix:
            return self

        def put_below(name: str) -> str:
            is_there = name == prefix or name.startswith(f"{prefix}/")
            return name if is_there else f"{prefix}/{name}"

        return self._replace(
            files=tuple([put_below(name) for name in self.files]),
            directories=tuple([put_below(name) for name in self.directories]),
        )


def read_listing(output: str) -> Listing:
    """Return the paths that a listing names; a line that is no path is left out."""
    text = make_harmless(output)
    from_json = _read_json(text)
    if from_json is not None:
        return from_json
    lines = text.splitlines()[:_MAX_LINES]
    is_cut = bool(_CUT.search(text))
    entries = [
        _make_entry(line)
        for line in lines
        if line.strip() and not _NOISE.search(line[:_MAX_LINE].strip())
    ]
    entries = _drop_root([entry for entry in entries if entry[1].strip("/. ")])
    listing = _assemble(entries, is_cut)
    total = _TOTAL.search(text)
    if total is None:
        return listing
    tops = _TOPS.search(text)
    return listing._replace(
        total=int(total[1]),
        endings=_read_counts(total[2]),
        tops=_read_counts(tops[1]) if tops is not None else (),
    )


def _read_counts(text: str) -> tuple[tuple[str, int], ...]:
    """Read `.py 12, .md 3`."""
    pairs = [part.strip().rpartition(" ") for part in text.split(", ")]
    return tuple([(name, int(count)) for name, _, count in pairs if count.isdecimal()])


def _make_entry(line: str) -> tuple[int, str]:
    expanded = line[:_MAX_LINE].expandtabs(4).rstrip()
    match = _GLYPHS.match(expanded)
    lead, name = (match["lead"], match["name"]) if match else ("", expanded)
    # Our own tool marks directories that it did not open with /… and links with @.
    plain = _SIZE.sub("", name.strip()).removesuffix("…").removesuffix("@")
    return len(lead), plain.removeprefix("./") or plain


def _drop_root(entries: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Leave out a first line that names the listed directory itself."""
    if len(entries) < 2:
        return entries
    depth, name = entries[0]
    shallowest = min(depth for depth, _ in entries[1:])
    is_named = name.startswith("/") or name.endswith("/") or name.endswith(":")
    if is_named and shallowest > depth:
        return entries[1:]
    if name.startswith("/") and name.endswith("/"):
        # An absolute root over paths that are flat or absolute themselves.
        return [(at, path.removeprefix(name)) for at, path in entries[1:]]
    return entries


def _assemble(entries: list[tuple[int, str]], is_cut: bool) -> Listing:
    files: dict[str, None] = {}
    directories: dict[str, None] = {}
    stack: list[tuple[int, str]] = []
    for place, (depth, name) in enumerate(entries):
        while stack and stack[-1][0] >= depth:
            stack.pop()
        parent = stack[-1][1] + "/" if stack else ""
        path = (parent + name.rstrip("/")).lstrip("/")
        has_children = place + 1 < len(entries) and entries[place + 1][0] > depth
        if name.endswith("/") or has_children:
            directories[path] = None
            stack.append((depth, path))
        elif path:
            files[path] = None
        for at in range(1, path.count("/") + 1):
            directories["/".join(path.split("/")[:at])] = None
    return Listing(tuple(files), tuple(directories), is_cut)


def _read_json(text: str) -> Listing | None:
    if not text.lstrip().startswith(("[", "{")):
        return None
    try:
        decoded: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(decoded, dict):
        lists = [value for value in decoded.values() if isinstance(value, list)]
        decoded = lists[0] if lists else []
    if not isinstance(decoded, list):
        return None
    entries: list[tuple[int, str]] = []
    for item in decoded[:_MAX_LINES]:
        if isinstance(item, str):
            entries.append((0, item.removeprefix("./")))
        elif isinstance(item, dict):
            name = item.get("path") or item.get("name")
            if isinstance(name, str):
                kind = str(item.get("type") or item.get("kind") or "")
                is_directory = kind.startswith(("dir", "folder")) or item.get("is_dir") is True
                entries.append((0, name.removeprefix("./") + ("/" if is_directory else "")))
    return _assemble(entries, False)
