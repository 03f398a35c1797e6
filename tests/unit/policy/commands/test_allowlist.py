"""An entry of the allowlist is a beginning, and no way round the argument rules."""

from __future__ import annotations

import pytest

from holdfast.policy.commands import classify_argv, classify_command, is_allowed_by, parse_command


def allows(entry: str, text: str) -> bool:
    (command,) = parse_command(text).commands()
    return is_allowed_by(command.argv, [entry])


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("git status", "git status -s"),
        ("git status", "git status"),
        ("ls", "ls -la src"),
        ("git", "git commit -m x"),
        ("git commit", "git commit -m 'a b'"),
        ("npm test", "npm test -- --watch"),
        ("pytest", "pytest -k x tests"),
        ("my-tool run", "my-tool run --fast"),
        ("tar", "tar xf a.tar"),
        ("find", "find . -name x"),
        ("find . -delete", "find . -delete"),
        ("sed", "sed -n 1p x"),
    ],
)
def test_a_beginning_allows(entry, text):
    assert allows(entry, text)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("git status", "git push"),
        ("git status", "git statusx"),
        ("git status", "git"),
        ("git status", "git -c a.b=c status"),
        ("git", "git -c core.pager=x log"),
        ("git", "git log --output=x"),
        ("git log", "git log --output=x"),
        ("ls", "lsof"),
        ("ls", "./ls"),
        ("find", "find . -exec rm {} +"),
        ("find", "find . -delete"),
        ("sort", "sort -o x y"),
        ("sed", "sed 's/a/b/e' x"),
        ("tar", "tar xf a --to-command=id"),
        ("rg", "rg --pre x y"),
        ("npm test", "npm run evil"),
        ("'unclosed", "unclosed"),
        ("", "ls"),
    ],
)
def test_anything_else_is_not_allowed(entry, text):
    assert not allows(entry, text)


def test_nothing_is_allowed_by_an_empty_list():
    assert not is_allowed_by(("ls",), [])
    assert not is_allowed_by((), ["ls"])


def test_an_entry_can_quote_a_word_with_blanks():
    assert is_allowed_by(("run", "a b", "c"), ["run 'a b'"])
    assert not is_allowed_by(("run", "a", "b"), ["run 'a b'"])


def test_the_worst_program_of_a_line_decides():
    assert classify_command(parse_command("ls | sh && rm x")).kind == "runs-programs"


def test_the_reason_names_the_option():
    assert "-exec" in classify_argv(("find", ".", "-exec", "id")).because


def test_an_unparsed_line_is_unknown_for_the_reason_that_it_is_unparsed():
    assert "substitution" in classify_command(parse_command("echo $(id)")).because


@pytest.mark.parametrize(
    "text", ["git status -Q", "find . -name", "sort -k", "sort --key", "git status --nope"]
)
def test_options_that_are_not_known_or_lack_their_value_are_unknown(text):
    assert classify_command(parse_command(text)).kind == "unknown"
