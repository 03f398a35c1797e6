"""A question goes to whoever attends the run; without anybody, the run waits without memory."""

from __future__ import annotations

import asyncio
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient, toolset
from holdfast.testing import ModelReply, ScriptedModel, tool_call

ROOT = Path(__file__).parents[3]
ASKED = [
    {"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]},
    {"question": "Why?"},
]


class Ada:
    def __init__(self, answers):
        self.answers = answers
        self.heard = []

    async def ask(self, questions):
        self.heard += questions
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers


def painter() -> Agent:
    model = ScriptedModel(ModelReply(calls=(tool_call("question", questions=ASKED),)), "thanks")
    rule = {"permission": "question", "pattern": "*", "action": "allow"}
    return Agent("painter", model=model, permission=[rule])


async def test_whoever_attends_answers_while_the_run_goes_on(tmp_path):
    async with AsyncClient(tmp_path) as client:
        client.attendant = ada = Ada((("blue",), ("calm",)))
        result = await painter().run("paint", client=client)
        [call] = await client.get_execution_history(result.session_id)
    assert result.status == "completed"
    assert [one.question for one in ada.heard] == ["Which colour?", "Why?"]
    assert call.output == "Which colour?\n  blue\nWhy?\n  calm"
    assert call.metadata["answers"] == [["blue"], ["calm"]]


async def test_a_run_that_nobody_attends_waits_and_goes_on_with_the_answer(tmp_path):
    async with AsyncClient(tmp_path) as client:
        result = await painter().run("paint", client=client)
        assert (result.status, result.metadata["reason"]) == ("parked", "question")
    async with AsyncClient(tmp_path) as client:
        [question] = await client.approvals.questions()
        assert question.reason == "question"
        assert question.request["questions"][0]["question"] == "Which colour?"
        await client.approvals.answer(question.session_id, question.call_id, "blue", by="ada")
        agent = Agent("painter", model=ScriptedModel("thanks"), tools=toolset("question"))
        again = await agent.run("", run_id=result.run_id, client=client)
        assert again.status == "completed"
        [call] = await client.get_execution_history(result.session_id)
        assert (call.state, call.output) == ("completed", "blue")


@pytest.mark.parametrize("answers", [(("blue",),), RuntimeError("gone")], ids=["one", "fails"])
async def test_an_attendant_that_answers_badly_is_a_failure_of_the_call_only(tmp_path, answers):
    async with AsyncClient(tmp_path) as client:
        client.attendant = Ada(answers)
        result = await painter().run("paint", client=client)
        [call] = await client.get_execution_history(result.session_id)
    assert (result.status, call.state) == ("completed", "error")


PROGRAM = """
import asyncio, sys
from holdfast import ask_in_terminal
from holdfast.tools.services import Option, Question
options = (Option(label="red"), Option(label="blue", description="\\x1b[2Jcalm"))
asked = [
    Question(question="Which?", header="Colour", options=options),
    Question(question="Which?", options=options, is_multiple=True),
    Question(question="Which?", options=options),
    Question(question="Why?"),
    Question(question="Why not?"),
]
print("ANSWERS", asyncio.run(ask_in_terminal.ask(asked)))
print("GONE", asyncio.run(ask_in_terminal.ask(asked)))
"""


def test_the_person_at_the_terminal_chooses_by_number_or_answers_in_words(tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(theirs)
    os.write(ours, b"2\n1, 2\ngreen\nbecause\n\n\x04")
    said, shown = process.communicate(timeout=60)
    os.close(ours)
    assert "ANSWERS (('blue',), ('red', 'blue'), ('green',), ('because',), ())" in said
    assert "GONE None" in said
    assert "2. blue" in shown
    assert "\x1b[2J" not in shown


async def test_a_question_at_the_command_line_without_a_terminal_parks(tmp_path):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast",
        "tools",
        "run",
        "question",
        "--auto-confirm",
        "--args",
        '{"questions": [{"question": "Which colour?"}]}',
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "AGENT_STATE_DIR": str(tmp_path / "state"),
            "HOME": str(tmp_path),
        },
        cwd=tmp_path,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, shown = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 5, shown
    assert b"question" in shown
