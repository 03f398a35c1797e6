"""Edits do exactly what they say, whatever the text."""

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.errors import FileUnsuitable, TellModel
from holdfast.tools.diffs import make_unified_diff
from holdfast.tools.edits import replace_exactly
from holdfast.tools.encoding import decode_file, encode_file, is_binary

TEXT = st.text(alphabet="ab \n\tü€", max_size=60)
LINES = st.lists(st.text(alphabet=string.ascii_lowercase + " ", max_size=6), max_size=30)


@given(TEXT, TEXT, TEXT)
def test_edit_replaces_the_one_occurrence_or_leaves_all(text, old, new):
    try:
        edited = replace_exactly(text, old, new)
    except TellModel:
        occurrences = sum(text.startswith(old, at) for at in range(len(text)))
        assert not old or old == new or occurrences != 1
    else:
        at = text.index(old)
        assert edited == text[:at] + new + text[at + len(old) :]


@given(st.lists(TEXT, min_size=2, max_size=5), TEXT.filter(bool), TEXT)
def test_replacing_all_is_what_python_replaces(pieces, old, new):
    text = old.join(pieces)
    assume(old != new)
    assert replace_exactly(text, old, new, replace_all=True) == text.replace(old, new)


@given(TEXT, st.text(alphabet="QRST", min_size=1), TEXT, st.text(alphabet="XYZ", min_size=1))
def test_edit_can_be_undone(before, old, after, new):
    text = before + old + after
    try:
        edited = replace_exactly(text, old, new)
    except TellModel:
        return  # overlapping occurrences
    assert replace_exactly(edited, new, old) == text


@given(LINES, st.text(alphabet="ab", min_size=1), st.text(alphabet="cd", min_size=1))
def test_line_ends_of_windows_files_survive(lines, old, new):
    text = "\r\n".join([*lines, old, ""])
    assume(text.count(old) == 1)
    assert replace_exactly(text, old, new) == text.replace(old, new)


@given(st.binary(max_size=200))
def test_every_text_file_survives_decoding_and_encoding(data):
    assume(not is_binary(data))
    try:
        text, form = decode_file(data, "f")
    except FileUnsuitable:
        return
    assert encode_file(text, form) == data


def apply_patch(before, patch):
    """An independent, simple application of a unified diff."""
    lines, out, at = before.splitlines(), [], 0
    for line in patch.splitlines()[2:]:
        if line.startswith("@@"):
            span = line.split()[1][1:].split(",")
            start = int(span[0]) - (0 if len(span) > 1 and span[1] == "0" else 1)
            out += lines[at:start]
            at = start
        elif line.startswith("+"):
            out.append(line[1:])
        else:
            assert lines[at] == line[1:]
            out += [line[1:]] if line.startswith(" ") else []
            at += 1
    return out + lines[at:]


@given(LINES, LINES)
def test_diff_applied_to_the_old_text_gives_the_new(old, new):
    before, after = "\n".join(old), "\n".join(new)
    diff = make_unified_diff(before, after, "f")
    assert apply_patch(before, diff.text) == after.splitlines()
    assert diff.added - diff.removed == len(after.splitlines()) - len(before.splitlines())


def test_diff_of_equal_texts_is_empty():
    assert make_unified_diff("a\n", "a\n", "f").text == ""


@pytest.mark.parametrize("size", [50_000])
def test_diff_of_large_texts_is_bounded(size):
    before = "\n".join(str(n) for n in range(size))
    after = before.replace("25000\n", "x\n")
    assert len(make_unified_diff(before, after, "f").text.splitlines()) < 15
