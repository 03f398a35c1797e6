import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.linear_regex import compile_linear
from holdfast.tools.regex_literals import find_required_literals


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        ("foo", ("foo",)),
        (r"def \w+\(", ("def ",)),
        (r"foo.*barbaz", ("barbaz",)),
        (r"foo|bar", ("foo", "bar")),
        (r"foo|.*", ()),
        (r"colou?r", ("colo",)),
        (r"ab*cd", ("cd",)),
        (r"(abc)?de", ("de",)),
        (r"\x61bc", ()),
        (r"\1ab", ()),
        (r"a.b", ()),
        (r"(?i)foo", ()),
        (r"foo\.bar", ("foo.bar",)),
        (r"[xyz]foo[]a]bar", ("foo",)),
        (r"fo{2,3}bar", ("bar",)),
        ("grün", ()),
        (r"\<word\>end", ("word",)),
        (r"[[a]foo]bar", ("bar",)),
    ],
)
def test_literals_of(pattern, literals):
    assert find_required_literals(pattern) == literals


ATOMS = st.sampled_from(
    ["a", "b", "ab", ".", r"\w", r"\.", "[ab]", "[^a]", "(ab)", "(a|b)", "^", "$", "c"]
    + [r"\<", r"\>", "[[a]b]", "[]a]", r"\b", "[a&&b]"]
)
COUNTS = st.sampled_from(["", "", "", "*", "+", "?", "{0,2}", "{2}", "*?"])


@given(
    st.lists(st.lists(st.tuples(ATOMS, COUNTS), min_size=1, max_size=6), min_size=1, max_size=3),
    st.text(alphabet="abc.", max_size=12),
)
def test_whatever_matches_holds_one_of_the_literals(alternatives, text):
    pattern = "|".join("".join(atom + count for atom, count in one) for one in alternatives)
    try:
        found = compile_linear(pattern).matches(text)
    except UsageError:
        return
    literals = find_required_literals(pattern)
    if found and literals:
        assert any(literal in text for literal in literals)
