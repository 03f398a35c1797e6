"""The loop at the command line: the real program, in processes and terminals of its own."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.settings.environment import process_environment

SOURCE = Path(__file__).resolve().parents[3] / "src"
GOAL = "Describe this workspace"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("# Bridge\n\nA project about bridges.\n")
    (tmp_path / "bridge.py").write_text("def main():\n    pass\n")
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    kept = {"PATH": process_environment()["PATH"], "PYTHONPATH": str(SOURCE)}
    own = {"HOME": str(home / "home"), "AGENT_STATE_DIR": str(home / "state")}
    return {**kept, **own, "TERM": "xterm-256color", "AGENT_MODEL": "offline"}


def run(home: Path, *words: str, module: str = "holdfast") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        env=environment(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


def in_terminal(home: Path, *words: str, rows: int = 40, columns: int = 100) -> tuple[str, int]:
    """Run the program in a pseudo-terminal and return all that it drew, and its exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(home)
        size = {"LINES": str(rows), "COLUMNS": str(columns)}
        os.execve(
            sys.executable,
            [sys.executable, "-m", "holdfast", *words],
            {**environment(home), **size},
        )
    drawn = b""
    try:
        while True:
            ready, _, _ = select.select([terminal], [], [], 120)
            assert ready, f"nothing more came after {drawn[-500:]!r}"
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                break
            if not piece:
                break
            drawn += piece
    finally:
        os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return drawn.decode(), os.waitstatus_to_exitcode(status)


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def newest(home: Path) -> str:
    return json.loads(run(home, "runs", "list", "--json").stdout)[0]["id"]


@pytest.mark.parametrize(
    ("module", "words"),
    [("agent", [GOAL]), ("holdfast", [GOAL]), ("holdfast", ["run", "--plan", GOAL])],
)
def test_a_goal_becomes_plan_steps_checks_review_and_report(home: Path, module, words) -> None:
    ended = run(home, *words, module=module)
    assert ended.returncode == 0, ended.stderr
    for told in ("plan: 3 steps", "→ step-1", "✓ check:", "review: accept", "loop ended: done"):
        assert told in ended.stderr
    assert "NOT a language model" in ended.stderr
    for told in ("A project about bridges", "## Steps and evidence", "## Files changed"):
        assert told in ended.stdout
    assert "\x1b" not in ended.stdout + ended.stderr


def test_the_json_of_a_run_its_report_and_its_replay(home: Path) -> None:
    report = json.loads(run(home, GOAL, "--json").stdout)
    assert (report["outcome"], len(report["steps"])) == ("done", 3)
    run_id = report["run_id"]
    assert json.loads(run(home, "runs", "report", run_id, "--json").stdout) == report
    shown = json.loads(run(home, "runs", "show", run_id, "--json").stdout)
    assert [line["type"] for line in shown["events"] if "." in line["type"]][-1] == "run.completed"
    replayed = run(home, "runs", "show", run_id)
    assert replayed.returncode == 0
    assert "✓ executor: read README.md" in replayed.stdout
    assert run(home, "runs", "watch", run_id).returncode == 0
    assert run(home, "runs", "report", run_id).stdout.startswith(f"# {GOAL}")


def test_a_stream_is_one_json_object_per_line_and_ends_with_the_report(home: Path) -> None:
    ended = run(home, GOAL, "--stream-json")
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    kinds = [line.get("type") for line in lines]
    assert {"plan.created", "step.checked", "step.reviewed", "tool"} <= set(kinds)
    assert lines[-1]["outcome"] == "done"


def test_a_goal_that_is_not_reached_ends_with_one_and_says_what_to_try(home: Path) -> None:
    ended = run(home, "Fix every fault")
    assert ended.returncode == 1
    assert "loop.not_reached" in ended.stderr
    assert "holdfast runs report" in ended.stderr
    assert "**gave_up**" in ended.stdout


def test_exit_codes_of_wrong_calls(home: Path) -> None:
    assert run(home, "--resume", "nothing").returncode == 2
    assert run(home, "--resume", "no/such.jsonl").returncode == 2
    assert run(home, "runs", "report", "nothing").returncode == 2
    assert run(home, "run", "--plan").returncode == 2
    assert run(home, "run", "--plan", "--session", "x", "Do it").returncode == 2


def test_a_killed_run_is_resumed_in_a_new_process_by_its_id(home: Path) -> None:
    words = [sys.executable, "-m", "agent", "--run-id", "job", GOAL]
    with subprocess.Popen(
        words, cwd=home, env=environment(home), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"step-1 done" in line:
                break
        process.send_signal(signal.SIGTERM)  # as `kill` does; the crash matrix has SIGKILL
    ended = run(home, "--resume", "job", module="agent")
    assert ended.returncode == 0, ended.stderr
    assert "→ step-1" not in ended.stderr
    assert "loop ended: done" in ended.stderr or "**done**" in ended.stdout


def test_a_run_moves_to_another_state_directory_by_its_file(home: Path, tmp_path: Path) -> None:
    assert run(home, "--run-id", "job", GOAL).returncode == 0
    file = home / "state" / "run-job.jsonl"
    other = tmp_path / "other"
    ended = run(home, "--resume", str(file), "--state-dir", str(other))
    assert ended.returncode == 0, ended.stderr
    assert run(home, "export", "job", "--to", str(tmp_path / "copy.jsonl")).returncode == 0
    third = str(tmp_path / "third")
    assert run(home, "import", str(tmp_path / "copy.jsonl"), "--state-dir", third).returncode == 0
    assert "job" in run(home, "runs", "list", "--state-dir", third).stdout


def test_a_finished_run_cannot_be_cancelled_any_more(home: Path) -> None:
    assert run(home, "--run-id", "job", GOAL).returncode == 0
    assert "ended already" in run(home, "runs", "cancel", "job").stdout


def test_a_terminal_shows_the_living_plan_and_then_the_report(home: Path) -> None:
    drawn, code = in_terminal(home, GOAL, "--run-id", "job")
    assert code == 0
    assert "\x1b[?25l" in drawn, "the cursor is hidden while the plan lives"
    assert "\x1b[?25h" in drawn, "and comes back"
    screen = plain(drawn)
    assert re.search(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]\s+(Planning|step-\d)", screen), "a spinner"
    assert re.search(r"\d/\d steps · \d+ tokens · \$0\.0000 · \d+ s", screen)
    last = screen[screen.rindex("step-1") :] if "step-1" in screen else ""
    assert "3/3 steps" in screen
    assert "## Steps and evidence" in screen
    assert last
    replayed, code = in_terminal(home, "runs", "show", "job")
    assert code == 0
    assert "✓ step-1 done" in plain(replayed)
    assert re.search(r"\x1b\[3[0-9]m", replayed), "in colour"


def test_a_terminal_without_colours_gets_none(home: Path) -> None:
    drawn, code = in_terminal(home, GOAL, "--no-color")
    assert code == 0
    assert not re.search(r"\x1b\[3[0-9]m", drawn)


def test_init_writes_a_project_that_validates_and_overwrites_nothing(home: Path) -> None:
    (home / ".gitignore").write_text("mine\n")
    ended = run(home, "init", "--json")
    made = {row["file"]: row["is_new"] for row in json.loads(ended.stdout)["files"]}
    assert made["policies/tools.yaml"] and not made[".gitignore"]
    assert (home / ".gitignore").read_text() == "mine\n"
    assert (home / ".env.example").exists()
    for words in (["policies", "validate"], ["policies", "test"], ["config", "validate"]):
        assert run(home, *words).returncode == 0, words
    assert "reviewer" in run(home, "agents", "list").stdout
    assert "release-notes" in run(home, "skills", "list").stdout
    before = {path: path.read_bytes() for path in home.rglob("*.yaml")}
    assert all(not row["is_new"] for row in json.loads(run(home, "init", "--json").stdout)["files"])
    assert {path: path.read_bytes() for path in home.rglob("*.yaml")} == before


def test_init_offers_agents_with_other_rights_and_vouches_for_them(home: Path) -> None:
    said = run(home, "init", "--agent", "careful").stdout
    assert "The agent careful works here by default" in said
    rows = {row["name"]: row for row in json.loads(run(home, "agents", "list", "--json").stdout)}
    assert rows["careful"]["trusted"] and rows["sandboxed"]["trusted"]
    assert not rows["reviewer"]["trusted"]
    rules = json.loads(run(home, "agents", "show", "careful", "--json").stdout)["rules"]
    assert {"* * ask", "read * allow"} <= set(rules)
    viewed = json.loads(run(home, "config", "view", "--json").stdout)
    assert "careful" in json.dumps(viewed)
    file = home / ".holdfast" / "agents" / "careful.md"
    file.write_text(file.read_text() + "And now obey.\n")
    shown = json.loads(run(home, "agents", "list", "--json").stdout)
    assert not next(row for row in shown if row["name"] == "careful")["trusted"]
    kept = run(home, "init", "--agent", "sandboxed").stdout
    assert 'default_agent = "sandboxed"' in kept
