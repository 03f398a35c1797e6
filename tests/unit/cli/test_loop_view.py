"""What a loop shows: harmless, bounded, and the same live and replayed."""

from __future__ import annotations

import io

import pytest

from holdfast.cli.frame import Invocation
from holdfast.cli.loop_view import LinesView, LiveView, choose_view, list_lines, to_line
from holdfast.messages import ToolPart
from holdfast.orchestration.loop import LoopLimits, LoopNews, Plan, PlannedStep
from holdfast.orchestration.loop import events as facts


def plan(count: int, title: str = "a step") -> Plan:
    steps = [PlannedStep(id=f"s{n}", title=title, instruction="do") for n in range(count)]
    return Plan(steps=tuple(steps))


def news(fact) -> LoopNews:
    return LoopNews.of_fact(fact, time=1.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_text_of_a_model_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    view = LinesView(Invocation())
    view.hear(news(facts.LoopBegan(goal="\x1b[2Jgone\r\nx", limits=LoopLimits())))
    view.hear(news(facts.PlanCreated(plan=plan(1, "\x1b]0;title\x07"))))
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert "\\u001b" in shown


def test_a_terminal_shows_what_has_a_colour_and_what_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    view = LinesView(Invocation(), err=False)
    view.hear(news(facts.LoopBegan(goal="paint", limits=LoopLimits())))
    view.hear(news(facts.PlanCreated(plan=plan(2))))
    view.hear(news(facts.StepStarted(step_id="s1", attempt=1, session_id="x", run_id="y")))
    assert "goal: paint" in screen.getvalue()
    assert "a step" in screen.getvalue()


def test_a_plan_of_a_thousand_steps_takes_a_bounded_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert len(list_lines(news(facts.PlanCreated(plan=plan(1_000))))) < 40
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    view = LiveView(Invocation(no_color=True))
    view.hear(news(facts.PlanCreated(plan=plan(1_000))))
    view.hear(news(facts.StepStarted(step_id="s500", attempt=1, session_id="x", run_id="y")))
    view.close()
    assert "0/1000 steps" in screen.getvalue()
    assert screen.getvalue().count("a step") < 200


def test_only_a_terminal_gets_a_living_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose_view(Invocation()), LinesView)
    assert not isinstance(choose_view(Invocation(output="json")), LinesView)
    monkeypatch.setattr("sys.stderr", Terminal())
    view = choose_view(Invocation())
    assert isinstance(view, LiveView)
    view.close()


def test_calls_and_facts_become_lines_of_json() -> None:
    part = ToolPart(call_id="c", tool="read", input={"path": "x"}, state="completed")
    line = to_line(LoopNews(time=1.0, role="executor", step_id="s1", heard=part))
    assert line is not None and (line["type"], line["step_id"]) == ("tool", "s1")
    fact = to_line(news(facts.StepEnded(step_id="s1", status="done")))
    assert fact == {"type": "step.ended", "time": 1.0, "data": {"step_id": "s1", "status": "done"}}
