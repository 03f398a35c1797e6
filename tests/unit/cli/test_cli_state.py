"""`holdfast state`: values on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast import Client
from holdfast.cli.app import root
from holdfast.cli.exits import ExitCode


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state"


def call(place: Path, *words: str, given: str = "") -> Result:
    return CliRunner().invoke(root, ["state", *words, "--state-dir", str(place)], input=given)


def test_a_value_is_set_read_listed_and_removed(place: Path) -> None:
    assert call(place, "set", "user/language", "de").stdout == "user/language is at version 1.\n"
    assert call(place, "set", "user/menu", '{"soup": 2}').exit_code == 0
    assert call(place, "set", "user/text", "7", "--text").exit_code == 0
    assert call(place, "set", "user/piped", "-", given="[1, 2]").exit_code == 0
    assert call(place, "get", "user/language").stdout == "de\n"
    assert call(place, "get", "user/menu").stdout == '{"soup":2}\n'
    shown = json.loads(call(place, "get", "user/text", "--json").stdout)
    assert (shown["value"], shown["version"]) == ("7", 1)
    listed = call(place, "list", "user/")
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [
        "KEY",
        "language",
        "menu",
        "piped",
        "text",
    ]
    page = json.loads(call(place, "list", "user/", "--limit", "2", "--json").stdout)
    assert [one["key"] for one in page["entries"]] == ["language", "menu"]
    more = call(place, "list", "user/", "--cursor", page["cursor"])
    assert "piped" in more.stdout and "language" not in more.stdout
    assert "--cursor menu" in call(place, "list", "user/", "--limit", "2").stdout
    assert call(place, "delete", "user/text").stdout == "Removed user/text.\n"
    assert call(place, "delete", "user/text").exit_code == ExitCode.USAGE
    assert json.loads(call(place, "delete", "user/menu", "--json").stdout) == {
        "removed": "user/menu"
    }
    assert call(place, "list", "global/").stdout == "Nothing is kept there.\n"


def test_compare_and_set_says_who_was_faster(place: Path) -> None:
    call(place, "set", "user/x", '{"a": 1}')
    refused = call(place, "set", "user/x", '{"b": 1}', "--expected", "0")
    assert refused.exit_code == ExitCode.FAILED
    assert "state.conflict" in refused.stderr
    options = ["--expected", "0", "--on-conflict", "merge", "--label", "untrusted", "--ttl", "60"]
    merged = call(place, "set", "user/x", '{"b": 1}', *options, "--json")
    shown = json.loads(merged.stdout)
    assert (shown["value"], shown["labels"]) == ({"a": 1, "b": 1}, ["untrusted"])
    assert shown["expires_at"] > 0


def test_history_and_watch_show_every_change(place: Path) -> None:
    for value in ("one", "two"):
        call(place, "set", "user/x", value)
    call(place, "delete", "user/x")
    lines = call(place, "history", "user/x").stdout.splitlines()
    assert len(lines) == 4
    assert "(removed: delete)" in lines[1] and "two" in lines[2]
    told = json.loads(call(place, "history", "user/x", "--json").stdout)
    assert [one["version"] for one in told] == [3, 2, 1]
    watched = call(place, "watch", "user/", "--after", "0", "--count", "3")
    assert [line.split("  ")[2] for line in watched.stdout.splitlines()] == ["v1", "v2", "v3"]
    rows = call(place, "watch", "user/", "--after", "0", "--count", "2", "--stream-json").stdout
    assert [json.loads(line)["value"] for line in rows.splitlines()] == ["one", "two"]
    assert call(place, "history", "user/none").exit_code == ExitCode.USAGE


def test_what_retention_removed_is_shown_as_removed(place: Path) -> None:
    with Client(place) as client:
        session = client.sessions.create("s")
        number = client.state.set(f"session:{session.id}/x", "gone").number
        client.state.set(f"session:{session.id}/x", "here")
        journal = client.storage.journal()
        client._portal.call("redact", journal.redact(session.id, [number], reason="test"))
    shown = call(place, "history", f"session:{session.id}/x").stdout
    assert "(removed for good)" in shown and "gone" not in shown.replace("removed", "")


@pytest.mark.parametrize(
    "words", [("get", "nowhere/x"), ("get", "user"), ("get", "user/none"), ("set", "user/", "1")]
)
def test_what_cannot_be_meant_is_refused_with_a_hint(place: Path, words: tuple[str, ...]) -> None:
    result = call(place, *words)
    assert result.exit_code == ExitCode.USAGE
    assert result.stderr
