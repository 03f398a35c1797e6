"""What Ctrl-C does in a process of the command line.

The first one ends the work: what is under way is cancelled and written down as such. Those
that follow within a moment belong to the same gesture and are absorbed, so that nothing cuts
the clean-up short. A later one, or a clean-up that takes too long, leaves at once. That is
safe, because the journal is: the person who comes next finds the session as after a crash.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from holdfast.clock import SYSTEM, Clock

GESTURE_S: Final = 1.0
"""Presses within this time after the first one are the same gesture."""
MOST_S: Final = 10.0
"""How long a clean-up may take."""
_STDIN: Final = 0
_STDERR: Final = 2
_SHOW_CURSOR: Final = b"\x1b[?25h"
_LEFT: Final = b"\nLeft at once; what was recorded is kept.\n"


class Interrupts:
    """Listens to Ctrl-C; `INTERRUPTS` is the one of this process."""

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM,
        most_s: float = MOST_S,
        end: Callable[[int], object] = os._exit,
    ) -> None:
        """Change nothing yet; `end` ends the process, whatever is under way."""
        self._clock = clock
        self._most_s = most_s
        self._end = end
        self._first_at: float | None = None
        self._cancel: Callable[[], object] | None = None
        self._wind_down: Callable[[], object] | None = None
        self._is_installed = False
        self._terminal: list[Any] | None = None

    @property
    def is_ending(self) -> bool:
        """Whether Ctrl-C has ended the work."""
        return self._first_at is not None

    def install(self) -> None:
        """Listen from now on, unless another listener does or Ctrl-C is ignored (as by `nohup`)."""
        is_ours = threading.current_thread() is threading.main_thread()
        if is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._is_installed = True
            self._terminal = _read_terminal_state()
            signal.signal(signal.SIGINT, self._press)

    @contextlib.contextmanager
    def cancelling(
        self, cancel: Callable[[], object], *, wind_down: Callable[[], object] | None = None
    ) -> Iterator[None]:
        """Meanwhile call `cancel` on Ctrl-C, instead of raising KeyboardInterrupt.

        With `wind_down` the first Ctrl-C calls that, and the next one ends the work.
        Both are called between any two instructions of the main thread: they may only hand
        something to a loop.
        """
        self._cancel, self._wind_down = cancel, wind_down
        try:
            yield
        finally:
            self._cancel = self._wind_down = None

    @contextlib.contextmanager
    def as_usual(self) -> Iterator[None]:
        """Let Ctrl-C raise KeyboardInterrupt, as at a prompt; one that comes out ends the work."""
        if not self._is_installed:
            yield
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        except KeyboardInterrupt:
            self._begin_to_end()
            raise
        finally:
            signal.signal(signal.SIGINT, self._press)

    def leave(self, code: int) -> NoReturn:
        """End the process now, with the terminal as it was found; nothing is waited for."""
        _restore_terminal(self._terminal)
        self._end(code)
        raise SystemExit(code)

    def _press(self, _number: int, _frame: object) -> None:
        if self._first_at is not None:
            if self._clock.monotonic() - self._first_at >= GESTURE_S:
                self._leave_at_once()
        elif self._wind_down is not None:
            wind_down, self._wind_down = self._wind_down, None
            wind_down()
        else:
            self._begin_to_end()
            if self._cancel is None:
                raise KeyboardInterrupt
            self._cancel()

    def _begin_to_end(self) -> None:
        if self._first_at is None:
            self._first_at = self._clock.monotonic()
            # Not threading.Thread: this may run while the main thread holds that module's lock.
            _thread.start_new_thread(self._bound, ())

    def _bound(self) -> None:
        time.sleep(self._most_s)
        self._leave_at_once()

    def _leave_at_once(self) -> None:
        if os.isatty(_STDERR):
            with contextlib.suppress(OSError):
                os.write(_STDERR, _LEFT)
        with contextlib.suppress(SystemExit):
            self.leave(128 + signal.SIGINT)  # ExitCode.INTERRUPTED


def flush_output() -> None:
    """Write out what was printed; a reader that is gone is no matter."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _read_terminal_state() -> list[Any] | None:
    """How the terminal is set now; `None` without one."""
    with contextlib.suppress(termios.error, OSError):
        return termios.tcgetattr(_STDIN)
    return None


def _restore_terminal(state: list[Any] | None) -> None:
    """Set the terminal as it was, with its cursor; only from the foreground may one do so."""
    with contextlib.suppress(termios.error, OSError):
        if state is not None and os.tcgetpgrp(_STDIN) == os.getpgrp():
            termios.tcsetattr(_STDIN, termios.TCSANOW, state)
            os.write(_STDIN, _SHOW_CURSOR)


INTERRUPTS: Final = Interrupts()
"""Ctrl-C in this process; `main` installs it."""
