"""Searching finds the same lines with ripgrep and without it, whatever the files hold."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import machine
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.testing import make_tool_context
from holdfast.tools import Workspace
from holdfast.tools.builtin.grep import prepare, run_search

WORDS = st.sampled_from(["alpha", "Alpha", "beta", "b.ta", "ga(mma", "δέλτα", "ſtraße", "x", ""])
LINES = st.lists(WORDS, max_size=4).map(" ".join)
TEXTS = st.lists(LINES, max_size=6).flatmap(
    lambda lines: st.sampled_from(["\n", "\r\n"]).map(lambda end: end.join(lines))
)
CODES = st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "latin-1"])
CONTENTS = st.one_of(
    st.tuples(TEXTS, CODES).map(lambda made: made[0].encode(made[1], errors="replace")),
    st.binary(max_size=60),
    TEXTS.map(lambda text: text.encode() + b"\0alpha\n"),
)
PATHS = st.sampled_from(
    ["a.py", "b.txt", "src/a.py", "src/deep/c.txt", ".hidden/d.py", "build/e.txt", "-e", "ü.txt"]
)
IGNORED = st.sampled_from(["", "build/\n", "*.txt\n", "*.txt\n!b.txt\n", "src\n", "/a.py\n", "[\n"])
PATTERNS = st.sampled_from(
    [
        "alpha",
        "al(pha|oha)",
        "^beta$",
        "b.ta",
        r"ga\(mma",
        "δέλτα",
        "strasse",
        "alpha|beta",
        "a?lpha",
    ]
)


@settings(max_examples=50)
@given(
    files=st.dictionaries(PATHS, CONTENTS, max_size=6),
    ignore=IGNORED,
    pattern=PATTERNS,
    include=st.sampled_from(["", "*.py", "src/**"]),
    ignore_case=st.booleans(),
    start=st.sampled_from([".", "src"]),
)
def test_ripgrep_changes_nothing_but_the_time(files, ignore, pattern, include, ignore_case, start):
    program = machine.program("rg", "ripgrep")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "src").mkdir()
        for path, content in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
        if ignore:
            (root / ".gitignore").write_text(ignore)
        context = make_tool_context(workspace=Workspace(root))
        search = prepare(pattern, include=include, ignore_case=ignore_case, limit=20)

        async def both():
            return [
                await run_search(msgspec.structs.replace(context), search, start, one)
                for one in (program, None)
            ]

        with_it, without = asyncio.run(both())
    assert with_it == without
