"""What all processes of a command use together is bounded, not only what each uses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.sandbox import SandboxLimits, SandboxOptions, SandboxRunner, Workspace

MIB = 1024 * 1024
HOLD = "x = bytearray({size}); print('ready', flush=True); import time; time.sleep(60)"


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
async def test_many_processes_that_are_small_each_are_ended_together(
    level: str, tmp_path: Path
) -> None:
    limits = SandboxLimits(total_memory_bytes=200 * MIB, timeout_s=50)
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level=level, limits=limits))
    hold = HOLD.format(size=60 * MIB)
    one = await runner.run_text(f'timeout 1 python3 -c "{hold}"')
    assert (one.stopped, one.stdout) == ("", "ready\n")
    many = await runner.run_text(f'for i in 1 2 3 4 5 6; do python3 -c "{hold}" & done; wait')
    assert many.stopped == "memory"
    assert (await runner.run_argv(["echo", "on"])).stdout == "on\n"
    await runner.aclose()


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
async def test_what_all_commands_write_adds_up(level: str, tmp_path: Path) -> None:
    limits = SandboxLimits(total_disk_bytes=30 * MIB, timeout_s=50)
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level=level, limits=limits))
    write = "dd if=/dev/zero of={name} bs=1M count=20 conv=fsync status=none"
    first = await runner.run_text(write.format(name="a"))
    assert (first.exit_code, first.stopped) == (0, "")
    # Removing it gives nothing back: the cap is on what is written, not on what stays.
    second = await runner.run_text(f"rm a; {write.format(name='b')}; sleep 30")
    assert second.stopped == "disk"
    await runner.aclose()


@pytest.mark.parametrize("level", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("resource", ["memory", "disk"])
async def test_a_program_that_stays_is_ended_when_it_exceeds_a_total(
    level: str, resource: str, tmp_path: Path
) -> None:
    totals = {f"total_{resource}_bytes": 100 * MIB}
    limits = SandboxLimits(cpu_s=0, timeout_s=0.0, **totals)
    runner = SandboxRunner(Workspace(tmp_path), SandboxOptions(level=level, limits=limits))
    hold = HOLD.format(size=40 * MIB)
    write = "dd if=/dev/zero of=a bs=1M count=130 conv=fsync status=none"
    grow = {
        "memory": f'for i in 1 2 3 4; do python3 -c "{hold}" & done; wait',
        "disk": f"{write}; sleep 60",
    }
    script = f"read line; echo $line; read line; {grow[resource]}"
    stream = await runner.open_program(["/bin/bash", "-c", script], line_bytes=1_000)
    await stream.write(b"hello\n")
    assert await stream.read_line() == b"hello\n"
    assert not stream.stopped
    await stream.write(b"grow\n")
    async with asyncio.timeout(50):
        await stream.ended.wait()
    assert stream.stopped == resource
    assert "it was ended" in await stream.read_complaints()
    await stream.aclose()
    await runner.aclose()
