"""Commands run as they were parsed, inside their profile, and end when they should."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.errors import FileUnsuitable, PermissionDenied, SandboxFailed, UsageError
from holdfast.policy.commands import parse_command
from holdfast.sandbox import (
    PathRules,
    SandboxLimits,
    SandboxOptions,
    SandboxRunner,
    Workspace,
    describe_sandbox,
)


@pytest.fixture(params=["landlock", "bubblewrap"])
def level(request, bubblewrap):
    return request.param


@pytest.fixture
def root(tmp_path) -> Path:
    (tmp_path / "ws" / "src").mkdir(parents=True)
    (tmp_path / "ws" / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "outside").write_text("planted")
    return tmp_path / "ws"


@asynccontextmanager
async def running(root, level="landlock", *, rules=None, **options):
    runner = SandboxRunner(Workspace(root, rules=rules), SandboxOptions(level=level, **options))
    try:
        yield runner
    finally:
        await runner.aclose()


async def run(runner, text, **options):
    parsed = parse_command(text)
    assert parsed.is_parsed, parsed.problem
    return await runner.run(parsed.pipelines, **options)


async def output(runner, text, **options):
    return (await run(runner, text, **options)).stdout


async def test_pipes_connectors_and_directories_work_without_a_shell(root, level):
    async with running(root, level) as runner:
        assert await output(runner, "cat a.txt | wc -l") == "2\n"
        assert await output(runner, "true && echo yes || echo no") == "yes\n"
        assert await output(runner, "false && echo yes || echo no; echo end") == "no\nend\n"
        assert await output(runner, "cd src && pwd") == f"{root}/src\n"
        assert await output(runner, "cd src && cd .. && pwd") == f"{root}\n"
        assert await output(runner, "pwd", directory="src") == f"{root}/src\n"
        assert await output(runner, "LC_ALL=C printenv LC_ALL") == "C\n"


async def test_arguments_reach_the_program_untouched(root, level):
    async with running(root, level) as runner:
        shown = await output(runner, r"printf '%s|' '$(id)' '*' 'a  b' '' \;")
        assert shown == "$(id)|*|a  b||;|"


async def test_redirections_go_through_the_workspace(root, level):
    async with running(root, level) as runner:
        result = await run(runner, "echo one > x && echo two >> x; cat < x; ls nothing 2> err")
        assert result.stdout == "one\ntwo\n"
        assert (root / "x").read_text() == "one\ntwo\n"
        assert "nothing" in (root / "err").read_text()
        assert (root / "x").stat().st_uid == root.stat().st_uid
        both = await run(runner, "ls nothing a.txt > both 2>&1")
        assert both.exit_code == 2
        assert "nothing" in (root / "both").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "echo x > ../outside",
        "echo x > /etc/hosts",
        "cat < ../outside",
        "echo x > .git/config",
        "cd ..",
        "cd a.txt",
        "cd src src",
        "echo x > src",
        "echo x > missing/x",
    ],
)
async def test_what_the_workspace_refuses_fails_like_in_a_shell(root, text):
    (root / ".git").mkdir()
    async with running(root) as runner:
        result = await run(runner, f"{text} || echo refused")
        assert result.stdout == "refused\n"
        assert (root.parent / "outside").read_text() == "planted"


async def test_a_skipped_redirection_does_not_empty_its_file(root):
    async with running(root) as runner:
        await run(runner, "false && echo x > a.txt")
        assert (root / "a.txt").read_text() == "one\ntwo\n"


async def test_path_rules_hold_for_redirections(root):
    rules = PathRules(blocked=("src/**",))
    async with running(root, rules=rules) as runner:
        assert (await run(runner, "echo x > src/y")).exit_code == 1


async def test_exit_codes_tell_how_it_ended(root, level):
    async with running(root, level) as runner:
        assert (await run(runner, "false")).exit_code == 1
        missing = await run(runner, "no-such-program x")
        assert missing.exit_code == 127
        assert "no-such-program: not found" in missing.stderr
        assert (await run(runner, "./a.txt")).exit_code in (1, 126)
        killed = await runner.run_text("kill -9 $$")
        assert killed.exit_code in (-9, 137)


async def test_an_approved_text_runs_in_a_shell_in_the_same_sandbox(root, level):
    async with running(root, level) as runner:
        result = await runner.run_text("for x in 1 2; do echo $((x * 2)); done; id -u")
        assert result.stdout.startswith("2\n4\n")
        assert result.sandbox.startswith(level)
        assert (await runner.run_text("cat ../outside")).exit_code != 0


async def test_the_environment_is_clean_and_home_is_scratch(root, level, monkeypatch):
    monkeypatch.setenv("PLANTED_SECRET", "planted")
    async with running(root, level, environment={"CI": "1"}) as runner:
        shown = await output(runner, "printenv")
        assert "planted" not in shown
        assert "CI=1\n" in shown
        assert "PATH=/usr/local/sbin:" in shown
        kept = await runner.run_text('echo kept > "$HOME/x" && cat "$TMPDIR/x"')
        assert kept.stdout == "kept\n"


async def test_a_command_that_takes_too_long_is_ended_with_all_it_started(root, level):
    async with running(root, level) as runner:
        script = "sleep 1000 & setsid sleep 1000 & sleep 1000"
        # A slow machine may use up a short limit before the sandbox stands.
        for limit_s in (0.5, 3.0, 10.0):
            result = await runner.run_text(f"echo started; {script}", timeout_s=limit_s)
            assert result.stopped == "timeout"
            if result.stdout:
                break
        assert result.stdout == "started\n"
        assert await output(runner, "echo next") == "next\n"


async def test_steps_after_the_time_is_up_are_not_started(root):
    async with running(root) as runner:
        result = await run(runner, "sleep 1000; echo x > late", timeout_s=0.3)
        assert result.stopped == "timeout"
        assert not (root / "late").exists()


async def test_cancelling_ends_the_command(root, level):
    os.mkfifo(root / "fifo")
    fd = os.open(root / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(fd, started.set)
    async with running(root, level) as runner:
        task = asyncio.create_task(runner.run_text("echo x > fifo && sleep 1000"))
        async with asyncio.timeout(30):
            await started.wait()
        loop.remove_reader(fd)
        os.close(fd)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await output(runner, "echo next") == "next\n"


async def test_a_flood_is_stopped_and_head_and_tail_are_kept(root, level):
    limits = SandboxLimits(output_bytes=1000, flood_factor=1000)
    async with running(root, level, limits=limits) as runner:
        result = await run(runner, "yes")
        assert result.stopped == "output"
        assert result.is_truncated
        counted = await run(runner, "seq 10000")
        assert counted.stdout.startswith("1\n2\n")
        assert counted.stdout.endswith("9999\n10000\n")
        assert "bytes left out" in counted.stdout
        assert counted.stopped == ""


async def test_output_of_one_run_can_be_bounded(root):
    async with running(root) as runner:
        parsed = parse_command("seq 1000")
        assert (await runner.run(parsed.pipelines, output_bytes=100)).is_truncated


async def test_commands_run_side_by_side(root, level):
    async with running(root, level) as runner:
        await runner.start()
        texts = [f"echo {number}" for number in range(6)]
        shown = await asyncio.gather(*(output(runner, text) for text in texts))
        assert shown == [f"{number}\n" for number in range(6)]


async def test_a_read_only_profile_reads_and_does_not_write(root, level):
    async with running(root, level, profile="read-only") as runner:
        assert await output(runner, "cat a.txt") == "one\ntwo\n"
        assert (await run(runner, "touch new")).exit_code != 0
        assert (await run(runner, "echo x > new")).exit_code != 0
        assert sorted(os.listdir(root)) == ["a.txt", "src"]
        assert (await run(runner, "ls")).sandbox.endswith("/read-only")


async def test_the_network_profile_has_sockets_and_still_no_files(root, level):
    async with running(root, level, profile="network") as runner:
        listed = await runner.run_text("exec 3<>/dev/udp/127.0.0.1/9 && echo open")
        assert listed.stdout == "open\n"
        assert (await run(runner, "cat ../outside")).exit_code != 0


async def test_the_full_profile_says_that_nothing_confines_it(root):
    async with running(root, profile="full") as runner:
        result = await run(runner, "cat ../outside")
        assert (result.stdout, result.sandbox) == ("planted", "none/full")
        ended = await runner.run_text("setsid sleep 1000 & sleep 1000", timeout_s=0.3)
        assert ended.stopped == "timeout"


async def test_a_granted_directory_is_within_reach(root, level):
    granted = root.parent / "granted"
    granted.mkdir()
    workspace = Workspace(root)
    runner = SandboxRunner(workspace, SandboxOptions(level=level))
    try:
        assert (await run(runner, f"ls {granted}")).exit_code != 0
        workspace.grant(granted, is_writable=True)
        assert (await run(runner, f"touch {granted}/x")).exit_code == 0
        workspace.grant(granted, is_writable=False)
        assert (await run(runner, f"touch {granted}/y")).exit_code != 0
        assert os.listdir(granted) == ["x"]
    finally:
        await runner.aclose()


async def test_further_paths_can_be_read(root, level):
    extra = root.parent / "extra"
    extra.mkdir()
    (extra / "x").write_text("readable")
    readable = (str(extra), str(root.parent / "outside"), "/nonexistent")
    async with running(root, level, readable=readable) as runner:
        assert await output(runner, f"cat {extra}/x {root.parent}/outside") == "readableplanted"
        assert (await run(runner, f"touch {extra}/y")).exit_code != 0


async def test_hidden_paths_cannot_be_seen(root, level):
    (root / "state").mkdir()
    (root / "state" / "journal").write_text("planted")
    hidden = (str(root / "state"), str(root / "a.txt"))
    async with running(root, level, hidden=hidden) as runner:
        assert await output(runner, "ls state") == ""
        assert "one" not in await output(runner, "cat a.txt")


@pytest.mark.parametrize("how", ["hidden", "read_only"])
async def test_keeping_something_without_namespaces_is_refused(root, how):
    options = {how: (str(root / "src"),), "with_namespaces": False}
    async with running(root, **options) as runner:
        with pytest.raises(SandboxFailed) as failed:
            await runner.start()
        assert failed.value.code == "sandbox.failed"


async def test_files_of_root_stay_files_of_root(root, level):
    async with running(root, level) as runner:
        await run(runner, "touch made")
        assert (root / "made").stat().st_uid == root.stat().st_uid
        assert (await output(runner, "id -u")).strip() != "0"


async def test_a_broken_bubblewrap_is_not_silently_replaced(root, monkeypatch, tmp_path):
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho no user namespaces >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr("holdfast.sandbox.launcher_pool.PATH", str(tmp_path))
    async with running(root, "bubblewrap") as runner:
        with pytest.raises(SandboxFailed):
            await runner.start()
        assert runner.level_name == ""
    async with running(root, "auto") as runner:
        assert (await runner.start()).startswith("landlock")
        assert "bubblewrap" in runner.objections


async def test_where_nothing_works_commands_are_refused(root, monkeypatch):
    monkeypatch.setattr("holdfast.sandbox.launcher_pool.PATH", "/nonexistent")
    monkeypatch.setattr("holdfast.sandbox.launch.sys.executable", "/nonexistent/python")
    async with running(root, "auto") as runner:
        with pytest.raises(SandboxFailed) as failed:
            await run(runner, "ls")
        assert "bwrap is not installed" in str(failed.value)


async def test_other_systems_than_linux_refuse(root, monkeypatch):
    monkeypatch.setattr("holdfast.sandbox.launcher_pool.sys.platform", "darwin")
    async with running(root, "auto") as runner:
        with pytest.raises(SandboxFailed):
            await run(runner, "ls")


async def test_an_argument_that_no_program_can_take_is_told(root):
    async with running(root) as runner:
        result = await runner.run_argv(["echo", "a\0b"])
        assert result.exit_code == 126
        assert await output(runner, "echo next") == "next\n"


async def test_a_command_that_is_too_large_to_hand_over_is_refused(root):
    async with running(root) as runner:
        with pytest.raises(SandboxFailed):
            await runner.run_argv(["echo", "x" * 8_000_000])
        assert await output(runner, "echo next") == "next\n"


async def test_auto_takes_the_strongest(root, bubblewrap):
    async with running(root, "auto") as runner:
        assert await runner.start() == "bubblewrap/workspace-write"


async def test_the_directory_must_be_one(root):
    async with running(root) as runner:
        with pytest.raises(FileUnsuitable):
            await run(runner, "ls", directory="a.txt")
        with pytest.raises(PermissionDenied):
            await run(runner, "ls", directory="..")


def test_the_root_of_the_file_system_is_no_workspace():
    with pytest.raises(UsageError):
        SandboxRunner(Workspace("/"))


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "GIT_DIR", "PATH", "IFS", "", "a=b"])
def test_variables_that_load_code_cannot_be_given(root, name):
    with pytest.raises(UsageError):
        SandboxRunner(Workspace(root), SandboxOptions(environment={name: "x"}))


async def test_the_report_says_what_is_active(root, bubblewrap):
    report = await describe_sandbox(str(root))
    assert report.is_confined
    assert report.active == "bubblewrap/workspace-write"
    assert report.landlock.startswith("landlock")


# --- programs that are given something to read ---------------------------------------------


async def programmed(runner, *argv, given=b"", **options):
    return await runner.run_program(argv, given, environment={"NAME": "value"}, **options)


async def test_a_program_reads_what_it_is_given_and_then_the_end(root, level):
    async with running(root, level) as runner:
        assert (await programmed(runner, "wc", "-c", given=b"x" * 3_000_000)).stdout == "3000000\n"
        assert (await programmed(runner, "cat", given=b"")).stdout == ""
        assert (await programmed(runner, "printenv", "NAME", given=b"x")).stdout == "value\n"
        # The next command of the same launcher has no input again.
        assert await output(runner, "cat") == ""


async def test_a_program_that_does_not_read_is_not_waited_for(root, level):
    async with running(root, level) as runner:
        ended = await programmed(runner, "true", given=b"x" * 3_000_000)
        assert (ended.exit_code, ended.stopped) == (0, "")
        closed = await programmed(runner, "sh", "-c", "exec 0<&-; echo ok", given=b"x" * 3_000_000)
        assert closed.stdout == "ok\n"


async def test_a_program_that_writes_too_much_is_ended_at_once(root, level):
    async with running(root, level) as runner:
        ended = await programmed(runner, "yes", given=b"x", output_bytes=100_000)
        assert ended.stopped == "output"
        whole = await programmed(runner, "cat", given=b"y" * 100_000, output_bytes=100_000)
        assert (whole.stdout, whole.stopped) == ("y" * 100_000, "")


async def test_a_program_that_takes_too_long_is_ended(root, level):
    async with running(root, level) as runner:
        ended = await programmed(runner, "sleep", "1000", given=b"x", timeout_s=0.5)
        assert ended.stopped == "timeout"


async def test_a_runner_beside_has_rights_of_its_own_and_ends_with_the_first(root, level, tmp_path):
    extra = tmp_path / "extra"
    extra.mkdir()
    async with running(root, level, profile="read-only") as runner:
        beside = runner.open_beside("workspace-write", writable=(str(extra),))
        assert beside is runner.open_beside("workspace-write", writable=(str(extra),))
        assert (await run(runner, "touch new")).exit_code
        assert (await run(beside, "touch new")).exit_code == 0
        assert (await run(beside, f"touch {extra}/new")).exit_code == 0
        assert beside.profile == "workspace-write"
        other = runner.open_beside("read-only", workspace=Workspace(extra))
        assert await output(other, "ls") == "new\n"
    assert (extra / "new").exists()


async def test_what_the_rules_block_is_hidden_and_stays_where_it_is(root, level):
    (root / "src" / "key").write_text("planted")
    rules = PathRules(blocked=("src/key", "**/*.pem"))
    async with running(root, level, rules=rules) as runner:
        assert "planted" not in await output(runner, "cat src/key")
        assert (await run(runner, "mv src moved")).exit_code != 0
        assert (await run(runner, "mv src/key stolen")).exit_code != 0
        await run(runner, "touch src/made")
        (root / "new.pem").write_text("planted")
        assert "planted" not in await output(runner, "cat new.pem")
    assert (root / "src" / "key").read_text() == "planted"
    assert (root / "src" / "made").exists()


async def test_what_is_kept_read_only_is_seen_and_cannot_be_changed(root, level):
    (root / "conf" / "rules").mkdir(parents=True)
    (root / "conf" / "rules" / "a").write_text("kept")
    kept = (str(root / "conf" / "rules"), str(root / "gone"), str(root.parent / "outside"))
    async with running(root, level, read_only=kept) as runner:
        assert await output(runner, "cat conf/rules/a") == "kept"
        for text in (
            "rm conf/rules/a",
            "mv conf other",
            "mv conf/rules other",
            "cp a.txt conf/rules",
        ):
            assert (await run(runner, text)).exit_code != 0, text
        assert (await run(runner, "cp a.txt conf/b.txt")).exit_code == 0
    assert (root / "conf" / "rules" / "a").read_text() == "kept"


async def test_what_lies_in_a_hidden_place_is_hidden_with_it(root, level):
    (root / "state" / "inner").mkdir(parents=True)
    hidden = (str(root / "state" / "inner"), str(root / "state"))
    options = {"hidden": hidden, "read_only": (str(root / "state" / "inner"),)}
    async with running(root, level, **options) as runner:
        assert await output(runner, "ls state") == ""


async def test_a_hidden_directory_stays_hidden_when_it_is_granted(root, level):
    records = root.parent / "records"
    records.mkdir()
    (records / "journal").write_text("planted")
    workspace = Workspace(root)
    workspace.grant(records)
    options = SandboxOptions(level=level, hidden=(str(records),))
    runner = SandboxRunner(workspace, options)
    try:
        assert await output(runner, f"ls {records}") == ""
    finally:
        await runner.aclose()


async def test_git_cannot_be_given_hooks_by_moving_its_directory_away(root, level):
    (root / ".git" / "hooks").mkdir(parents=True)
    async with running(root, level) as runner:
        assert (await run(runner, "mv .git other")).exit_code != 0
        assert (await run(runner, "touch .git/index")).exit_code == 0


async def test_cancelling_while_the_launcher_starts_leaves_no_process(root, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    started: list[subprocess.Popen[bytes]] = []

    class Slow(subprocess.Popen):
        def __init__(self, *args, **kwargs) -> None:
            begun.set()
            assert go_on.wait(10)
            super().__init__(*args, **kwargs)
            started.append(self)

    async with running(root) as runner:
        monkeypatch.setattr(subprocess, "Popen", Slow)
        task = asyncio.create_task(run(runner, "true"))
        assert await asyncio.to_thread(begun.wait, 10)
        task.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        [process] = started
        assert process.returncode is not None
