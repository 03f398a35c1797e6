import pytest

from holdfast.tools.docstrings import parse_docstring

GOOGLE = """Add two numbers.

    With care.

    Args:
        a (int): The first
            number.
        b: The second: yes.

    Returns:
        The sum.
    """
NUMPY = """Add two numbers.

    With care.

    Parameters
    ----------
    a : int
        The first
        number.
    b
        The second: yes.

    Returns
    -------
    int
    """
SPHINX = """Add two numbers.

    With care.

    :param int a: The first
        number.
    :param b: The second: yes.
    :returns: The sum.
    :rtype: int
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_all_styles_give_purpose_and_arguments(text):
    parsed = parse_docstring(text)
    assert parsed.purpose == "Add two numbers.\n\nWith care."
    assert parsed.arguments == {"a": "The first number.", "b": "The second: yes."}


@pytest.mark.parametrize("text", [None, "", "   "])
def test_nothing_gives_nothing(text):
    parsed = parse_docstring(text)
    assert parsed.purpose == ""
    assert parsed.arguments == {}


def test_prose_that_only_looks_like_a_section_stays_prose():
    parsed = parse_docstring("Say it: args are fun.\n\nArgs:\n\nMore.")
    assert parsed.purpose == "Say it: args are fun.\n\nMore."


def test_parameters_that_share_a_line_share_their_description():
    parsed = parse_docstring(
        "Add.\n\nParameters\n----------\na : int\n    First.\nb, c : int\n    Others."
    )
    assert parsed.arguments == {"a": "First.", "b": "Others.", "c": "Others."}


def test_keyword_arguments_and_nested_brackets_are_understood():
    parsed = parse_docstring("Add.\n\nKeyword Args:\n    a (int, default (3)): First.")
    assert parsed.purpose == "Add."
    assert parsed.arguments == {"a": "First."}


def test_an_unknown_heading_stays_in_the_purpose():
    text = "Add.\n\nUnits\n-----\nAll in metres."
    assert parse_docstring(text).purpose == text
