"""`holdfast workflows` and `holdfast triggers` at the command line."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.app import root
from holdfast.cli.exits import ExitCode

HELLO = """name: hello
description: Greets.
inputs:
  names: {type: array, default: [Ada]}
steps:
  - id: each
    loop: {over: "${inputs.names}"}
    steps:
      - id: hi
        value: Hello ${loop.item} <&"
  - id: sum
    tool: calculator
    with: {operation: add, a: 1, b: 2}
  - id: never
    when: "false"
    value: 1
result: ${steps.each.output}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL", "AGENT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOLDFAST_USER_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    place = tmp_path / "project"
    folder = place / ".holdfast/workflows"
    folder.mkdir(parents=True)
    (folder / "hello.yaml").write_text(HELLO)
    monkeypatch.chdir(place)
    return place


def call(*words: str) -> Result:
    return CliRunner().invoke(root, list(words))


def test_a_workflow_runs_and_its_run_can_be_looked_at(project: Path) -> None:
    ran = call("workflows", "run", "hello", "-i", 'names=["A","B"]', "--run-id", "job", "--json")
    assert ran.exit_code == 0, ran.output
    result = json.loads(ran.stdout)
    assert result["output"] == ['Hello A <&"', 'Hello B <&"']
    shown = call("workflows", "show", "job")
    assert "each[1]/hi" in shown.stdout and "skipped" in shown.stdout
    runs = json.loads(call("workflows", "list", "--runs", "--json").stdout)
    assert [(run["run"], run["workflow"], run["status"]) for run in runs] == [
        ("job", "hello", "completed")
    ]
    again = call("workflows", "run", "--run-id", "job", "--json")
    assert json.loads(again.stdout)["output"] == result["output"]


def test_plain_output_has_a_line_per_step_and_the_result_alone_on_stdout(project: Path) -> None:
    ran = call("workflows", "run", "hello")
    assert ran.exit_code == 0
    assert json.loads(ran.stdout) == ['Hello Ada <&"']
    assert "✓ sum  tool calculator" in ran.stderr
    assert "- never  left out" in ran.stderr
    assert "\x1b" not in ran.output


def test_every_fact_is_a_line_of_stream_json(project: Path) -> None:
    ran = call("workflows", "run", "hello", "-o", "stream-json")
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    assert lines[0]["type"] == "workflow.started"
    assert lines[-1]["status"] == "completed"


def test_mistakes_are_named_with_their_lines(project: Path) -> None:
    (project / "bad.yaml").write_text(
        "name: bad\nsteps:\n  - id: a\n    value: ${steps.b.output}\n"
    )
    told = call("workflows", "validate", "bad.yaml")
    assert told.exit_code == ExitCode.CONFIGURATION
    assert "bad.yaml:4:" in told.stderr
    assert call("workflows", "validate", "hello").exit_code == 0
    assert call("workflows", "validate", "nobody").exit_code == ExitCode.USAGE
    steps = "[{id: a, tool: nope}, {id: b, agent: none, message: hi}]"
    (project / "far.yaml").write_text(f"name: far\nsteps: {steps}\n")
    elsewhere = call("workflows", "validate", "far.yaml")
    assert elsewhere.exit_code == 0
    assert "no tool 'nope'" in elsewhere.stderr and "no agent 'none'" in elsewhere.stderr


def test_wrong_inputs_are_refused_before_anything_runs(project: Path) -> None:
    assert call("workflows", "run", "hello", "-i", "names=3").exit_code == ExitCode.CONFIGURATION
    assert call("workflows", "run", "hello", "-i", "names").exit_code == ExitCode.USAGE
    assert call("workflows", "run", "hello", "-i", "names=[").exit_code == ExitCode.USAGE
    assert call("workflows", "run").exit_code == ExitCode.USAGE
    assert json.loads(call("workflows", "list", "--runs", "--json").stdout) == []


def test_the_graph_is_mermaid_svg_or_json(project: Path) -> None:
    assert call("workflows", "graph", "hello").stdout.startswith("flowchart TD")
    wrote = call("workflows", "graph", "hello", "--format", "svg", "--out", "g.svg")
    assert wrote.exit_code == 0
    assert ElementTree.fromstring((project / "g.svg").read_text()).tag.endswith("svg")
    nodes = json.loads(call("workflows", "graph", "hello", "--json").stdout)["nodes"]
    assert [node["id"] for node in nodes] == ["each", "hi", "sum", "never"]


def test_workflows_are_listed_and_shown(project: Path) -> None:
    (project / ".holdfast/workflows/broken.yaml").write_text("steps: 3")
    rows = json.loads(call("workflows", "list", "--json").stdout)
    assert [(row["name"], row["valid"]) for row in rows] == [("broken", False), ("hello", True)]
    assert "calculator" in call("workflows", "show", "hello").stdout


def test_a_workflow_that_waits_ends_with_5_and_says_how_to_answer(project: Path) -> None:
    (project / "write.yaml").write_text(
        "name: write\nsteps:\n  - id: w\n    tool: write\n"
        "    with: {file_path: a.txt, content: hello}\n"
    )
    waits = call("workflows", "run", "write.yaml", "--run-id", "job", "--park")
    assert waits.exit_code == ExitCode.WAITING, waits.output
    [line] = [line for line in waits.stderr.splitlines() if "holdfast approvals approve" in line]
    approval = line.rsplit(" ", 1)[-1]
    assert call("approvals", "approve", approval).exit_code == 0
    done = call("workflows", "run", "--run-id", "job")
    assert done.exit_code == 0, done.output
    assert (project / "a.txt").read_text() == "hello"


def test_a_trigger_is_added_fires_and_is_removed(project: Path) -> None:
    added = call(
        "triggers", "add", "greet", "--on", "session.created",
        "--where", "event.data.title == 'Order'", "--workflow", "hello",
    )  # fmt: skip
    assert added.exit_code == 0, added.output
    assert "session.created where" in call("triggers", "list").stdout
    (project / "once.yaml").write_text("name: once\nsteps: [{id: a, value: 1}]\n")
    assert call("triggers", "run", "--once").exit_code == 0
    assert json.loads(call("triggers", "list", "--firings", "--json").stdout) == []
    second = call("triggers", "add", "greet", "--cron", "* * * * *", "--workflow", "hello")
    assert second.exit_code == ExitCode.USAGE
    assert call("triggers", "remove", "greet").exit_code == 0
    assert call("triggers", "remove", "greet").exit_code == ExitCode.USAGE


def test_a_wrong_trigger_is_refused(project: Path) -> None:
    wrong = call("triggers", "add", "x", "--cron", "* * *", "--workflow", "hello")
    assert wrong.exit_code == ExitCode.CONFIGURATION
    unknown = call("triggers", "add", "x", "--cron", "* * * * *", "--workflow", "nobody")
    assert unknown.exit_code == ExitCode.USAGE
    assert json.loads(call("triggers", "list", "--json").stdout) == []
