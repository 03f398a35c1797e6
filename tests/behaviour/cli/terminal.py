"""A real terminal for tests: a program sits at it, the test types and reads the screen."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Self

SOURCE = Path(__file__).resolve().parents[3] / "src"
LINES, COLUMNS = 50, 100
_WAIT_S = 60
_PATIENCE_S = 5
# The program's own terminal, so that Ctrl-C reaches it and nobody else.
_SIT_DOWN = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
_ESCAPES = re.compile(rb"\x1b(\[[0-9;?>]*[a-zA-Z]|\][^\x07]*\x07|[=>])")


class Terminal:
    """A program at a terminal; `sees` waits until a text is on the screen."""

    def __init__(self, *words: str, home: Path, environment: dict[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SIT_DOWN, sys.executable, *words],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(home),
                "USER": "ann",
                "LOGNAME": "ann",
                "PYTHONPATH": str(SOURCE),
                "TERM": "xterm-256color",
                **environment,
            },
            cwd=home,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.raw = b""
        self._seen_to = 0
        self._news = asyncio.Event()
        self._is_over = False

    async def __aenter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._ours, self._read)
        return self

    async def __aexit__(self, *exc: object) -> None:
        asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)
        if self.process.poll() is None:
            self.process.kill()
        await asyncio.to_thread(self.process.wait, _WAIT_S)

    @property
    def screen(self) -> str:
        """All that was printed, without colours and cursor movements."""
        return _ESCAPES.sub(b"", self.raw).decode(errors="replace").replace("\r", "")

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def enter(self, line: str) -> None:
        self.type(line + "\r")

    async def sees(self, text: str) -> str:
        """Wait until a text appears after what was seen before; returns what came with it."""
        try:
            return await self._find(text)
        except TimeoutError:
            raise AssertionError(f"{text!r} never came:\n{self.screen}") from None

    async def _find(self, text: str) -> str:
        async with asyncio.timeout(_WAIT_S):
            while (place := self.screen.find(text, self._seen_to)) < 0:
                assert not self._is_over, f"{text!r} never came:\n{self.screen}"
                self._news.clear()
                await self._news.wait()
        began, self._seen_to = self._seen_to, place + len(text)
        return self.screen[began : self._seen_to]

    async def ends(self) -> int:
        """Wait for the end and return the exit code."""
        async with asyncio.timeout(_WAIT_S):
            while not self._is_over:
                self._news.clear()
                await self._news.wait()
        return await asyncio.to_thread(self.process.wait, _WAIT_S)

    async def is_left_by(self, key: str) -> int:
        """Press a key, once or twice, until the program has ended; returns the exit code.

        How often depends on whether the first press came before or after the turn's end.
        """
        for _ in range(2):
            self.type(key)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    return await self.ends()
        return await self.ends()

    def show(self, piece: bytes) -> tuple[int, int]:
        """Take what was printed, and return where the cursor is: row and column, from 1."""
        return 1, 1

    def _read(self) -> None:
        try:
            piece = os.read(self._ours, 65_536)
        except OSError:  # Linux says so when the other end is closed
            piece = b""
        if not piece:
            self._is_over = True
            asyncio.get_running_loop().remove_reader(self._ours)
        self.raw += piece
        row, column = self.show(piece)
        if b"\x1b[6n" in piece:  # where is the cursor?
            os.write(self._ours, b"\x1b[%d;%dR" % (row, column))
        self._news.set()
