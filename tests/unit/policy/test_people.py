"""Names of approvers: two spellings of one person are one person."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from holdfast.errors import UsageError
from holdfast.policy import clean_person, is_same_person

CORPUS = yaml.safe_load((Path(__file__).parents[2] / "corpora/approvers.yaml").read_text())


@pytest.mark.parametrize("pair", CORPUS["same"], ids=ascii)
def test_spellings_of_one_name_are_one_person(pair):
    assert is_same_person(*pair) and is_same_person(*reversed(pair))


@pytest.mark.parametrize("pair", CORPUS["different"], ids=ascii)
def test_other_names_are_other_people(pair):
    assert not is_same_person(*pair)


@pytest.mark.parametrize("name", CORPUS["refused"], ids=ascii)
def test_a_name_that_shows_nothing_or_hides_something_is_refused(name):
    with pytest.raises(UsageError):
        clean_person(name)


def test_a_name_is_kept_in_one_spelling():
    assert clean_person("  \uff21nn \u00a0 Lee ") == "Ann Lee"
    with pytest.raises(UsageError):
        clean_person("a" * 201)
