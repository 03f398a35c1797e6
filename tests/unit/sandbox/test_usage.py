"""What all processes of a command use together is bounded, not only what each uses."""

from __future__ import annotations

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
