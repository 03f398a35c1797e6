"""Lines of the log follow from what is stored: each decision, its ids, no content unasked."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Agent, AsyncClient, tool
from holdfast.errors import HoldfastError
from holdfast.journal import list_known_kinds
from holdfast.observability import Logger, bind_log_fields, configure_logs, make_trace_id
from holdfast.runtime import Runtime
from holdfast.runtime.load_watch import LoadWatch
from holdfast.runtime.log_lines import LEVELS
from holdfast.settings import Settings, load_settings
from holdfast.testing import ScriptedModel, tool_call

QUESTION = "the words of the person who asks"


@tool(effect="read")
async def look_up(word: str) -> str:
    """Look a word up."""
    if word == "nothing":
        raise HoldfastError
    return f"what {word} means"


def make_settings(tmp_path: Path, **chosen: object) -> Settings:
    overrides = {
        "storage.url": "memory://",
        "storage.state_dir": str(tmp_path / "state"),
        "workspace": str(tmp_path),
        "log.format": "json",
        **{name.replace("__", "."): value for name, value in chosen.items()},
    }
    return load_settings(overrides=overrides).settings


class Log:
    """The log of this process, as programs read it."""

    def __init__(self, settings: Settings, **options: Any) -> None:
        self.stream = io.StringIO()
        self.restore = configure_logs(settings, stream=self.stream, **options)

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def actions(self) -> list[str]:
        return [line["message"] for line in self.read()]


@pytest.fixture
def open_log() -> Iterator[Callable[..., Log]]:
    made: list[Log] = []

    def start(settings: Settings, **options: Any) -> Log:
        made.append(Log(settings, **options))
        return made[-1]

    yield start
    for one in reversed(made):
        one.restore()


def make_agent(*steps: Any, tools: tuple[Any, ...] = (look_up,)) -> Agent:
    return Agent("helper", model=ScriptedModel(*steps), tools=list(tools))


async def run(settings: Settings, agent: Agent) -> str:
    async with AsyncClient(settings=settings) as client:
        result = await client.runs.execute(agent, "", QUESTION)
        return result.run_id


async def test_run_at_info_is_told_from_its_start_to_its_end(
    tmp_path: Path, open_log: Callable[..., Log]
) -> None:
    settings = make_settings(tmp_path, log__level="info")
    log = open_log(settings)
    agent = make_agent([tool_call("look_up", word="moss")], "done")
    with bind_log_fields(request_id="req_1"):
        run_id = await run(settings, agent)
    lines = [line for line in log.read() if line.get("holdfast.run.id") == run_id]
    assert [line["event.action"] for line in lines] == [
        "run.started",
        "model.called",
        "tool.called",
        "model.called",
        "run.completed",
    ]
    for line in lines:
        assert line["organization.id"] == "default"
        assert line["trace.id"] == make_trace_id(run_id).hex()
        assert line["http.request.id"] == "req_1"
        assert line["holdfast.session.id"].startswith("ses_")
        assert line["gen_ai.agent.name"] == "helper"
    assert lines[2]["gen_ai.tool.name"] == "look_up"
    assert lines[2]["event.outcome"] == "success"
    assert lines[-1]["holdfast.model_calls"] == 2
    assert lines[-1]["holdfast.tool_calls"] == 1
    assert lines[-1]["event.duration"] >= 0


async def test_no_text_of_the_conversation_is_logged_unless_asked(
    tmp_path: Path, open_log: Callable[..., Log]
) -> None:
    steps = ([tool_call("look_up", word="moss")], "the words of the model")
    quiet = make_settings(tmp_path, log__level="debug")
    log = open_log(quiet)
    await run(quiet, make_agent(*steps))
    assert "run.queued" in log.actions()
    for text in (QUESTION, "moss", "the words of the model"):
        assert text not in log.stream.getvalue()
    told = make_settings(tmp_path, log__level="info", log__content=True)
    log = open_log(told)
    await run(told, make_agent(*steps))
    assert "the words of the model" in log.stream.getvalue()
    assert "what moss means" in log.stream.getvalue()


async def test_failure_of_a_run_names_its_cause_at_the_default_level(
    tmp_path: Path, open_log: Callable[..., Log]
) -> None:
    settings = make_settings(tmp_path)
    log = open_log(settings)
    await run(settings, make_agent())  # a model with nothing to say
    [line] = log.read()
    assert (line["event.action"], line["log.level"]) == ("run.failed", "error")
    assert line["error.code"]
    assert line["error.message"]


async def test_denial_says_which_rule_and_which_target(
    tmp_path: Path, open_log: Callable[..., Log]
) -> None:
    settings = make_settings(tmp_path, log__level="info")
    log = open_log(settings)
    agent = Agent(
        "helper",
        model=ScriptedModel([tool_call("look_up", word="moss")], "done"),
        tools=[look_up],
        permission=[{"permission": "look_up", "pattern": "*", "action": "deny"}],
    )
    await run(settings, agent)
    [denied] = [line for line in log.read() if line["message"] == "permission.denied"]
    assert denied["gen_ai.tool.name"] == "look_up"
    assert "deny" in denied["event.reason"]


async def test_application_without_a_log_gets_no_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    root = logging.getLogger()
    kept, root.handlers = root.handlers, []
    try:
        await run(make_settings(tmp_path), make_agent())
    finally:
        root.handlers = kept
    assert capfd.readouterr().err == ""


async def test_commands_that_show_runs_keep_them_out_of_the_log(
    tmp_path: Path, open_log: Callable[..., Log]
) -> None:
    settings = make_settings(tmp_path)
    log = open_log(settings, has_events=False)
    await run(settings, make_agent())
    assert log.read() == []


async def test_value_cannot_forge_a_line(tmp_path: Path, open_log: Callable[..., Log]) -> None:
    settings = make_settings(tmp_path, log__format="text")
    log = open_log(settings)
    Logger("holdfast.test").warning("seen", reason="a\n2026-01-01 ERROR run.failed \x1b[2J\u202e")
    assert len(log.stream.getvalue().splitlines()) == 1
    assert "\x1b" not in log.stream.getvalue()


async def test_json_line_holds_whatever_characters_there_are(
    tmp_path: Path, open_log: Callable[..., Log]
) -> None:
    settings = make_settings(tmp_path)
    log = open_log(settings)
    odd = {"reason": "\u202e\x9b half \ud800", "huge": 10**30, "mixed": {(1, 2): object()}}
    Logger("holdfast.test").warning("seen", **odd)
    [line] = log.read()
    assert line["message"] == "seen"
    assert "\u202e" not in log.stream.getvalue()


async def test_slow_store_is_told_with_what_it_wrote(
    tmp_path: Path, open_log: Callable[..., Log]
) -> None:
    settings = make_settings(tmp_path, log__slow_store_s=1e-9)
    log = open_log(settings)
    runtime = Runtime(settings)
    try:
        await (await runtime.opened()).sessions.create_session("one")
    finally:
        await runtime.close()
    slow = [line for line in log.read() if line["message"] == "storage.slow"]
    assert any("session.created" in line["holdfast.kinds"] for line in slow)


async def test_queue_that_grows_is_told_once_per_doubling(
    tmp_path: Path, open_log: Callable[..., Log]
) -> None:
    settings = make_settings(tmp_path, log__level="info", log__long_queue=2)
    log = open_log(settings)
    runtime = Runtime(settings)
    try:
        opened = await runtime.opened()
        session = await opened.sessions.create_session("one")
        watch = LoadWatch(settings, opened.journal, opened.tenant)
        seen = []
        for count in range(1, 6):
            await opened.turns.submit(session.id, agent="nobody")
            assert await watch.look() == count
            seen.append(log.actions().count("queue.grows"))
        assert seen == [0, 1, 1, 2, 2]
    finally:
        await runtime.close()


def test_levels_are_of_kinds_that_exist() -> None:
    assert set(LEVELS) <= set(list_known_kinds())
