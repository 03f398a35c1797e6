"""One reader of YAML for files of any author: it returns, whatever is written."""

from __future__ import annotations

import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.policy import parse_yaml
from holdfast.skills import read_frontmatter

PIECES = st.sampled_from(
    ["a", "b", ":", " ", "\n", "  ", "- ", "&x", "*x", "!!int", "!", "<<", "{", "}", "[", "]"]
    + ["'", '"', "|", ">", "#", "---", "...", "\t", "%", "\x00", "é", "1", "0x1F", "no", "~", "?"]
)
PLAIN = st.recursive(
    st.text(alphabet="abc 1:#-", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab1"), inner, max_size=3),
    max_leaves=12,
)


@given(st.lists(PIECES, max_size=30).map("".join))
@example("a: &x [1]\nb: *x")
@example("- " * 10_000)
@example("[" * 5_000)
def test_any_text_is_read_or_refused_with_a_line(text: str) -> None:
    for is_text_kept in (False, True):
        read = parse_yaml(text, is_text_kept=is_text_kept)
        assert read.content is None or not read.mistakes or all(line for line, _ in read.mistakes)
        assert all(1 <= line <= text.count("\n") + 2 for line, _ in read.mistakes)
    found = read_frontmatter(f"---\n{text}\n---\nbody", is_lenient=True)
    assert found.fields == {} or not found.faults


@given(PLAIN)
def test_text_that_is_kept_comes_back_as_it_was_written(value: object) -> None:
    written = yaml.safe_dump({"value": value})
    read = parse_yaml(written, is_text_kept=True)
    assert (read.content, read.mistakes) == ({"value": value}, ())


def test_scalars_stay_text_only_where_asked() -> None:
    text = "a: no\nb: 1.0\nc:\nd: 2026-01-01\n"
    assert parse_yaml(text).content == {"a": False, "b": 1.0, "c": None, "d": "2026-01-01"}
    assert read_frontmatter(f"---\n{text}---\n").fields == {
        "a": "no",
        "b": "1.0",
        "c": "",
        "d": "2026-01-01",
    }
