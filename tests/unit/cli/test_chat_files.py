from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli.chat_files import find_mentions, find_missing


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("look at @nosuch.txt, please", ["nosuch.txt"]),
        ('@"no such file" and @"there.txt"', ["no such file"]),
        (
            "@src/nosuch.py twice @src/nosuch.py @/no/where @./there.txt",
            ["src/nosuch.py", "/no/where"],
        ),
        ("ask @ann at a@b.de about @types/node, @v1.2 and @there.txt.", []),
        ("why?\n@app.get\ndef f(): ...\n  @functools.cache\n", []),
        ("compare\nwith @gone.md", ["gone.md"]),
    ],
)
def test_what_looks_like_a_file_and_is_none_is_noticed(
    tmp_path: Path, text: str, missing: list[str]
) -> None:
    (tmp_path / "there.txt").write_text("x")
    assert find_missing(text, tmp_path) == missing
    assert not set(find_mentions(text, tmp_path)) & set(missing)
