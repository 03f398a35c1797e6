import msgspec
import pytest

from holdfast.errors import FileUnsuitable, PermissionDenied, SandboxFailed, ToolInputInvalid
from holdfast.tools.builtin.bash import bash
from holdfast.tools.command_runner import UnconfinedRunner


@pytest.fixture
def run(context):
    confined = msgspec.structs.replace(context, commands=UnconfinedRunner(context.workspace))

    async def go(command, **more):
        return await bash.call(bash.validate({"command": command, **more}), confined)

    return go


async def test_commands_are_refused_unless_a_runner_was_given(call):
    with pytest.raises(SandboxFailed):
        await call(bash, command="true")


async def test_output_and_exit_code_are_shown(run, root):
    result = await run("pwd; echo oops >&2; exit 2", description="Try")
    assert result.output == f"{root}\n[stderr]\noops\n[exit code 2]"
    assert result.title == "Try"
    assert result.is_error
    assert result.metadata["exit_code"] == 2
    assert result.metadata["sandbox"] == "none"


async def test_silent_success_says_so(run):
    result = await run("true")
    assert result.output == "[exit code 0]"
    assert not result.is_error


async def test_directory_is_chosen_inside_the_workspace(run, root):
    (root / "d").mkdir()
    (root / "f").touch()
    assert (await run("pwd", workdir="d")).output == str(root / "d")
    with pytest.raises(FileUnsuitable):
        await run("pwd", workdir="f")
    with pytest.raises(PermissionDenied):
        await run("pwd", workdir="/etc")


async def test_timeout_is_told(run):
    result = await run("sleep 100", timeout=0.2)
    assert "did not end within 0.2 s" in result.output
    assert result.is_error


@pytest.mark.parametrize(
    "arguments", [{}, {"command": ""}, {"command": 1}, {"command": "a", "timeout": 0}]
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ToolInputInvalid):
        bash.validate(arguments)


def test_target_is_the_command(context):
    assert bash.targets({"command": "rm -rf x"}, context.workspace) == ("rm -rf x",)
    assert bash.effect == "unsafe"
