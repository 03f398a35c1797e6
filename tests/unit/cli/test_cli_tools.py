from __future__ import annotations

import json
import re
from pathlib import Path

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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "tool.json").write_text(
        json.dumps(
            {
                "name": "shout",
                "description": "Shout a text.",
                "command": ["{python}", "{bundle}/main.py"],
                "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
            }
        )
    )
    (bundle / "main.py").write_text(
        "import json, sys\n"
        "text = json.load(sys.stdin)['arguments']['text']\n"
        "json.dump({'output': text.upper() * 20000}, sys.stdout)\n"
    )
    return tmp_path


def test_a_tool_is_called_through_the_gate_and_remembered(home: Path) -> None:
    arguments = json.dumps({"operation": "add", "a": 1, "b": 2})
    called = call("run", "calculator", "--args", arguments)
    assert (called.exit_code, called.stdout) == (0, "3\n")
    refused = call("run", "write", "--args", '{"file_path": "a.txt", "content": "x"}')
    assert refused.exit_code == 6
    assert not (home / "a.txt").exists()
    allowed = call(
        "run", "write", "--args", '{"file_path": "a.txt", "content": "x"}', "--auto-confirm"
    )
    assert allowed.exit_code == 0
    assert (home / "a.txt").read_text() == "x"
    rows = json.loads(call("history", "--json").stdout)
    assert [row["tool"] for row in rows] == ["write", "write", "calculator"]
    assert rows[2]["output"] == "3"
    assert rows[2]["duration_s"] >= 0
    [failed] = json.loads(call("history", "--state", "error", "--json").stdout)
    assert "not allowed" in failed["error"]
    one = json.loads(call("history", "--session", rows[2]["session_id"], "--json").stdout)
    assert [row["id"] for row in one] == [rows[2]["id"]]
    assert "calculator" in call("history", "--tool", "calculator").stdout


def test_arguments_can_be_given_one_by_one(home: Path) -> None:
    called = call("run", "calculator", "operation=add", "a=1", "b=-2.5")
    assert (called.exit_code, called.stdout) == (0, "-1.5\n")
    mixed = call("run", "calculator", "a=1", "--args", '{"operation": "add", "b": 2}')
    assert (mixed.exit_code, mixed.stdout) == (0, "3\n")
    text = call("run", "write", "file_path=a.txt", "content=3", "--auto-confirm")
    assert text.exit_code == 0
    assert (home / "a.txt").read_text() == "3"


@pytest.mark.parametrize(
    "pairs",
    [
        ("a=1", "b=2"),
        ("operation=add", "a=1", "b=true"),
        ("operation=add", "a=1", "b=x"),
        ("operation=add", "a=1", "c=2"),
        ("operation=add", "a=1", "b=2", "--args", '{"b": 2}'),
        ("add",),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_recorded(
    home: Path, pairs: tuple[str, ...]
) -> None:
    refused = call("run", "calculator", *pairs)
    assert refused.exit_code in (1, 2)
    assert json.loads(call("history", "--json").stdout) == []


@pytest.mark.parametrize("arguments", ["[1]", "{", "3"])
def test_arguments_that_are_no_object_are_a_usage_error(home: Path, arguments: str) -> None:
    assert call("run", "calculator", "--args", arguments).exit_code == 2


def test_an_unknown_tool_is_a_usage_error(home: Path) -> None:
    assert call("run", "calculatr").exit_code == 2


def test_a_question_waits_with_an_exit_code_of_its_own(home: Path) -> None:
    asked = json.dumps({"questions": [{"question": "Which?", "header": "h", "options": []}]})
    waiting = call("run", "question", "--args", asked, "--auto-confirm", "--run-id", "job")
    assert waiting.exit_code == 5, waiting.output


def test_a_call_that_waited_goes_on_by_the_commands_that_are_printed(home: Path) -> None:
    question = '{"questions": [{"question": "Which?"}]}'
    waits = call("run", "question", "--args", question, "--auto-confirm")
    assert waits.exit_code == 5
    answer, resume = re.findall(r"holdfast (.*)$", waits.stderr, re.MULTILINE)
    run_id = resume.split()[-1]
    as_an_agent = CliRunner().invoke(root, ["run", "--run-id", run_id])
    assert as_an_agent.exit_code == 2
    assert resume in as_an_agent.stderr
    answered = CliRunner().invoke(root, answer.replace("TEXT", "blue").split())
    assert f"holdfast {resume}" in answered.stdout
    assert CliRunner().invoke(root, resume.split()).stdout == "blue\n"
    assert call("run").exit_code == 2


def test_bundles_are_installed_verified_called_and_removed(home: Path) -> None:
    pin = json.loads(call("install", "bundle", "--json").stdout)
    assert pin["name"] == "shout"
    assert call("verify").exit_code == 0
    rows = {row["name"]: row for row in json.loads(call("list", "--json").stdout)}
    assert rows["shout"]["scope"] == "bundle"
    called = json.loads(
        call("run", "shout", "--args", '{"text": "hi"}', "--auto-confirm", "--json").stdout
    )
    whole = call("output", called["session_id"], called["metadata"]["artifact"])
    assert whole.stdout == "HI" * 20_000
    (home / "state" / "tools" / "shout" / "main.py").write_text("evil")
    assert call("verify", "shout").exit_code == 1
    assert "shout" not in call("list", "--json").stdout
    assert call("remove", "shout").exit_code == 0
    assert call("remove", "shout").exit_code == 2


@pytest.mark.parametrize("name", ["read", "task", "Plan_Enter"])
def test_a_bundle_cannot_take_the_name_of_a_built_in_tool(home: Path, name: str) -> None:
    manifest = json.loads((home / "bundle" / "tool.json").read_text())
    (home / "bundle" / "tool.json").write_text(json.dumps({**manifest, "name": name}))
    assert call("install", "bundle").exit_code == 2


@pytest.mark.parametrize(("name", "said"), [("bash", "ask"), ("read", "allow"), ("task", "ask")])
def test_show_says_what_holds_where_no_rule_speaks(home: Path, name: str, said: str) -> None:
    assert json.loads(call("show", name, "--json").stdout)["permission"] == said


def test_reading_outside_the_workspace_exits_like_a_denial(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    assert call("run", "read", "--args", '{"file_path": "/etc/hostname"}').exit_code == 6
    assert call("run", "read", "--args", '{"file_path": "missing.txt"}').exit_code == 1
