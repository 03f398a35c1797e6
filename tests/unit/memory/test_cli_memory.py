from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast import Client
from holdfast.cli.app import root
from holdfast.memory import MemoryOptions


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*words: str, input: str | None = None) -> Result:
    return CliRunner().invoke(root, ["memory", *words], input=input)


def ok(*words: str) -> object:
    ended = call(*words, "--json")
    assert ended.exit_code == 0, ended.output
    return json.loads(ended.stdout)


def test_what_is_added_is_found_explained_listed_and_forgotten(state: Path) -> None:
    added = ok("add", "The kettle is in the attic", "--type", "place", "--pin")
    memory_id = added["id"]
    (row,) = ok("search", "where is the kettle", "--explain")
    assert row["id"] == memory_id and row["lexical"] > 0 and "cosine" in row
    assert row["where"] > 0 and {"late", "late_context", "reply", "address"} <= row.keys()
    shown = ok("show", memory_id)
    assert (shown["kind"], shown["is_pinned"], shown["scope"]) == ("place", True, "project")
    assert [row["id"] for row in ok("list", "--where", "type=place")] == [memory_id]
    assert ok("list", "--where", "type=other") == []
    assert ok("stats")["memories"] == 1
    assert ok("reindex") == {"memories": 1}
    assert ok("forget", memory_id) == {"forgotten": [memory_id]}
    assert ok("search", "kettle") == []
    assert call("show", memory_id).exit_code == 2


def test_text_output_speaks_in_sentences(state: Path) -> None:
    assert "Nothing is remembered yet." in call("list").stdout
    assert "Nothing was found" in call("search", "kettle").stdout
    ended = call("add", "-", input="from a pipe")
    assert ended.stdout.startswith("Stored mem_")
    assert "from a pipe" in call("search", "pipe", "--explain").stdout


def test_memories_go_out_and_come_back(state: Path) -> None:
    ok("add", "portable")
    assert ok("export", "--to", "m.jsonl")["memories"] == 1
    assert (state / "m.jsonl").read_text() == call("export").stdout
    assert ok("import", "m.jsonl") == {"stored": 0, "skipped": 1}
    assert ok("export", "--to", "v.jsonl", "--vectors")["memories"] == 1
    assert '"tokens"' in (state / "v.jsonl").read_text()
    assert ok("import", "v.jsonl") == {"stored": 0, "skipped": 1}
    (state / "bad.jsonl").write_text('{"format": "other"}\n')
    assert call("import", "bad.jsonl").exit_code == 2
    assert call("import", "missing.jsonl").exit_code == 2


@pytest.mark.parametrize(
    "words",
    [
        ("search", ""),
        ("search", "x", "--as-of", "soon"),
        ("list", "--where", "nonsense"),
        ("list", "--where", "n>=3"),
        ("list", "--where", "n!=3"),
        ("list", "--where", "as_of=soon"),
        ("list", "--where", "pinned=perhaps"),
        ("list", "--where", "scope=everybody"),
        ("list", "--after", "mem_nobody"),
        ("forget", "mem_nobody"),
        ("add", " "),
        ("add", "x", "--session", "ses_nobody"),
    ],
)
def test_mistakes_are_usage_errors(state: Path, words: tuple[str, ...]) -> None:
    assert call(*words).exit_code == 2


def test_metadata_is_compared_as_what_it_is(state: Path) -> None:
    with Client(state / "state") as client:
        for name, value in (("three", 3), ("text", "3"), ("yes", True), ("none", None)):
            options = MemoryOptions(scope="user")
            client.store_memory("", f"walnut {name}", {"n": value}, options=options)

    def found(value: str) -> list[str]:
        rows = ok("list", "--where", f"n={value}")
        return [row["content"].removeprefix("walnut ") for row in rows]  # type: ignore[union-attr]

    assert found("3") == found("3.0") == ["three"]
    assert found('"3"') == ["text"]
    assert found("true") == ["yes"] and found("null") == ["none"]
    assert found("3' OR 1=1 --") == found("[3]") == found("NaN") == found("") == []
    assert call("list", "--where", "n=" + "9" * 400).exit_code in (0, 2)


def test_scope_and_pins_are_filters(state: Path) -> None:
    call("add", "walnut", "--pin")
    call("add", "walnut almond", "--scope", "global")
    assert "almond" not in call("search", "walnut", "--where", "pinned=true").stdout
    assert "almond" not in call("search", "walnut", "--where", "pinned=no").stdout
    everywhere = call("search", "walnut", "--where", "pinned=no", "--everywhere").stdout
    assert "almond" in everywhere
    assert "almond" in call("search", "walnut", "--where", "scope=global").stdout
    listed = call("list", "--where", "scope=global").stdout
    assert "almond" in listed and listed.count("mem_") == 1
