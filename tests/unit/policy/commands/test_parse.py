"""What a parsed command line holds is exactly what a shell would have run."""

from __future__ import annotations

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.commands import Pipeline, Redirection, SimpleCommand, parse_command
from holdfast.policy.commands.appearance import LONGEST
from holdfast.policy.commands.parse import MOST_COMMANDS, _Reading
from holdfast.policy.patterns import clean_target, compile_matcher, find_fixed_word


def argv(text: str) -> list[tuple[str, ...]]:
    parsed = parse_command(text)
    assert parsed.is_parsed, parsed.problem
    return [one.argv for one in parsed.commands()]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (r"a b\ c", ("a", "b c")),
        ("a 'b  c'", ("a", "b  c")),
        (r'a "b \"c\" \\ \n"', ("a", r'b "c" \ \n')),
        ("a b\"c\"'d'e", ("a", "bcde")),
        (r"a \$x '$y' \`", ("a", "$x", "$y", "`")),
        ("a '' \"\"", ("a", "", "")),
        ("a x=y --k=v", ("a", "x=y", "--k=v")),
        (r"a -e\xec", ("a", "-exec")),
        ("a HEAD~1 HEAD^ @{u} {}", ("a", "HEAD~1", "HEAD^", "@{u}", "{}")),
        ('a foo$ "b$"', ("a", "foo$", "b$")),
        ("a 12 007", ("a", "12", "007")),
    ],
)
def test_words_become_the_arguments_that_a_shell_would_pass(text, words):
    assert argv(text) == [words]
    shown = subprocess.run(
        ["bash", "-c", f"a() {{ printf '%s\\0' a \"$@\"; }}; {text}"], capture_output=True
    )
    assert tuple(shown.stdout.decode().split("\0")[:-1]) == words


def test_connectors_and_pipes_keep_their_order():
    parsed = parse_command("a | b && c || d; e")
    commands = [SimpleCommand(argv=(name,)) for name in "abcde"]
    assert parsed.pipelines == (
        Pipeline(commands=(commands[0], commands[1])),
        Pipeline(commands=(commands[2],), connector="&&"),
        Pipeline(commands=(commands[3],), connector="||"),
        Pipeline(commands=(commands[4],)),
    )


def test_a_redirection_belongs_to_the_last_command_before_it():
    first, second = parse_command("a && b c > x 2>&1").commands()
    assert first.redirections == ()
    assert second.redirections == (
        Redirection(fd=1, mode="write", path="x"),
        Redirection(fd=2, mode="duplicate", source_fd=1),
    )


def test_a_redirection_inside_a_pipe_stays_where_it_is():
    first, second = parse_command("a < in | b >> out").commands()
    assert first.redirections == (Redirection(fd=0, mode="read", path="in"),)
    assert second.redirections == (Redirection(fd=1, mode="append", path="out"),)


def test_targets_name_every_program_and_every_file():
    parsed = parse_command("cat < 'a b' | tee x && ls > out 2>/dev/null")
    assert parsed.targets() == ("cat", "tee x", "ls > out")
    assert parsed.paths("read") == ("a b",)
    assert parsed.paths("write") == ("out",)


def test_an_unparsed_line_is_its_own_target():
    assert parse_command("echo $(id)").targets() == ("echo $(id)",)


def test_safe_variables_are_kept_beside_the_arguments():
    (command,) = parse_command("LC_ALL=C NO_COLOR= sort x").commands()
    assert command.assignments == (("LC_ALL", "C"), ("NO_COLOR", ""))
    assert command.argv == ("sort", "x")


def test_a_very_long_line_asks():
    assert not parse_command("echo " + "a" * LONGEST).is_parsed


def test_very_many_commands_ask_instead_of_being_cut():
    assert parse_command("; ".join(["true"] * MOST_COMMANDS)).is_parsed
    assert not parse_command("; ".join(["true"] * (MOST_COMMANDS + 1))).is_parsed


@pytest.mark.parametrize(
    "text",
    [
        "> x",
        "ls > x y",
        "cat > x <<< y",
        "ls >&x",
        "ls 2>&3",
        "ls 0>x",
        "ls 1<x",
        "ls &>>x",
        'echo a$"x"',
        """echo "$'x'" """,
        "a=b c=d",
        "x==y ls",
    ],
)
def test_unusual_redirections_and_words_ask(text):
    assert not parse_command(text).is_parsed


def test_a_part_that_was_not_understood_makes_the_line_unparsed(monkeypatch):
    """Should the grammar ever learn to skip something, we do not follow."""
    monkeypatch.setattr(
        _Reading, "_split_statements", lambda self, root: self._mark(root.children[0])
    )
    assert parse_command.__wrapped__("ls; rm x").problem == "a part of it was not understood"


printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@given(st.lists(printable, min_size=1, max_size=5))
def test_quoting_by_the_standard_library_is_read_back_exactly(arguments):
    assert argv(shlex.join(["a", *arguments])) == [("a", *arguments)]


@given(st.text(max_size=60))
def test_no_text_raises_and_every_text_is_read_whole_or_not_at_all(text):
    parsed = parse_command(text)
    assert parsed.is_parsed == bool(parsed.pipelines)


@given(st.text("ab $`'\"\\|&;<>(){}*?~!#=-/\n", max_size=25))
def test_what_is_parsed_means_the_same_to_a_shell(text):
    """Our reading and bash's agree on the words of every line that we accept."""
    parsed = parse_command(text)
    if not parsed.is_parsed:
        return
    (first, *rest) = [*parsed.commands()]
    if rest or first.redirections or "/" in first.argv[0]:
        return
    shown = subprocess.run(
        [
            "/bin/bash",
            "-c",
            f"command_not_found_handle() {{ printf '%s\\0' \"$@\"; }}; {text.strip()}",
        ],
        capture_output=True,
        env={"PATH": "/nonexistent"},
    )
    assert tuple(shown.stdout.decode().split("\0")[:-1]) == first.argv


@pytest.mark.parametrize("text", ["xargs -0 -n1>> rm -f", "ls -n1> f", "ls 1234> f"])
def test_a_descriptor_that_is_no_plain_number_is_not_read(text: str) -> None:
    parsed = parse_command(text)
    assert not parsed.is_parsed and not parsed.pipelines


def test_what_is_appended_to_is_shown_so_and_rules_about_writing_mean_both() -> None:
    [target] = parse_command("echo one >> log.txt").targets()
    assert target == "echo one >> log.txt"
    cleaned = clean_target(target, "command")
    for pattern in ("* > log.txt", "* >> log.txt", "echo *"):
        assert compile_matcher(pattern, "command")(cleaned)
        assert find_fixed_word(pattern, "command") in (*cleaned.split(" "), "")
    assert not compile_matcher("* > other.txt", "command")(cleaned)
