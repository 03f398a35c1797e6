"""A person asks for a plan: it is sound, it names what is there, and it says who made it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from offline_kit import FILE_TOOLS, Drive, ask, folder_tools, spec, user

from holdfast.orchestration.loop.plan import DraftPlan, find_problems, to_plan
from holdfast.providers.model import ModelRequest
from holdfast.providers.offline.intent import read_intent
from holdfast.providers.offline.listing import Listing, read_listing
from holdfast.providers.offline.outline import Seen, outline, split_parts
from holdfast.providers.offline.plan_request import find_planned_goal


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "boiler.py").write_text("class HeatSource:\n    pass\n")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "kettle"\n[tool.pytest.ini_options]\n[tool.ruff]\n'
    )
    return tmp_path


def titles(markdown: str) -> list[str]:
    return re.findall(r"^\d+\. \*\*(.*?)\.\*\*", markdown, re.MULTILINE)


@pytest.mark.parametrize(
    ("said", "goal"),
    [
        ("Make a plan to add a README", "add a README"),
        ("Plan how to add a README", "add a README"),
        ("Write a plan for adding a README", "adding a README"),
        ("What steps would you take to add a README?", "add a README"),
        ("Please could you make me a short step-by-step plan to add a README!", "add a README"),
        ("I need a plan to add a README", "add a README"),
        ("I'd like you to draft a plan on how to add a README.", "add a README"),
        ("Hello, outline the steps needed to add a README", "add a README"),
        ("How would you add a README?", "add a README"),
        ("What is your plan to add a README?", "add a README"),
        ("Look at the code and make a plan to add a README", "add a README"),
        ("The plan failed, make a plan to add a README", "add a README"),
        ("MAKE A PLAN TO ADD A README", "ADD A README"),
        ("Plan: add a README", "add a README"),
        ("This project has no README. Make a plan.", "This project has no README"),
        ("Break adding a README down into steps", "adding a README"),
        ("Plan the move to SQLite", "the move to SQLite"),
        ("Make a plan", ""),
        ("Make a plan to ...", ""),
    ],
)
def test_a_request_for_a_plan_is_recognised_with_its_goal(said: str, goal: str) -> None:
    assert find_planned_goal(said) == goal
    assert read_intent(said).kind == "plan"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("The plan failed, describe this workspace", "workspace"),
        ("The plan for today is to describe this workspace", "workspace"),
        ("Our plans changed; describe this workspace", "workspace"),
        ("Don't make a plan to fix it, describe this workspace", "workspace"),
        ("How would you describe this workspace?", "workspace"),
        ("Planning is hard. Describe this workspace", "workspace"),
        ("explain plan.md", "read"),
        ("Read docs/plan.md", "read"),
        ("Where is Plan defined?", "search"),
        ("Search for 'make a plan to win'", "search"),
        ("Write the plan to plan.md", "unknown"),
        ("Make the plan fail", "unknown"),
        ("Create a class Plan for the scheduler", "unknown"),
        ("Make a README that contains the plan for us", "unknown"),
        ("What is the plan?", "unknown"),
        ("What steps does ci.yml have?", "unknown"),
        ("Mach einen Plan, um eine README anzulegen", "unknown"),
        ("请制定一个计划", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_sentence_that_only_has_the_word_is_no_request_for_a_plan(said: str, kind: str) -> None:
    assert read_intent(said).kind == kind


GOALS = [
    "add a README",
    "fix the crash in src/boiler.py and write tests, then release it",
    "migrate HeatSource to asyncio",
    "remove `HeatSource`",
    "review the code",
    "plan a birthday party",
    "eine README anlegen",
    "制定一个计划 🙂",
    "add ../../etc/passwd and ~/x.py",
    "{0} {goal} %s `code` <b>",
    "x" * 50_000,
    "\n".join(f"- add part {number}" for number in range(500)),
]


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal[:20])
async def test_both_forms_are_one_plan_that_the_loop_finds_sound(project: Path, goal: str) -> None:
    said = f"Make a plan to {goal}"
    markdown = (await Drive(folder_tools(project), FILE_TOOLS).answer(said)).text
    drive = Drive(folder_tools(project), FILE_TOOLS)
    form = (await drive.answer(said, output_schema=DraftPlan.model_json_schema())).text
    draft = DraftPlan.model_validate_json(form)
    assert find_problems(draft) == []
    plan = to_plan(draft)
    assert [step.title for step in plan.steps] == titles(markdown)
    assert len(plan.list_last_steps()) == 1
    assert markdown.count("    - makes: ") == markdown.count("    - checked by: ")
    assert markdown.count("    - makes: ") == len(plan.steps) <= 40
    assert "is no language model" in markdown


async def test_a_plan_names_files_and_commands_that_are_there(project: Path) -> None:
    drive = Drive(folder_tools(project), FILE_TOOLS)
    text = (await drive.answer("Make a plan to replace HeatSource in the boiler")).text
    assert [tool for tool, _ in drive.calls] == ["list", "read", "grep"]
    assert "(begin with `src/boiler.py`)" in text
    assert "`pytest` ends with 0 and `ruff check` ends with 0" in text
    assert "2 listed files, of which I read `pyproject.toml`" in text


async def test_a_file_that_is_there_already_is_said_to_be(project: Path) -> None:
    drive = Drive(folder_tools(project), FILE_TOOLS)
    assert "is there already" not in (await drive.answer("Make a plan to add a README")).text
    (project / "README.rst").write_text("Kettle\n")
    text = (await drive.answer("Make a plan to add a README")).text
    assert "`README.rst` is there already" in text
    assert "`README.rst` exists" in text


async def test_without_tools_a_plan_is_made_from_the_words_alone() -> None:
    message = await ask(ModelRequest(messages=(user("Make a plan to add a README"),)))
    assert "no file was looked at" in message.text
    assert "makes: `README.md`" in message.text
    assert message.metadata["offline"] is True


async def test_a_failing_tool_is_told_and_does_not_keep_the_plan_back() -> None:
    def broken(tool: str, given: dict[str, object]) -> str:
        raise OSError("disk on fire")

    text = (await Drive(broken, FILE_TOOLS).answer("Make a plan to add a README")).text
    assert "disk on fire" in text
    assert titles(text)


async def test_no_call_is_made_where_none_may_be(project: Path) -> None:
    drive = Drive(folder_tools(project), FILE_TOOLS)
    text = (await drive.answer("Make a plan to add a README", tool_choice="none")).text
    assert drive.calls == []
    assert titles(text)


async def test_a_plan_for_nothing_asks_what_for() -> None:
    message = await ask(ModelRequest(messages=(user("Make a plan"),), tools=FILE_TOOLS))
    assert not message.tool_calls
    assert message.text.startswith("A plan for what?")


async def test_a_planner_gets_a_plan_for_work_in_any_words(project: Path) -> None:
    drive = Drive(folder_tools(project), FILE_TOOLS)
    text = (await drive.answer("Add a README", system="You plan. Change nothing.")).text
    assert "Add a README" in titles(text)
    greeting = (await drive.answer("Good morning", system="You plan. Change nothing.")).text
    assert greeting.startswith("I cannot do this")


async def test_a_loop_that_is_asked_for_a_plan_has_one_step_that_makes_it(project: Path) -> None:
    said = "Make a plan to add a README"
    drive = Drive(folder_tools(project), FILE_TOOLS)
    schema = DraftPlan.model_json_schema()
    form = await drive.answer(said, output_schema=schema, system="You are the planner.")
    draft = DraftPlan.model_validate_json(form.text)
    assert [step.instruction for step in draft.steps] == [said]
    assert find_problems(draft) == []


async def test_a_form_of_ones_own_gets_what_each_step_makes_and_how_it_is_checked() -> None:
    step = spec(
        "step",
        required="title produces acceptance checks",
        title={"type": "string"},
        produces={"type": "string"},
        acceptance={"type": "string"},
        checks={"type": "array", "items": {"type": "string"}, "minItems": 1},
    ).parameters
    schema = spec("plan", required="steps", steps={"type": "array", "items": step}).parameters
    said = user("Make a plan to add a README")
    answer = await ask(ModelRequest(messages=(said,), output_schema=schema))
    steps = msgspec.json.decode(answer.text)["steps"]
    assert steps[1]["produces"] == "`README.md`"
    assert steps[1]["checks"] == [steps[1]["acceptance"]]


def test_the_tasks_of_a_goal_are_told_apart() -> None:
    assert split_parts("add a README, write tests and then release it") == [
        "add a README",
        "write tests",
        "release it",
    ]
    assert split_parts("- salt and pepper\n- 2) fix it; test it") == [
        "salt and pepper",
        "2) fix it",
        "test it",
    ]


def test_a_step_never_checks_a_file_outside_the_workspace() -> None:
    for goal in ("add ../x.md", "add /etc/x.md"):
        steps = outline(goal, Seen(listing=Listing(("a.py",), (), False)))
        assert [check for step in steps for check in step.evidence] == []


def test_a_search_without_a_hit_is_no_listing() -> None:
    assert read_listing("No file matches '**/plan.md' below ..").files == ()
