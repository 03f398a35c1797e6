import asyncio
import os
import select
import sys
from contextlib import suppress

import pytest

from holdfast.errors import SandboxFailed
from holdfast.sandbox.process import HeadTail, ProcessLimits, run_process

ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


async def run(script, tmp_path, **limits):
    return await run_process(
        ["/bin/sh", "-c", script],
        directory=str(tmp_path),
        environment=ENVIRONMENT,
        limits=ProcessLimits(**{"timeout_s": 30, **limits}),
    )


async def gone(pid):
    """Wait until a process has ended, by its descriptor."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ended = await asyncio.to_thread(select.select, [fd], [], [], 10)
        return bool(ended[0])
    finally:
        os.close(fd)


async def test_output_and_exit_code_come_back(tmp_path):
    result = await run("echo out; echo err >&2; exit 3", tmp_path)
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert result.stopped == ""


async def test_environment_is_only_what_was_passed(tmp_path):
    result = await run("env", tmp_path)
    names = {line.partition("=")[0] for line in result.stdout.splitlines()}
    assert names <= {"PATH", "PWD", "SHLVL", "_", "OLDPWD"}


async def test_slow_command_is_stopped_with_its_children(tmp_path):
    # A slow machine may use up a short limit before the command says anything.
    for limit_s in (0.3, 2.0, 10.0):
        result = await run("sleep 1000 & echo $!; wait", tmp_path, timeout_s=limit_s)
        assert result.stopped == "timeout"
        if result.stdout:
            break
    assert result.exit_code < 0
    assert await gone(int(result.stdout))


async def test_child_left_behind_is_ended_with_the_command(tmp_path):
    result = await run("sleep 1000 & echo $!", tmp_path)
    assert result.exit_code == 0
    assert await gone(int(result.stdout))


async def test_child_that_left_the_group_does_not_keep_us_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.sandbox.process._DRAIN_S", 0.1)
    result = await run("setsid sleep 1000 & echo $!", tmp_path)
    assert result.exit_code == 0
    with suppress(ProcessLookupError):
        os.kill(int(result.stdout), 9)


async def test_flood_is_stopped_and_both_ends_are_kept(tmp_path):
    result = await run("echo first; yes", tmp_path, max_output_bytes=10_000)
    assert result.stopped == "output"
    assert result.stdout.startswith("first\ny\n")
    assert result.stdout.endswith("y\n")
    assert "left out" in result.stdout
    assert len(result.stdout) < 11_000
    assert result.is_truncated


async def test_cancelled_command_ends_with_its_children(tmp_path):
    os.mkfifo(tmp_path / "pid")
    script = "sleep 1000 & echo $! > pid; wait"
    task = asyncio.create_task(run(script, tmp_path))
    pid = int(await asyncio.to_thread((tmp_path / "pid").read_text))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(pid)


@pytest.mark.parametrize("steps", range(12))
async def test_cancelling_at_any_moment_leaves_nothing_behind(tmp_path, steps):
    script = "sleep 1000 & echo $! > pid; wait"
    task = asyncio.create_task(run(script, tmp_path))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(20):
            await task
    text = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
    if text.strip():
        assert await gone(int(text))


async def test_program_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(SandboxFailed) as caught:
        await run_process(
            ["/no/such/program"],
            directory=str(tmp_path),
            environment={},
            limits=ProcessLimits(),
        )
    assert caught.value.code == "sandbox.failed"


async def test_bytes_that_are_no_text_are_shown_replaced(tmp_path):
    result = await run(f"{sys.executable} -c 'import os; os.write(1, bytes([255, 65]))'", tmp_path)
    assert result.stdout == "\ufffdA"


@pytest.mark.parametrize("total", [0, 1, 9, 10, 11, 25, 1_000])
@pytest.mark.parametrize("step", [1, 3, 7, 1_000])
def test_head_and_tail_are_exact(total, step):
    data = bytes(33 + n % 90 for n in range(total))
    kept = HeadTail(10)
    for start in range(0, total, step):
        kept.add(data[start : start + step])
    if total <= 10:
        assert kept.text() == data.decode()
    else:
        assert kept.text().startswith(data[:5].decode())
        assert kept.text().endswith(data[-5:].decode())
        assert kept.left_out == total - 10
