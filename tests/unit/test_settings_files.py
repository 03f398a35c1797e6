from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigError
from holdfast.settings import load_settings
from holdfast.settings.files import (
    MAX_BYTES,
    UnreadableFile,
    parse_toml,
    parse_variables,
    read_text,
)
from holdfast.settings.keys import list_keys, list_sections


def values_of(text: str) -> dict[str, str]:
    found, wrong = parse_variables(text)
    assert wrong == []
    return {item.name: item.value for item in found}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("  export A = b  ", "b"),
        ("A=b # comment", "b"),
        ("A=b#c", "b#c"),
        ("A=", ""),
        ("A=# all comment", ""),
        ("A='b # c'", "b # c"),
        (r"A='b\n'", r"b\n"),
        (r'A="b\n\"c\" \\ \$d \q"', 'b\n"c" \\ $d \\q'),
        ('A="b\nc" # comment', "b\nc"),
        ("A=$HOME", "$HOME"),
        ("A=b\r", "b"),
    ],
)
def test_variable_lines_are_understood(line: str, value: str) -> None:
    assert values_of(f"{line}\n")["A"] == value


@pytest.mark.parametrize("line", ["A", "1A=x", "A B=c", 'A="open', "A='open", 'A="b" c', "=x"])
def test_other_lines_are_mistakes_that_name_no_value(line: str) -> None:
    found, wrong = parse_variables(f"\n{line}\nB=1")
    assert wrong[0][0] == 2
    assert "open" not in wrong[0][1]
    assert [item.name for item in found][-1:] == ["B"]


def test_lines_are_counted_across_values_of_several_lines() -> None:
    found, _ = parse_variables("A='1\n2\n3'\nB=x")
    assert [(item.name, item.line) for item in found] == [("A", 1), ("B", 4)]


def test_keys_are_found_at_their_lines() -> None:
    parsed = parse_toml('a = 1\n[b]\n"c" = 2\n[b . d]  # note\ne.f = """\nx = 1\n"""\n')
    assert parsed.lines["a"] == 1
    assert parsed.lines["b"] == 2
    assert parsed.lines["b.c"] == 3
    assert parsed.lines["b.d.e.f"] == 5


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a = ", None),
        ("a = 1\nb = = 2\n", 2),
        ("a = " + "[" * 4000, None),
        ("a = " + "{a=" * 1300, None),
        ("x = 1\n" + ".".join("a" * 4000) + " = 1", 2),
    ],
)
def test_toml_that_cannot_be_used_is_refused(text: str, line: int | None) -> None:
    with pytest.raises(UnreadableFile) as caught:
        parse_toml(text)
    assert line is None or caught.value.line == line


def test_an_absent_file_is_none(tmp_path: Path) -> None:
    assert read_text(tmp_path / "none") is None
    (tmp_path / "file").write_bytes(b"")
    assert read_text(tmp_path / "file" / "below") is None


def test_huge_binary_and_special_files_are_refused(tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    huge.write_bytes(b"#" * (MAX_BYTES + 1))
    binary = tmp_path / "binary"
    binary.write_bytes(b"a = 1\nb = '\xff'\n")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for path in (huge, binary, pipe, loop, tmp_path, Path("/dev/zero"), Path("a\0b")):
        with pytest.raises(UnreadableFile):
            read_text(path)


def test_the_line_of_a_bad_character_is_named(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"a = 1\nb = '\xff'\n")
    with pytest.raises(UnreadableFile) as caught:
        read_text(path)
    assert caught.value.line == 2


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    path = tmp_path / "marked"
    path.write_bytes(b"\xef\xbb\xbfa = 1")
    assert read_text(path) == "a = 1"


_NAMES = st.sampled_from([*list_keys(), *list_sections()]) | st.text(max_size=8)
_TOML = st.lists(
    st.tuples(_NAMES, st.sampled_from(["1", "-1", '"x"', "true", "[1]", "{a=1}", "1e999", "nan",
    "1979-05-27", '"~x"', '"30d"', '"none"', "9" * 400, '"\\u0000"'])),
    max_size=6,
)  # fmt: skip


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pairs=_TOML, raw=st.binary(max_size=40), value=st.text(max_size=20), key=_NAMES)
def test_whatever_the_sources_hold_only_config_errors_come_out(
    tmp_path: Path, pairs: list[tuple[str, str]], raw: bytes, value: str, key: str
) -> None:
    text = "\n".join(f"{name} = {written}" for name, written in pairs)
    (tmp_path / "holdfast.toml").write_text(text, encoding="utf-8", errors="replace")
    (tmp_path / ".env").write_bytes(b"AGENT_MODEL=" + raw)
    known = list_keys().get(key)
    environ = {"HOME": str(tmp_path), known.variable if known else "HOLDFAST_" + key: value}
    try:
        loaded = load_settings(cwd=tmp_path, environ=environ)
    except ConfigError as error:
        assert error.context["mistakes"]
    else:
        assert set(loaded.sources) == set(list_keys())
