from __future__ import annotations

import importlib
import json
import sys
import types
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from holdfast import errors
from holdfast.cli.app import RootGroup, root
from holdfast.cli.commands import BELOW, COMMANDS, SECTIONS
from holdfast.cli.exits import ExitCode, choose_exit_code
from holdfast.cli.frame import CliCommand, Group, Invocation, pass_invocation


def call(*words: str, app: click.Group = root, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, list(words), env=env)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> RootGroup:
    """A command line with a few commands made for these tests."""

    @click.command("fail", cls=CliCommand)
    @click.argument("how")
    @pass_invocation
    def fail(_invocation: Invocation, how: str) -> None:
        """Fail."""
        if how == "busy":
            raise errors.SessionBusy(session_id="s1\x1b[31m") from OSError("disk on fire")
        if how == "interrupt":
            raise KeyboardInterrupt
        if how == "click":
            raise click.ClickException("plain")
        if how == "long":
            open("a" * 5000)
        raise RuntimeError("wires crossed")

    @click.command("run", cls=CliCommand, context_settings={"ignore_unknown_options": True})
    @click.argument("goal", nargs=-1)
    @pass_invocation
    def run(invocation: Invocation, goal: tuple[str, ...]) -> None:
        """Run."""
        click.echo(f"{invocation.output}:{'|'.join(goal)}")

    @click.group("many", cls=Group)
    def many() -> None:
        """Many."""

    @many.command("list")
    @pass_invocation
    def listing(invocation: Invocation) -> None:
        """List."""
        click.echo(f"{invocation.output} {invocation.overrides} {invocation.no_color}")

    table = {}
    for made in (fail, run, many):
        module = types.ModuleType(f"made_for_tests_{made.name}")
        module.__dict__["command"] = made
        monkeypatch.setitem(sys.modules, module.__name__, module)
        table[str(made.name)] = (module.__name__, str(made.help))
    return RootGroup("holdfast", table=table)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_shows_the_first_line_of_each_command(name: str) -> None:
    module, line = COMMANDS[name]
    command = importlib.import_module(module).command
    assert command.get_short_help_str(limit=200) == line
    assert command.name == name


def test_every_command_stands_under_one_heading_of_the_help() -> None:
    named = [name for names in SECTIONS.values() for name in names]
    assert sorted(named) == sorted(COMMANDS)
    shown = call("--help").output
    assert all(f"{title}:" in shown for title in SECTIONS)


def test_the_help_of_a_group_shows_whole_sentences() -> None:
    listed = call("memory", "--help").output.partition("Commands:")[2]
    assert "add " in listed
    assert "..." not in listed


@pytest.mark.parametrize("meant", sorted(set(BELOW.values())))
def test_what_is_suggested_for_a_word_exists(meant: str) -> None:
    assert call(*meant.split(), "--help").exit_code == ExitCode.DONE


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("memory store x", "`holdfast memory add`"),
        ("tools call x", "`holdfast tools run`"),
        ("sessions rm x", "`holdfast sessions delete`"),
        ("undo", "`holdfast sessions undo`"),
        ("verify", "`holdfast audit verify`"),
        ("runz", "`holdfast runs`"),
        ("list", "`holdfast runs list`"),
        ("xyzzy", "`holdfast --help`"),
    ],
)
def test_another_word_for_a_command_leads_to_it(words: str, meant: str) -> None:
    ended = call(*words.split())
    assert ended.exit_code == ExitCode.USAGE
    assert meant in ended.stderr


def test_a_file_that_is_not_there_is_a_wrong_call_and_is_told_once(tmp_path: Path) -> None:
    ended = call("--state-dir", str(tmp_path), "memory", "import", str(tmp_path / "nothing"))
    assert ended.exit_code == ExitCode.USAGE
    assert ended.stderr.count("No such file") == 1
    assert "next:" in ended.stderr


@pytest.mark.parametrize("words", ["sessions show", "context show", "runs resume", "resume"])
def test_without_a_name_the_last_is_meant_and_where_there_is_none_that_is_said(
    words: str, tmp_path: Path
) -> None:
    ended = call("--state-dir", str(tmp_path), *words.split())
    assert ended.exit_code == ExitCode.USAGE
    assert "holdfast chat" in ended.stderr or "No run has stopped" in ended.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_global_options(name: str) -> None:
    shown = call(name, "--help").output
    assert all(option in shown for option in ("--json", "--output", "--debug", "--no-color"))


def test_an_unknown_command_names_the_nearest_one() -> None:
    result = call("doctr")
    assert result.exit_code == 2
    assert "Did you mean `holdfast doctor`?" in result.stderr
    assert "usage.invalid" in result.stderr


def test_an_unknown_command_without_a_neighbour_points_to_the_help() -> None:
    assert "holdfast --help" in call("xyzzyxyzzy").stderr


def test_an_unknown_command_of_a_group_names_the_nearest_one(app: RootGroup) -> None:
    result = call("many", "lst", app=app)
    assert result.exit_code == 2
    assert "Did you mean `holdfast many list`?" in result.stderr


@pytest.mark.parametrize("goal", ["Describe this workspace", "fix it", "Describe", "why?", "-x y"])
def test_a_goal_is_handed_to_run(app: RootGroup, goal: str) -> None:
    words = ["--", goal] if goal.startswith("-") else [goal]
    assert call(*words, app=app).output == f"text:--plan|{goal}\n"


def test_a_goal_may_be_followed_by_options(app: RootGroup) -> None:
    assert call("fix it", "--json", app=app).output == "json:--plan|fix it\n"


def test_a_misspelt_command_is_not_taken_for_a_goal(app: RootGroup) -> None:
    assert call("rnu", app=app).exit_code == 2


def test_without_run_a_goal_is_an_unknown_command() -> None:
    table = {name: entry for name, entry in COMMANDS.items() if name != "run"}
    assert call("Describe this", app=RootGroup("holdfast", table=table)).exit_code == 2


def test_global_options_count_before_and_after_the_command(app: RootGroup) -> None:
    before = call("--json", "--state-dir", "x", "--no-color", "many", "list", app=app).output
    after = call("many", "list", "--json", "--state-dir", "x", "--no-color", app=app).output
    between = call("many", "-o", "json", "--state-dir=x", "--no-color", "list", app=app).output
    assert before == after == between == "json {'storage.state_dir': 'x'} True\n"


def test_an_error_says_what_why_what_next_and_its_code(app: RootGroup) -> None:
    result = call("fail", "busy", app=app)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        r"error: Session s1\u001b[31m is busy with another turn.",
        "why:   OSError: disk on fire",
        "next:  Wait for it, or send the turn with on_busy='queue'.",
        "code:  session.busy (explained by: holdfast docs session.busy)",
    ]


def test_an_error_is_one_json_object_on_stderr(app: RootGroup) -> None:
    result = call("fail", "busy", "--json", app=app)
    assert result.stdout == ""
    error = json.loads(result.stderr)["error"]
    assert error["code"] == "session.busy"
    assert error["is_retryable"] is True
    assert error["hint"]


@pytest.mark.parametrize(
    "words", [["--json", "--nope"], ["-o", "json", "--nope"], ["--output=json", "nope"]]
)
def test_errors_of_parsing_are_json_too(words: list[str]) -> None:
    result = call(*words)
    assert result.exit_code == 2
    assert json.loads(result.stderr)["error"]["code"] == "usage.invalid"


def test_an_unexpected_error_is_short(app: RootGroup) -> None:
    result = call("fail", "badly", app=app)
    assert result.exit_code == 1
    assert "RuntimeError: wires crossed" in result.stderr
    assert "Traceback" not in result.stderr
    assert "code:  internal" in result.stderr


def test_a_path_that_is_too_long_is_no_fault_of_ours(app: RootGroup) -> None:
    result = call("fail", "long", app=app)
    assert result.exit_code == 1
    assert "code:  file.failed" in result.stderr
    assert len(result.stderr) < 200


@pytest.mark.parametrize("how", ["badly", "busy"])
def test_debug_prints_the_traceback(app: RootGroup, how: str) -> None:
    assert "Traceback" in call("fail", how, "--debug", app=app).stderr


def test_an_interrupt_ends_with_130(app: RootGroup) -> None:
    result = call("fail", "interrupt", app=app)
    assert result.exit_code == 130
    assert "Interrupted." in result.stderr
    plain = call("fail", "interrupt", "--json", app=app)
    assert plain.exit_code == 130
    assert json.loads(plain.stderr)["error"]["code"] == "interrupted"


def test_a_plain_click_error_keeps_its_code(app: RootGroup) -> None:
    result = call("fail", "click", app=app)
    assert result.exit_code == 1
    assert "plain" in result.stderr


def test_a_group_alone_shows_its_help_and_is_a_usage_error(app: RootGroup) -> None:
    result = call("many", app=app)
    assert result.exit_code == 2
    assert "Commands:" in result.stderr


def test_a_table_entry_that_is_no_command_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("made_for_tests_broken")
    module.__dict__["command"] = "text"
    monkeypatch.setitem(sys.modules, module.__name__, module)
    app = RootGroup("holdfast", table={"broken": (module.__name__, "Broken.")})
    assert "not a click command" in call("broken", app=app).stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.UsageError(detail="x"), ExitCode.USAGE),
        (errors.NotFound(kind="session", value="x"), ExitCode.USAGE),
        (errors.ConfigError(detail="x"), ExitCode.CONFIGURATION),
        (errors.MissingExtra(what="x", package="y", extra="z"), ExitCode.CONFIGURATION),
        (errors.LLMAuthError(provider="x"), ExitCode.AUTHENTICATION),
        (errors.PermissionDenied(permission="x"), ExitCode.DENIED),
        (errors.ApprovalExpired(approval_id="x"), ExitCode.DENIED),
        (errors.BudgetExceeded(kind="x"), ExitCode.BUDGET),
        (errors.SessionBusy(session_id="x"), ExitCode.FAILED),
        (errors.StorageFull(path="x"), ExitCode.FAILED),
        (errors.ChainBroken(session_id="x"), ExitCode.FAILED),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
        (ValueError(), ExitCode.FAILED),
    ],
)
def test_every_branch_of_the_error_tree_has_its_exit_code(
    error: BaseException, code: ExitCode
) -> None:
    assert choose_exit_code(error) is code


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    result = call("completion", shell)
    assert result.exit_code == 0
    assert "_HOLDFAST_COMPLETE" in result.output


def test_completion_refuses_other_shells() -> None:
    assert call("completion", "csh").exit_code == 2


def test_commands_complete_without_being_imported() -> None:
    found = root.shell_complete(click.Context(root), "co")
    assert [item.value for item in found] == ["completion", "config", "context"]
    assert found[1].help == "Show, check or trust the settings."
