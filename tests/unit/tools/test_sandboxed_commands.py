"""The runner of the `bash` tool: parsed or approved, always confined."""

from __future__ import annotations

import pytest

from holdfast.errors import PermissionDenied, SandboxFailed, UsageError
from holdfast.sandbox import SandboxOptions, SandboxRunner, Workspace
from holdfast.tools.command_runner import UnconfinedRunner
from holdfast.tools.sandboxed_commands import SandboxedCommands
from holdfast.tools.services import Command, NoCommands, Program


@pytest.fixture
async def runner(tmp_path):
    (tmp_path / "ws").mkdir()
    made = SandboxRunner(Workspace(tmp_path / "ws"), SandboxOptions(level="landlock"))
    yield made
    await made.aclose()


async def test_a_parsed_command_runs_without_a_shell(runner):
    result = await SandboxedCommands(runner).run(Command(text="echo '$(id)' | cat"))
    assert (result.stdout, result.exit_code) == ("$(id)\n", 0)
    assert result.sandbox.startswith("landlock")


async def test_what_cannot_be_read_needs_a_person(runner):
    with pytest.raises(PermissionDenied) as refused:
        await SandboxedCommands(runner).run(Command(text="echo $((1 + 1))"))
    assert refused.value.code == "policy.denied"


async def test_an_approved_text_runs_as_it_is(runner):
    approved = Command(text="echo $((1 + 1))", passed_by="person")
    assert (await SandboxedCommands(runner).run(approved)).stdout == "2\n"


async def test_what_is_not_what_it_looks_like_never_runs(runner):
    commands = SandboxedCommands(runner, passes_unread=True)
    for passed_by in ("rules", "sandbox", "person"):
        with pytest.raises(PermissionDenied):
            await commands.run(Command(text="ls \u202etxt", passed_by=passed_by))


async def test_what_passed_by_the_sandbox_needs_one_that_is_a_boundary(tmp_path):
    weak = SandboxOptions(level="landlock", with_namespaces=False)
    for options, is_boundary in ((weak, False), (SandboxOptions(level="landlock"), True)):
        runner = SandboxRunner(Workspace(tmp_path), options)
        assert await runner.is_boundary() is is_boundary
        script = Command(text="for x in 1 2; do echo $x; done; exit 3", passed_by="sandbox")
        if is_boundary:
            result = await SandboxedCommands(runner).run(script)
            assert (result.stdout, result.exit_code) == ("1\n2\n", 3)
        else:
            with pytest.raises(PermissionDenied):
                await SandboxedCommands(runner).run(script)
        await runner.aclose()


async def test_a_sandbox_that_does_not_start_is_no_boundary(tmp_path):
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level="bubblewrap", profile="full"))
    assert not await runner.is_boundary()
    await runner.aclose()


async def test_a_program_that_sees_no_workspace_needs_a_place_to_run(runner):
    with pytest.raises(UsageError):
        await SandboxedCommands(runner).run_program(Program(argv=("true",), workspace="none"))


async def test_nobody_who_refuses_commands_runs_a_program():
    with pytest.raises(SandboxFailed):
        await NoCommands().run_program(Program(argv=("true",)))


async def test_an_unconfined_program_reads_what_it_is_given_and_is_bounded(tmp_path):
    runner = UnconfinedRunner(Workspace(tmp_path))
    result = await runner.run_program(Program(argv=("cat",), given=b"x" * 200_000))
    assert (result.stdout, result.sandbox) == ("x" * 200_000, "none")
    flood = await runner.run_program(Program(argv=("yes",), max_output_bytes=1_000))
    assert flood.stopped == "output"
    deaf = await runner.run_program(Program(argv=("true",), given=b"x" * 2_000_000))
    assert deaf.exit_code == 0
