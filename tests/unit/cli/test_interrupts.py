"""Ctrl-C: one orderly end, never a hang, whatever comes how often."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli import event_loop
from holdfast.cli.approve import AskInTerminal, _one_at_a_time
from holdfast.cli.event_loop import run_async
from holdfast.cli.interrupts import GESTURE_S, Interrupts
from holdfast.testing import FakeClock

SOURCE = Path(__file__).resolve().parents[3] / "src"
WAIT_S = 30


class Process:
    """Stands for the process: how it was left, and a clock to move."""

    def __init__(self, most_s: float = 3_600) -> None:
        self.clock = FakeClock()
        self.codes: list[int] = []
        self.is_left = threading.Event()
        self.interrupts = Interrupts(clock=self.clock, most_s=most_s, end=self._end)

    def _end(self, code: int) -> None:
        self.codes.append(code)
        self.is_left.set()


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    made = Process()
    monkeypatch.setattr(event_loop, "INTERRUPTS", made.interrupts)
    made.interrupts.install()
    return made


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_press_cancels_and_the_next_ones_disturb_nothing(process: Process) -> None:
    done = []

    async def work() -> None:
        try:
            press()
            await asyncio.Event().wait()
        finally:
            for step in range(3):
                press()
                await asyncio.sleep(0)
                done.append(step)

    with pytest.raises(KeyboardInterrupt):
        run_async(work())
    assert done == [0, 1, 2]
    assert process.codes == []
    assert process.interrupts.is_ending


def test_nothing_else_begins_once_the_work_is_ending(process: Process) -> None:
    async def never() -> None:
        raise AssertionError("it began")

    with pytest.raises(KeyboardInterrupt):
        press()
    with pytest.raises(KeyboardInterrupt):
        run_async(never())


def test_a_press_that_comes_when_the_work_is_done_does_not_take_its_result(
    process: Process,
) -> None:
    async def late() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            press()  # while the loop is being closed

    async def work() -> str:
        left.append(asyncio.create_task(late()))
        await asyncio.sleep(0)
        return "result"

    left: list[asyncio.Task[None]] = []

    assert run_async(work()) == "result"
    assert process.interrupts.is_ending


def test_a_later_press_leaves_a_clean_up_that_hangs(process: Process) -> None:
    async def work() -> str:
        try:
            press()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            press()
            assert process.codes == []
            process.clock.advance(GESTURE_S)
            press()
        return "only the stand-in of the process goes on"

    run_async(work())
    assert process.codes == [130]


def test_a_clean_up_that_takes_too_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process(most_s=0)
    monkeypatch.setattr(event_loop, "INTERRUPTS", process.interrupts)
    process.interrupts.install()

    async def work() -> None:
        try:
            press()
            await asyncio.Event().wait()
        finally:
            assert process.is_left.wait(WAIT_S)  # blocks the loop, as a stubborn tool does

    with pytest.raises(KeyboardInterrupt):
        run_async(work())
    assert process.codes == [130]


def test_work_that_can_wind_down_is_asked_to_first(process: Process) -> None:
    said = []

    async def work() -> None:
        stop = asyncio.Event()
        wishes.append(stop)
        press()
        await stop.wait()
        said.append("wound down")
        press()
        await asyncio.Event().wait()

    wishes: list[asyncio.Event] = []
    with pytest.raises(KeyboardInterrupt):
        run_async(work(), wind_down=lambda: wishes[0].set())
    assert said == ["wound down"]


def test_at_a_prompt_a_press_is_what_it_always_was(process: Process) -> None:
    with process.interrupts.as_usual():
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                press()
    assert not process.interrupts.is_ending
    with pytest.raises(KeyboardInterrupt), process.interrupts.as_usual():
        press()
    assert process.interrupts.is_ending
    press()  # absorbed


def test_ctrl_c_that_is_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Process().interrupts.install()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


RAW = """
import os, signal, tty
from holdfast.cli.interrupts import Interrupts
Interrupts(most_s=0).install()
tty.setraw(0)
try:
    os.kill(os.getpid(), signal.SIGINT)
finally:
    signal.pause()
"""


def test_leaving_at_once_restores_the_terminal() -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    sit_down = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
    ended = subprocess.run(
        [sys.executable, "-c", sit_down + RAW],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        start_new_session=True,
        timeout=WAIT_S,
    )
    assert ended.returncode == 130
    assert termios.tcgetattr(theirs) == before
    shown = os.read(ours, 65_536)
    assert b"\x1b[?25h" in shown
    assert b"Left at once" in shown
    os.close(ours)
    os.close(theirs)


def test_an_open_prompt_keeps_no_loop_from_ending() -> None:
    async def work() -> None:
        asking = asyncio.create_task(AskInTerminal().ask(()))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})

    with _one_at_a_time:  # somebody sits at the prompt, and does not answer
        asyncio.run(work())
