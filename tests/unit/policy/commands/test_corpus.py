"""Every case of the corpora, one test each."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from holdfast.policy.commands import classify_command, parse_command

CORPORA = Path(__file__).parents[3] / "corpora" / "commands"


def cases():
    for file in sorted(CORPORA.glob("*.yaml")):
        for case in yaml.safe_load(file.read_text("utf-8")):
            yield pytest.param(case, id=f"{file.stem}-{case['id']}")


def verdict(text: str) -> str:
    parsed = parse_command(text)
    if parsed.is_refused:
        return "refused"
    return classify_command(parsed).kind if parsed.is_parsed else "unparsed"


@pytest.mark.parametrize("case", list(cases()))
def test_a_command_gets_its_verdict(case):
    parsed = parse_command(case["command"])
    assert verdict(case["command"]) == case["verdict"], (parsed, classify_command(parsed))


def test_the_corpora_are_large_and_their_ids_differ():
    ids = [case.id for case in cases()]
    assert len(ids) >= 300
    assert len(set(ids)) == len(ids)
