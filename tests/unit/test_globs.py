import pytest

from holdfast.errors import UsageError
from holdfast.globs import matches


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("**/*.py", "a.py"),
        ("**/*.py", "x/y/a.py"),
        ("**/.git/**", ".git/config"),
        ("**/.git/**", ".git"),
        ("**/.git/**", "sub/.git/hooks/pre-commit"),
        ("**", "a/b/.c"),
        ("src/**", "src/a/b"),
        ("src/**/test_*.py", "src/test_a.py"),
        ("*.{ts,tsx}", "a.tsx"),
        ("{a,b/{c,d}}.txt", "b/d.txt"),
        ("*", ".env"),
        ("[!a]x", "bx"),
        ("a?c", "abc"),
        ("./a", "a"),
        ("**/**", "a"),
        ("**/**", "a/b"),
        ("a/**/**/b", "a/b"),
        ("a[]]b", "a]b"),
    ],
)
def test_glob_covers_the_path(pattern, path):
    assert matches(path, pattern)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*.py", "x/a.py"),
        ("**/.git/**", ".github/workflows"),
        ("**/.git/**", "x.git/config"),
        ("a?c", "a/c"),
        ("a[!b]c", "a/c"),
        ("src/**", "srcs"),
        ("*.py", "a.pyc"),
        ("a.c", "abc"),
    ],
)
def test_glob_leaves_the_path_alone(pattern, path):
    assert not matches(path, pattern)


@pytest.mark.parametrize("pattern", ["", "/", "a[b", "x" * 2_000, "{a,b}" * 12])
def test_unreadable_glob_is_refused(pattern):
    with pytest.raises(UsageError):
        matches("a", pattern)
