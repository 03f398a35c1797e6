"""Skills as other programs write them: where they lie, what stands in their block."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Agent, AsyncClient
from holdfast.errors import ConfigError
from holdfast.settings import list_governing_places, load_settings
from holdfast.skills import (
    Skill,
    SkillLibrary,
    TrustStore,
    check_skill,
    parse_skill,
    render_catalog,
)
from holdfast.skills.skill import fill_in
from holdfast.testing import ScriptedModel, tool_call

BLOCK = "---\nname: {name}\ndescription: Does it.\n{more}---\n\n{body}\n"


def write(folder: Path, name: str, body: str = "Do it.", more: str = "") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "SKILL.md").write_text(BLOCK.format(name=name, more=more, body=body))


async def test_skills_of_the_home_directory_are_offered(tmp_path: Path):
    for place in (".claude/skills", ".agents/skills"):
        write(tmp_path / "home" / place, place.split("/")[0].removeprefix("."))
    (tmp_path / "ws").mkdir()
    settings = load_settings(
        overrides={"workspace": tmp_path / "ws"},
        cwd=tmp_path / "ws",
        environ={"HOME": str(tmp_path / "home")},
    ).settings
    model = ScriptedModel(tool_call("skill", name="claude"), "done")
    async with AsyncClient(tmp_path / "state", settings=settings) as client:
        agent = Agent("one", model=model, allowed_tools=["skill"])
        await agent.run("go", client=client)
    [call] = model.requests[1].messages[-1].tool_calls
    assert "Do it." in call.output
    assert "- agents: Does it." in model.requests[0].system


def test_skills_in_nested_folders_are_found(tmp_path: Path):
    write(tmp_path / "user" / "group" / "sub", "deep")
    write(tmp_path / "user", "top")
    write(tmp_path / "user" / "top" / "inner", "hidden")
    write(tmp_path / "user" / "a/b/c/d", "too-deep")
    library = SkillLibrary(TrustStore(tmp_path / "state"), user_folders=[tmp_path / "user"])
    (tmp_path / "ws").mkdir()
    catalog = library.find(tmp_path / "ws")
    assert [skill.name for skill in catalog.skills] == ["deep", "top"]
    assert len(library.files(tmp_path / "ws")) == 2


@pytest.mark.parametrize(
    ("value", "is_for_people"), [("true", True), ("yes", True), ("odd", True), ("false", False)]
)
def test_skill_for_people_is_kept_from_models(value: str, is_for_people: bool):
    text = BLOCK.format(name="one", more=f"disable-model-invocation: {value}\n", body="x")
    skill, faults = parse_skill(text, "one")
    assert skill is not None
    assert not faults
    assert skill.is_for_people is is_for_people
    assert bool(render_catalog([skill], max_chars=1_000)[0]) is not is_for_people


async def test_model_cannot_load_a_skill_for_people(tmp_path: Path):
    model = ScriptedModel(tool_call("skill", name="secret"), "done")
    async with AsyncClient(tmp_path / "state") as client:
        await client.skills.register(Skill(name="open", description="d", content="c"))
        await client.skills.register(
            Skill(name="secret", description="d", content="hush", is_for_people=True)
        )
        await Agent("one", model=model, allowed_tools=["skill"]).run("go", client=client)
    [call] = model.requests[1].messages[-1].tool_calls
    assert "hush" not in call.output + call.error
    assert "There is no skill" in call.output + call.error


@pytest.mark.parametrize(
    ("content", "arguments", "expected"),
    [
        ("Fix $ARGUMENTS.", "a b", "Fix a b."),
        ("From $1 to $2; $3", "a b", "From a to b; "),
        ("Fix.", "a", "Fix.\n\nARGUMENTS: a"),
        ("Fix.", "", "Fix."),
        ("Run ${CLAUDE_SKILL_DIR}/x", "", "Run /skills/one/x"),
        ("$ARGUMENTS", "${CLAUDE_SKILL_DIR} $1", "${CLAUDE_SKILL_DIR} $1"),
        ("It costs $100 and $ARGUMENTSX", "a", "It costs $100 and $ARGUMENTSX\n\nARGUMENTS: a"),
    ],
)
def test_arguments_are_filled_in_once(content: str, arguments: str, expected: str):
    skill = Skill(name="one", description="d", content=content, directory="/skills/one")
    assert fill_in(skill, arguments) == expected


async def test_arguments_reach_the_skill_through_the_tool(tmp_path: Path):
    model = ScriptedModel(tool_call("skill", name="fix", arguments="issue 7"), "done")
    async with AsyncClient(tmp_path / "state") as client:
        skill = Skill(
            name="fix", description="d", content="Fix $ARGUMENTS.", argument_hint="[issue]"
        )
        await client.skills.register(skill)
        await Agent("one", model=model, allowed_tools=["skill"]).run("go", client=client)
    [call] = model.requests[1].messages[-1].tool_calls
    assert "Fix issue 7." in call.output
    assert "- fix [issue]: d" in model.requests[0].system


def test_fields_of_other_programs_are_no_faults():
    more = "argument-hint: '[file]'\nmodel: large\nuser-invocable: true\n"
    text = BLOCK.format(name="one", more=more, body="x")
    assert check_skill(text, "one") == ()
    skill, _ = parse_skill(text, "one")
    assert skill is not None
    assert (skill.argument_hint, skill.model) == ("[file]", "large")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["CLAUDE.md"], "of CLAUDE.md"),
        (["AGENTS.md", "CLAUDE.md"], "of AGENTS.md"),
        (["AGENTS.md", "sub/CLAUDE.md"], "of sub/CLAUDE.md"),
    ],
)
async def test_instructions_come_from_the_nearest_file(
    tmp_path: Path, files: list[str], expected: str
):
    (tmp_path / "ws" / ".git").mkdir(parents=True)
    (tmp_path / "ws" / "sub").mkdir()
    for file in files:
        (tmp_path / "ws" / file).write_text(f"of {file}")
    settings = load_settings(overrides={"workspace": tmp_path / "ws" / "sub"}).settings
    model = ScriptedModel("done")
    async with AsyncClient(tmp_path / "state", settings=settings) as client:
        await Agent("one", model=model, allowed_tools=["read"]).run("go", client=client)
    assert expected in model.requests[0].system
    assert model.requests[0].system.count("<project-instructions") == 1


def test_project_cannot_name_the_home_directory(tmp_path: Path):
    (tmp_path / "holdfast.toml").write_text('home_dir = "."\n')
    with pytest.raises(ConfigError, match="home_dir"):
        load_settings(cwd=tmp_path, environ={"HOME": str(tmp_path / "home")})


def test_skills_of_the_home_directory_cannot_be_written_by_commands(tmp_path: Path):
    settings = load_settings(cwd=tmp_path, environ={"HOME": str(tmp_path)}).settings
    assert tmp_path / ".claude/skills" in list_governing_places(settings)
