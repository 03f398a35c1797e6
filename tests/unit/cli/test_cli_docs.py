"""`holdfast docs` explains every error, without a network and without the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import root
from holdfast.cli.docs import list_error_classes

SOURCES = Path(__file__).parents[3] / "src" / "holdfast"


def call(*words: str) -> Result:
    return CliRunner().invoke(root, ["docs", *words])


@pytest.mark.parametrize("code", sorted({one.code for one in list_error_classes()}))
def test_every_code_is_explained(code: str) -> None:
    done = call(code, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["code"] == code and told["meaning"] and told["says"]


def test_all_codes_are_listed_and_a_beginning_is_enough() -> None:
    assert "session.busy" in call().stdout
    below = call("session").stdout
    assert "session.busy" in below and "usage.invalid" not in below


def test_a_code_that_is_none_is_told_with_the_nearest() -> None:
    done = call("sesion.busy")
    assert done.exit_code != 0
    assert "Did you mean 'session.busy'?" in done.output


def test_no_message_points_to_a_file_that_an_installation_lacks() -> None:
    texts = "\n".join(f"{one.message} {one.next_step}" for one in list_error_classes())
    assert not re.search(r"docs/\w+", texts)
    assert "docs/reference" not in (SOURCES / "cli" / "failures.py").read_text()
