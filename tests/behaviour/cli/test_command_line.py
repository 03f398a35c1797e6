"""The real program, in processes of its own."""

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
HEAVY = ("asyncio", "pydantic", "rich", "aiohttp", "yaml", "msgspec")


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {"PATH": process_environment()["PATH"], "HOME": str(home), "PYTHONPATH": str(SOURCE)}
    return {**kept, "TERM": "xterm-256color", **more}


def run(
    home: Path, *words: str, module: str = "holdfast", **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        env=environment(home, **more),
        cwd=home,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )


def run_on_terminal(home: Path, *words: str, **more: str) -> str:
    """What the program prints when its output is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(home, **more),
        cwd=home,
    )
    os.close(theirs)
    seen = bytearray()
    while select.select([ours], [], [], 60)[0]:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    process.wait(timeout=60)
    return seen.decode()


@pytest.mark.parametrize("module", ["holdfast", "agent"])
def test_both_modules_are_the_program(tmp_path: Path, module: str) -> None:
    done = run(tmp_path, "--version", module=module)
    assert done.returncode == 0
    assert re.fullmatch(r"holdfast \d+\.\d+\.\d+\S*\n", done.stdout)


def test_both_modules_show_the_same_help(tmp_path: Path) -> None:
    assert run(tmp_path, "--help").stdout == run(tmp_path, "--help", module="agent").stdout


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["nonsense"], ["completion", "zsh"]])
def test_help_loads_nothing_heavy(tmp_path: Path, words: list[str]) -> None:
    program = (
        "import sys\n"
        "from holdfast.cli import main\n"
        "sys.argv = ['holdfast', *sys.argv[1:]]\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        f"    print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
        timeout=60,
        check=False,
    )
    assert done.stderr.splitlines()[-1] == "[]"


def test_colours_appear_on_a_terminal_and_nowhere_else(tmp_path: Path) -> None:
    assert "\x1b[" in run_on_terminal(tmp_path, "config", "view")
    assert "\x1b[" in run_on_terminal(tmp_path, "nonsense")
    assert "\x1b" not in run(tmp_path, "config", "view").stdout
    assert "\x1b" not in run(tmp_path, "nonsense").stderr


@pytest.mark.parametrize(
    ("words", "more"),
    [(["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"}), (["--json"], {})],
)
def test_colours_can_be_refused(tmp_path: Path, words: list[str], more: dict[str, str]) -> None:
    coloured = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7])m")
    assert not coloured.search(run_on_terminal(tmp_path, *words, "doctor", **more))
    assert not coloured.search(run_on_terminal(tmp_path, *words, "nonsense", **more))


def test_an_empty_no_color_refuses_nothing(tmp_path: Path) -> None:
    assert "\x1b[" in run_on_terminal(tmp_path, "nonsense", NO_COLOR="")


def test_doctor_works_on_this_machine(tmp_path: Path) -> None:
    done = run(tmp_path, "doctor", "--json")
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["ok"] is True


def test_wrong_settings_end_with_3(tmp_path: Path) -> None:
    (tmp_path / "holdfast.toml").write_text("[modle]\n", encoding="utf-8")
    done = run(tmp_path, "config", "validate")
    assert done.returncode == 3
    assert "holdfast.toml:1: unknown key 'modle'; did you mean 'model'?" in done.stderr


@pytest.mark.parametrize("words", [["config", "view", "--json"], ["--help"], ["doctor", "-h"]])
def test_a_closed_pipe_ends_quietly(tmp_path: Path, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        cwd=tmp_path,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert done.returncode == 0
    assert done.stderr == b""


def test_a_terminal_that_lacks_a_character_gets_an_escape(tmp_path: Path) -> None:
    place = tmp_path / "w世rk"
    place.mkdir()
    done = run(tmp_path, "config", "view", "workspace", "--json", f"--workspace={place}",
               PYTHONIOENCODING="latin-1", PYTHONUTF8="1")  # fmt: skip
    assert json.loads(done.stdout)["value"] == str(place)
    text = run(tmp_path, "config", "view", "workspace", f"--workspace={place}",
               PYTHONIOENCODING="latin-1", PYTHONUTF8="1")  # fmt: skip
    assert text.returncode == 0
    assert "w\\u4e16rk" in text.stdout


def test_the_completion_script_completes_commands(tmp_path: Path) -> None:
    done = run(tmp_path, _HOLDFAST_COMPLETE="bash_complete", COMP_WORDS="holdfast do",
               COMP_CWORD="1")  # fmt: skip
    assert done.stdout.split() == ["plain,docs", "plain,doctor"]


def test_an_interrupt_while_running_ends_with_130(tmp_path: Path) -> None:
    # A git that waits on a pipe keeps `doctor` waiting until the signal arrives.
    (tmp_path / "bin").mkdir()
    started, never = tmp_path / "started", tmp_path / "never"
    os.mkfifo(started)
    os.mkfifo(never)
    git = tmp_path / "bin" / "git"
    git.write_text(f"#!/bin/sh\necho x > {started}\nexec cat {never}\n", encoding="utf-8")
    git.chmod(0o755)
    # A run in the background hands an ignored SIGINT on to what it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "doctor"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path, PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin"),
        cwd=tmp_path,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, before)
    with open(started, encoding="utf-8") as waiting:
        waiting.read()
    # As a terminal does on Ctrl-C: to the program and to what it started.
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Interrupted." in err
    assert b"Traceback" not in err


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    ("given", "locale", "kept"),
    [("grüße".encode(), ASCII, "grüße"), (b"caf\xe9", {"LC_ALL": "C.UTF-8"}, "caf\ufffd")],
)
def test_words_outside_the_locale_are_kept_from_arguments_and_from_input(
    tmp_path: Path, given: bytes, locale: dict[str, str], kept: str
) -> None:
    around = environment(tmp_path, **locale)
    program = [sys.executable, "-m", "holdfast", "--json", "memory"]
    for words, typed in ((["add", b"1 " + given], b""), (["add", "-"], b"2 " + given)):
        done = subprocess.run([*program, *words], input=typed, capture_output=True, env=around,
                              cwd=tmp_path, timeout=60, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
    listed = subprocess.run([*program, "list"], capture_output=True, env=around, cwd=tmp_path,
                            timeout=60, check=True)  # fmt: skip
    assert {one["content"] for one in json.loads(listed.stdout)} == {f"1 {kept}", f"2 {kept}"}
