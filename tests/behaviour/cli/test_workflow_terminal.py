"""`holdfast workflows run` at a real terminal: steps as they end, and the question in between."""

from __future__ import annotations

from pathlib import Path

from terminal import Terminal

from holdfast import AsyncClient

FLOW = """name: letter
steps:
  - id: count
    loop: {times: 2}
    steps:
      - {id: n, value: "${loop.index}"}
  - id: keep
    tool: write
    with: {file_path: a.txt, content: hello}
result: all done
"""


async def test_steps_are_shown_and_a_call_that_asks_is_put_before_the_person(
    tmp_path: Path,
) -> None:
    (tmp_path / "letter.yaml").write_text(FLOW)
    environment = {"AGENT_STATE_DIR": str(tmp_path / "state"), "AGENT_WORKSPACE": str(tmp_path)}
    words = ("-m", "holdfast", "workflows", "run", "letter.yaml", "--run-id", "job")
    async with Terminal(*words, home=tmp_path, environment=environment) as terminal:
        await terminal.sees("✓ count[1]/n")
        await terminal.sees("✓ count")
        await terminal.sees("write")
        await terminal.sees("a.txt")
        terminal.enter("y")
        await terminal.sees("✓ keep")
        await terminal.sees("completed in")
        await terminal.sees("all done")
        assert await terminal.ends() == 0
        assert "\\u001b" not in terminal.screen
    assert (tmp_path / "a.txt").read_text() == "hello"


async def test_who_stays_sees_what_waits_and_then_how_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "letter.yaml").write_text(FLOW)
    state = tmp_path / "state"
    environment = {"AGENT_STATE_DIR": str(state), "AGENT_WORKSPACE": str(tmp_path)}
    words = ("-m", "holdfast", "workflows", "run", "letter.yaml", "--park", "--stay")
    async with Terminal(*words, home=tmp_path, environment=environment) as terminal:
        await terminal.sees("write waits. Answer: holdfast approvals approve")
        await terminal.sees("It goes on as soon as an approver has answered.")
        assert not (tmp_path / "a.txt").exists()
        async with AsyncClient(state) as client:
            [question] = await client.approvals.questions()
            await client.approvals.approve(question.id, by="ann")
        await terminal.sees("✓ keep")
        await terminal.sees("all done")
        assert await terminal.ends() == 0
        assert "Then go on:" not in terminal.screen
    assert (tmp_path / "a.txt").read_text() == "hello"
