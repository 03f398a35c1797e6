"""`holdfast run --park` and `holdfast approvals`, over real HTTP, as a person uses them."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast import Agent, AsyncClient, tool
from holdfast.cli.app import root
from holdfast.sessions import PermissionRule
from holdfast.testing import ScriptedModel, tool_call
from holdfast.testing.fake_server import FakeServer, Reply, ScriptedCall
from holdfast.tools import Parked


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    (place / "a.txt").write_text("old\n")
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AGENT_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test-0123456789")
    monkeypatch.setenv("AGENT_MODEL", "openai:gpt-4o-mini")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    return place


async def holdfast(*words: str, code: int = 0) -> Result:
    ended = await asyncio.to_thread(CliRunner().invoke, root, list(words))
    assert ended.exit_code == code, ended.output
    return ended


async def strict_session() -> str:
    """A session in which every `write` asks; the built-in agent allows it otherwise."""
    async with AsyncClient() as client:
        rule = PermissionRule(permission="write", action="ask")
        return (await client.create_session("strict", permission=[rule])).id


def write(path: str, content: str) -> Reply:
    arguments = json.dumps({"file_path": path, "content": content})
    return Reply(calls=(ScriptedCall(name="write", arguments=arguments),))


async def test_parked_run_ends_with_code_5_and_says_how_to_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [write("a.txt", "new\n"), write("b.txt", "second\n"), Reply(text="Both written.")]
    async with FakeServer(answers) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        session = await strict_session()
        parked = await holdfast("run", "--park", "--session", session, "write", "it", code=5)
        assert (folder / "a.txt").read_text() == "old\n"
        said = re.search(r"holdfast (approvals approve apr_\w+)", parked.stderr)
        then = re.search(r"holdfast (run --run-id \w+)", parked.stderr)
        assert said is not None and then is not None
        shown = await holdfast("approvals", "show", said[1].split()[-1])
        assert "-old" in shown.stdout and "+new" in shown.stdout
        await holdfast(*said[1].split())
        # The second call asks as well: whoever resumes a parked run, it parks again.
        await holdfast(*then[1].split(), code=5)
        assert (folder / "a.txt").read_text() == "new\n"
        [waiting] = json.loads((await holdfast("approvals", "list", "--json")).stdout)
        await holdfast("approvals", "approve", waiting["id"], "--always")
        done = await holdfast(*then[1].split())
    assert "Both written." in done.stdout
    assert (folder / "b.txt").read_text() == "second\n"
    assert "Nothing waits" in (await holdfast("approvals", "list")).stdout


async def test_without_park_an_ask_is_refused_and_auto_confirm_answers_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [write("a.txt", "new\n"), Reply(text="no"), write("a.txt", "new\n"), Reply(text="ok")]
    async with FakeServer(answers) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        session = await strict_session()
        await holdfast("run", "--session", session, "write it")
        assert (folder / "a.txt").read_text() == "old\n"
        await holdfast("run", "--auto-confirm", "--session", session, "write it")
        assert (folder / "a.txt").read_text() == "new\n"


async def test_run_without_a_goal_or_a_known_run_is_a_mistake(folder: Path) -> None:
    await holdfast("run", code=2)
    await holdfast("run", "--run-id", "nothing", code=2)
    await holdfast("approvals", "show", "call_unknown", code=2)


async def test_question_and_unknown_outcome_are_answered_from_the_same_inbox(folder: Path) -> None:
    @tool(effect="read")
    async def ask_person() -> Parked:
        """Ask."""
        return Parked(reason="question", request={"question": "Which one?"})

    model = ScriptedModel(tool_call("ask_person"), "thanks")
    agent = Agent("asker", model=model, tools=[ask_person])
    async with AsyncClient() as client:
        assert (await agent.run("go", run_id="job", client=client)).status == "parked"
        [waiting] = json.loads((await holdfast("approvals", "list", "--json")).stdout)
        assert waiting["waits for"] == "question"
        shown = await holdfast("approvals", "show", waiting["id"])
        assert "Which one?" in shown.stdout
        await holdfast("approvals", "decide", waiting["id"], "not-happened", code=2)
        await holdfast("approvals", "answer", waiting["id"], "the", "left", "one")
        assert (await agent.run("go", run_id="job", client=client)).response == "thanks"
    assert model.requests[1].messages[-1].tool_calls[0].output == "the left one"


async def test_parked_run_goes_on_with_the_model_that_it_began_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [write("a.txt", "new\n"), Reply(text="Written.")]
    async with FakeServer(answers) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        session = await strict_session()
        words = ("--run-id", "job", "--model", "openai:gpt-5.2", "--session", session)
        await holdfast("run", "--park", *words, "write it", code=5)
        [waiting] = json.loads((await holdfast("approvals", "list", "--json")).stdout)
        await holdfast("approvals", "approve", waiting["id"])
        done = await holdfast("run", "--run-id", "job")
        asked = [request.json["model"] for request in server.requests if request.json]
        assert asked == ["gpt-5.2", "gpt-5.2"]
        assert "gpt-5.2" in done.stderr
        again = await holdfast("run", "--run-id", "job")
    # The same run again gives the same answer, and asks nobody.
    assert (done.stdout, again.stdout) == ("Written.\n", "Written.\n")


async def test_turn_behind_a_parked_run_says_what_it_waits_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeServer([write("a.txt", "new\n"), Reply(text="next")]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        session = await strict_session()
        words = ("--run-id", "first", "--session", session)
        await holdfast("run", "--park", *words, "write it", code=5)
        async with AsyncClient() as client:
            after = await (await client.storage.journal()).read_last_seq()
            behind = asyncio.create_task(holdfast("run", "--session", session, "hello"))
            async for event in client.events.watch(after=after, patterns=["run.queued"]):
                assert event.session_id == session
                break
            await client.runs.cancel("first")
            ended = await behind
    assert "holdfast runs cancel first" in ended.stderr
    assert "holdfast approvals approve" in ended.stderr
    assert ended.stdout == "next\n"
