from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from openapi_spec_validator import validate

from holdfast.cli.app import root


def call(*words: str) -> Result:
    return CliRunner().invoke(root, ["tools", *words])


def test_list_names_every_tool_with_its_effect() -> None:
    rows = {row["name"]: row for row in json.loads(call("list", "--json").stdout)}
    assert rows["read"]["effect"] == "read"
    assert rows["bash"]["effect"] == "unsafe"
    assert rows["edit"]["scope"] == "built-in"
    assert "read" in call("list").stdout


def test_list_can_be_narrowed_by_tag() -> None:
    names = {row["name"] for row in json.loads(call("list", "--tag", "web", "--json").stdout)}
    assert names == {"webfetch", "websearch", "codesearch"}


def test_show_says_everything_about_one_tool() -> None:
    shown = json.loads(call("show", "edit", "--json").stdout)
    assert shown["effect"] == "reconcile"
    assert shown["parameters"]["required"] == ["file_path", "old_string", "new_string"]
    assert len(shown["source_hash"]) == 64
    assert "old_string" in call("show", "edit").stdout


def test_unknown_tool_is_a_usage_error() -> None:
    assert call("show", "nope").exit_code == 2


@pytest.mark.parametrize("words", [(), ("grep",)])
def test_schema_is_a_document(words: tuple[str, ...]) -> None:
    document = json.loads(call("schema", *words).stdout)
    assert "grep" in document["$defs"]
    assert (len(document["$defs"]) == 1) == bool(words)
    validate(json.loads(call("schema", *words, "--format", "openapi").stdout))
