"""`holdfast chat` at a real terminal, with a model server that does what the test says."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import AsyncClient
from holdfast.testing.fake_server import Failure, FakeServer, HoldPoint, Reply, ScriptedCall
from tests.behaviour.cli.terminal import SOURCE, Terminal

KEY = "sk-test-3f9a8b7c6d5e4f3a2b1c"
MODEL = "openai:gpt-4o-mini"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer(key=KEY) as started:
        yield started


def around(server: FakeServer, home: Path) -> dict[str, str]:
    return {
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": server.base_url,
        "AGENT_FORCE_CHAT_COMPLETIONS": "true",
        "AGENT_STATE_DIR": str(home / "state"),
        "AGENT_WORKSPACE": str(home),
    }


def chat(server: FakeServer, home: Path, *words: str) -> Terminal:
    return Terminal(
        "-m", "holdfast", "chat", "--model", MODEL, *words,
        home=home, environment=around(server, home),
    )  # fmt: skip


def call(name: str, **arguments: object) -> Reply:
    return Reply(calls=(ScriptedCall(name=name, arguments=json.dumps(arguments)),))


@pytest.mark.parametrize("words", [(), ("--plain",)], ids=["toolkit", "readline"])
async def test_a_conversation_with_a_tool_and_a_cost_line(
    server: FakeServer, tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "a.txt").write_text("forty-two\n")
    server.answers.extend(
        [
            call("read", file_path="a.txt"),
            Reply(text="# Result\n\nIt is **forty-two**.\n\n```\ncode\n```\n"),
            Reply(text="You asked about a.txt."),
        ]
    )
    async with chat(server, tmp_path, *words) as terminal:
        await terminal.sees(">")
        terminal.enter("What is in a.txt?")
        await terminal.sees("✓ read")
        await terminal.sees("forty-two")
        await terminal.sees("completed in")
        await terminal.sees(">")
        terminal.enter("What did I ask?")
        await terminal.sees("about a.txt.")
        await terminal.sees("completed in")
        await terminal.sees(">")
        terminal.type("\x04")
        assert await terminal.ends() == 0
    # Markdown is drawn unless plain text is wanted.
    assert (b"\x1b[1mforty-two" in terminal.raw) != bool(words)
    # The second turn had the first one's history.
    assert any(m["content"] == "What is in a.txt?" for m in server.requests[-1].json["messages"])
    # Ids are for who asks for them.
    assert "ses_" not in terminal.screen
    assert "run_" not in terminal.screen


async def test_without_colours_markdown_is_drawn_still_and_a_dumb_terminal_gets_it_as_it_is(
    server: FakeServer, tmp_path: Path
) -> None:
    for environment, is_drawn in (({"NO_COLOR": "1"}, True), ({"TERM": "dumb"}, False)):
        server.answers.append(Reply(text="# Result\n\nIt is **forty-two**, `code`.\n"))
        words = ["-m", "holdfast", "chat", "--model", MODEL]
        given = {**around(server, tmp_path), **environment}
        async with Terminal(*words, home=tmp_path, environment=given) as terminal:
            await terminal.sees(">")
            terminal.enter("What is it?")
            await terminal.sees("completed in")
            await terminal.sees(">")
            terminal.type("\x04")
            assert await terminal.ends() == 0
        assert (b"\x1b[1mforty-two" in terminal.raw) == is_drawn
        assert (b"**forty-two**" in terminal.raw) != is_drawn
        assert not re.search(rb"\x1b\[[0-9;]*\b(3[0-8]|9[0-7])\b[0-9;]*m", terminal.raw)


async def test_an_approval_shows_the_change_and_the_answer_counts(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    agents = tmp_path / ".config" / "holdfast" / "agents"
    agents.mkdir(parents=True)
    (agents / "editor.md").write_text(
        "---\ndescription: edits\npermission:\n"
        "  - {permission: write, pattern: '*', action: ask}\n---\nEdit.\n"
    )
    write = call("write", file_path="a.txt", content="new\n")
    server.answers.extend([write, Reply(text="It stays."), write, Reply(text="Written.")])
    async with chat(server, tmp_path, "--agent", "editor") as terminal:
        await terminal.sees(">")
        terminal.enter("Change it")
        await terminal.sees("-old")
        await terminal.sees("+new")
        await terminal.sees("q stop]")
        terminal.enter("n")
        await terminal.sees("Why not")
        terminal.enter("precious")
        await terminal.sees("It stays.")
        assert (tmp_path / "a.txt").read_text() == "old\n"
        await terminal.sees(">")
        terminal.enter("Change it now")
        await terminal.sees("q stop]")
        terminal.enter("y")
        await terminal.sees("Written.")
        await terminal.sees(">")
        terminal.enter("/exit")
        assert await terminal.ends() == 0
    assert (tmp_path / "a.txt").read_text() == "new\n"
    assert "precious" in server.requests[1].body.decode()


async def test_ctrl_c_stops_the_turn_and_the_session_goes_on(
    server: FakeServer, tmp_path: Path
) -> None:
    gate = HoldPoint()
    server.answers.extend([Reply(text="a long answer", gate=gate), Reply(text="Here I am.")])
    async with chat(server, tmp_path) as terminal:
        await terminal.sees(">")
        terminal.enter("Talk")
        async with asyncio.timeout(60):
            await gate.reached.wait()
        terminal.type("\x03")
        await terminal.sees("Stopping")
        await terminal.sees("cancelled in")
        await terminal.sees(">")
        terminal.enter("Are you there?")
        await terminal.sees("Here I am.")
        await terminal.sees(">")
        # At the prompt: once is a slip, twice leaves.
        terminal.type("\x03")
        await terminal.sees("again leaves")
        await terminal.sees(">")
        terminal.type("\x03")
        assert await terminal.ends() == 130
    texts = [m["content"] for m in server.requests[-1].json["messages"] if m["role"] == "user"]
    assert texts == ["Talk", "Are you there?"]


async def test_ctrl_c_twice_in_a_turn_leaves_and_the_session_can_go_on(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("text")
    server.answers.extend(
        [
            call("read", file_path="a.txt"),
            Reply(text="never", gate=HoldPoint()),
            Reply(text="Again."),
        ]
    )
    async with chat(server, tmp_path) as terminal:
        await terminal.sees(">")
        terminal.enter("Talk")
        await terminal.sees("✓ read")
        terminal.type("\x03")
        await terminal.sees("Stopping")
        assert await terminal.is_left_by("\x03") == 130
    async with chat(server, tmp_path, "--continue") as terminal:
        await terminal.sees(">")
        terminal.enter("Go on")
        await terminal.sees("Again.")
        await terminal.sees(">")
        terminal.type("\x04")
        assert await terminal.ends() == 0
    async with AsyncClient(tmp_path / "state") as client:
        [session] = (await client.list_sessions()).items
        page = await client.list_messages(session.id)
    assert [m.text for m in page.items if m.role == "user"] == ["Talk", "Go on"]
    assert all(part.state != "pending" for m in page.items for part in m.tool_calls)


async def test_slash_commands(server: FakeServer, tmp_path: Path) -> None:
    server.answers.extend([Reply(text="One."), Reply(text="Two."), Reply(text="Three.")])
    async with chat(server, tmp_path, "--plain") as terminal:
        for line, answer in [
            ("/help", "/compact"),
            ("/agent", "plan"),
            ("/agent", "build answers."),
            ("/agent plan", "plan answers from now on"),
            ("/agent", "plan answers."),
            ("/agent missing", "missing"),
            ("/model", "gpt-4o-mini"),
            ("/tools", "read"),
            ("/nonsense", "There is no /nonsense"),
            ("/compact", "nothing worth"),
            ("first", "One."),
            ("second", "Two."),
            ("/undo", "Taken back: second"),
            ("/context", "tokens"),
            ("/cost", "30 tokens"),
            ("/fork", "This goes on in a copy"),
            ("/sessions", "* 1"),
            ("/plan", "build answers again"),
            ("/plan", "plan answers:"),
            ("/sesion", "Did you mean /session"),
            ("/session", "Session ses_"),
            ("//third\\", "… "),
            ("line", "Three."),
            ("/new", "begins a new session"),
        ]:
            await terminal.sees(">" if line != "line" else "")
            terminal.enter(line)
            await terminal.sees(answer)
        await terminal.sees(">")
        terminal.enter("/exit")
        assert await terminal.ends() == 0
    sent = [m for m in server.requests[-1].json["messages"] if m["role"] == "user"]
    assert [m["content"] for m in sent] == ["first", "/third\nline"]


PASTE = "\x1b[200~def f():\n    return 1\n\nprint(f())\x1b[201~"


@pytest.mark.parametrize("words", [(), ("--plain",)], ids=["toolkit", "readline"])
async def test_a_paste_is_one_message(
    server: FakeServer, tmp_path: Path, words: tuple[str, ...]
) -> None:
    server.answers.append(Reply(text="Seen."))
    async with chat(server, tmp_path, *words) as terminal:
        await terminal.sees(">")
        if words:  # as a terminal without bracketed paste sends it
            terminal.type("def f():\r    return 1\r\rprint(f())\r")
        else:
            terminal.type(PASTE + "\r")
        await terminal.sees("Seen.")
        await terminal.sees(">")
        terminal.type("\x04")
        assert await terminal.ends() == 0
    [sent] = [m for m in server.requests[-1].json["messages"] if m["role"] == "user"]
    assert sent["content"] == "def f():\n    return 1\n\nprint(f())"


async def test_keys_begin_another_line_and_open_the_editor(
    server: FakeServer, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf " and edited" >> "$1"\n')
    editor.chmod(0o755)
    server.answers.append(Reply(text="Seen."))
    around_it = around(server, tmp_path) | {"EDITOR": str(editor)}
    async with Terminal(
        "-m", "holdfast", "chat", "--model", MODEL, home=tmp_path, environment=around_it
    ) as terminal:
        await terminal.sees(">")
        terminal.type("one\x1b\rtwo\\\rthree")
        terminal.type("\x07")
        await terminal.sees("and edited")
        terminal.type("\r")
        await terminal.sees("Seen.")
        await terminal.sees(">")
        terminal.type("\x04")
        assert await terminal.ends() == 0
    [sent] = [m for m in server.requests[-1].json["messages"] if m["role"] == "user"]
    assert sent["content"] == "one\ntwo\nthree and edited"


async def test_continue_means_this_folder_and_shows_what_was_said(
    server: FakeServer, tmp_path: Path
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    server.answers.extend([Reply(text="In here."), Reply(text="Over there."), Reply(text="Back.")])
    state = around(server, tmp_path)

    def sit_in(place: Path, *words: str) -> Terminal:
        return Terminal(
            "-m", "holdfast", "chat", "--model", MODEL, *words,
            home=tmp_path, environment=state | {"AGENT_WORKSPACE": str(place)},
        )  # fmt: skip

    async with sit_in(here) as terminal:
        await terminal.sees(">")
        terminal.enter("Where am I?")
        await terminal.sees("In here.")
        await terminal.sees("completed in")
        await terminal.sees(">")
        terminal.type("\x04")
        await terminal.ends()
    # The newest session is of another folder: it is not taken, and nothing is written to it.
    async with sit_in(there, "--continue") as terminal:
        await terminal.sees("no session of this folder")
        await terminal.sees(">")
        terminal.enter("And now?")
        await terminal.sees("Over there.")
        await terminal.sees("completed in")
        await terminal.sees(">")
        terminal.type("\x04")
        await terminal.ends()
    async with sit_in(here, "--continue") as terminal:
        await terminal.sees("> Where am I?")
        await terminal.sees("In here.")
        await terminal.sees(">")
        terminal.enter("Still?")
        await terminal.sees("Back.")
        await terminal.sees(">")
        terminal.type("\x04")
        await terminal.ends()
    sent = [m["content"] for m in server.requests[-1].json["messages"] if m["role"] == "user"]
    assert sent == ["Where am I?", "Still?"]


async def test_commands_and_changes_are_shown_before_and_after(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("old line\n")
    server.answers.extend(
        [
            call("bash", command="rm -rf build && echo gone", description="clean"),
            call("edit", file_path="a.txt", old_string="old line", new_string="new line"),
            Reply(text="Done."),
        ]
    )
    async with chat(server, tmp_path, "--auto-confirm") as terminal:
        await terminal.sees(">")
        terminal.enter("Clean up")
        await terminal.sees("● bash $ rm -rf build && echo gone")
        await terminal.sees("✓ bash $ rm -rf build && echo gone")
        await terminal.sees("gone")
        await terminal.sees("● edit a.txt")
        await terminal.sees("-old line")
        await terminal.sees("+new line")
        await terminal.sees("✓ edit a.txt +1 -1")
        await terminal.sees("Done.")
        # The status line below the prompt.
        await terminal.sees("build · openai:gpt-4o-mini · context")
        await terminal.sees("sandbox")
        terminal.type("\x04")
        assert await terminal.ends() == 0


async def test_undo_takes_back_the_message_and_its_files(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("old\n")
    server.answers.extend(
        [
            call("write", file_path="a.txt", content="new\n"),
            Reply(text="Written."),
            Reply(text="Fine."),
        ]
    )
    async with chat(server, tmp_path, "--auto-confirm") as terminal:
        await terminal.sees(">")
        terminal.enter("Write @a.txt anew")
        await terminal.sees("✓ read a.txt")
        await terminal.sees("Written.")
        await terminal.sees("completed in")
        assert (tmp_path / "a.txt").read_text() == "new\n"
        await terminal.sees(">")
        terminal.enter("/undo")
        await terminal.sees("Taken back: Write @a.txt anew")
        await terminal.sees("restored a.txt")
        assert (tmp_path / "a.txt").read_text() == "old\n"
        await terminal.sees(">")
        terminal.enter("Go on")
        await terminal.sees("Fine.")
        await terminal.sees(">")
        terminal.type("\x04")
        assert await terminal.ends() == 0
    sent = server.requests[-1].json["messages"]
    assert [m["content"] for m in sent if m["role"] == "user"] == ["Go on"]


async def test_files_pictures_and_commands_of_the_person_reach_the_model(
    server: FakeServer, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("the code is 4711\n")
    (tmp_path / "dot.png").write_bytes(PNG)
    server.answers.extend([Reply(text="One."), Reply(text="Two.")])
    async with chat(server, tmp_path) as terminal:
        await terminal.sees(">")
        terminal.enter("!echo from the shell")
        await terminal.sees("\nfrom the shell")
        await terminal.sees(">")
        # The name is completed while one types.
        terminal.type("See @not")
        await terminal.sees("@notes.txt")
        terminal.type("\t")
        terminal.type(" mail a@b.de @nosuch.txt\r")
        await terminal.sees("✓ read notes.txt")
        await terminal.sees("@nosuch.txt: no such file here")
        await terminal.sees("One.")
        await terminal.sees(">")
        terminal.enter("/image dot.png What is it?")
        await terminal.sees("✓ read dot.png")
        await terminal.sees("Two.")
        await terminal.sees(">")
        terminal.type("\x04")
        assert await terminal.ends() == 0
    first, second = server.requests[-2].body.decode(), server.requests[-1].body.decode()
    assert "from the shell" in first
    assert "the code is 4711" in first
    assert "image/png" in second
    assert "What is it?" in second


async def test_a_command_of_the_person_passes_the_gate(server: FakeServer, tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "tools.yaml").write_text("rules: [{permission: bash, action: deny}]\n")
    async with chat(server, tmp_path) as terminal:
        await terminal.sees(">")
        terminal.enter("!touch made.txt")
        await terminal.sees("is not allowed")
        await terminal.sees(">")
        terminal.type("\x04")
        assert await terminal.ends() == 0
    assert not (tmp_path / "made.txt").exists()


async def test_history_is_kept_without_secrets(server: FakeServer, tmp_path: Path) -> None:
    server.answers.extend([Reply(text="One."), Reply(text="Two.")])
    async with chat(server, tmp_path, "--plain") as terminal:
        await terminal.sees(">")
        terminal.enter(f"my key is {KEY}")
        await terminal.sees("One.")
        await terminal.sees(">")
        terminal.type("\x04")
        await terminal.ends()
    kept = tmp_path / "state" / "chat_history"
    assert KEY not in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0
    async with chat(server, tmp_path, "--plain", "-c") as terminal:
        await terminal.sees(">")
        terminal.type("\x1b[A")
        await terminal.sees("my key is")
        await terminal.sees(">")
        terminal.type("\x04")


async def test_a_failing_turn_is_told_and_the_chat_goes_on(
    server: FakeServer, tmp_path: Path
) -> None:
    server.answers.extend([Failure(status=401), Reply(text="Better.")])
    async with chat(server, tmp_path) as terminal:
        await terminal.sees(">")
        terminal.enter("Hello")
        await terminal.sees("llm.auth")
        await terminal.sees(">")
        terminal.enter("And now?")
        await terminal.sees("Better.")
        await terminal.sees(">")
        terminal.type("\x04")
        assert await terminal.ends() == 0


async def test_an_agent_that_asks_gets_its_answer_in_the_chat(
    server: FakeServer, tmp_path: Path
) -> None:
    asked = call("question", questions=[{"question": "Which colour?"}])
    server.answers.extend([asked, Reply(text="Blue it is.")])
    async with chat(server, tmp_path) as terminal:
        await terminal.sees(">")
        terminal.enter("Paint it")
        await terminal.sees("Which colour?")
        await terminal.sees("question asks")
        terminal.enter("blue")
        await terminal.sees("Blue it is.")
        await terminal.sees(">")
        terminal.type("\x04")
        assert await terminal.ends() == 0
    assert "blue" in server.requests[-1].body.decode()


async def scripted(
    server: FakeServer, home: Path, said: str, *words: str
) -> tuple[int, list[str], str]:
    """Hand lines to a chat without a terminal; returns exit code, output lines and errors."""
    kept = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": str(SOURCE)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", "chat", "--model", MODEL, *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=kept | around(server, home),
        cwd=home,
    )  # fmt: skip
    async with asyncio.timeout(60):
        out, err = await process.communicate(said.encode())
    assert process.returncode is not None
    return process.returncode, out.decode().splitlines(), err.decode()


async def test_without_a_terminal_each_line_is_a_turn(server: FakeServer, tmp_path: Path) -> None:
    server.answers.extend([Reply(text="One."), Reply(text="Two.")])
    code, lines, _ = await scripted(server, tmp_path, "first\n\n/cost\nsecond\n")
    assert (code, lines) == (0, ["One.", "15 tokens, $0.0000 in this chat.", "Two."])


@pytest.mark.parametrize("form", ["json", "stream-json"])
async def test_programs_get_one_json_line_per_turn(
    server: FakeServer, tmp_path: Path, form: str
) -> None:
    server.answers.extend([Reply(text="One."), Reply(text="Two.")])
    code, lines, _ = await scripted(server, tmp_path, "first\nsecond\n", "-o", form)
    told = [json.loads(line) for line in lines]
    results = [line["data"] for line in told if line["type"] == "AgentResult"]
    assert (code, [result["response"] for result in results]) == (0, ["One.", "Two."])
    assert len({result["session_id"] for result in results}) == 1
    assert any(line["type"] == "TextDelta" for line in told) == (form == "stream-json")


async def test_the_first_turn_that_fails_ends_a_script(server: FakeServer, tmp_path: Path) -> None:
    server.answers.extend([Reply(text="One."), Failure(status=401), Reply(text="never")])
    code, lines, errors = await scripted(server, tmp_path, "first\nsecond\nthird\n")
    assert (code, lines) == (4, ["One."])
    assert "llm.auth" in errors
    assert len(server.requests) == 2


async def test_a_session_goes_on_by_its_id(server: FakeServer, tmp_path: Path) -> None:
    server.answers.extend([Reply(text="One."), Reply(text="Two.")])
    _, [line], _ = await scripted(server, tmp_path, "first\n", "--json")
    session = json.loads(line)["data"]["session_id"]
    code, _, _ = await scripted(server, tmp_path, "second\n", "--session", session)
    assert code == 0
    sent = [m["content"] for m in server.requests[-1].json["messages"] if m["role"] == "user"]
    assert sent == ["first", "second"]
