"""What the machine did is told from what the work did, and ends no run."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from holdfast.errors import HoldfastError, RunInterrupted, StorageFull, ToolError, UsageError
from holdfast.sessions import Session
from holdfast.turns import Outcome, Turn, TurnCompleted, TurnQueue, is_exhaustion, is_machine_fault


def caused_by(cause: BaseException, *, is_hidden: bool = False) -> UsageError:
    error = UsageError(detail="the directory cannot be opened")
    if is_hidden:
        error.__context__ = cause
    else:
        error.__cause__ = cause
    return error


def _suppressed() -> UsageError:
    error = caused_by(OSError(errno.EIO, "I/O error"), is_hidden=True)
    error.__suppress_context__ = True
    return error


def _circle() -> UsageError:
    first, second = UsageError(detail="a"), UsageError(detail="b")
    first.__cause__, second.__cause__ = second, first
    return first


FAULTS: dict[str, tuple[Callable[[], BaseException], bool, bool]] = {
    "files": (lambda: OSError(errno.EMFILE, "Too many open files"), True, True),
    "below": (lambda: caused_by(OSError(errno.EMFILE, "Too many open files")), True, True),
    "while": (lambda: caused_by(OSError(errno.ENOMEM, "memory"), is_hidden=True), True, True),
    "memory": (MemoryError, True, True),
    "threads": (lambda: RuntimeError("can't start new thread"), True, True),
    "child": (lambda: RunInterrupted(run_id="r", agent="a", detail="x", advice="y"), True, True),
    "group": (lambda: ExceptionGroup("both", [OSError(errno.EIO, "x")]), True, False),
    "disk": (lambda: OSError(errno.ENOSPC, "No space"), True, False),
    "store": (lambda: StorageFull(path="journal.db"), True, False),
    "missing": (lambda: FileNotFoundError(errno.ENOENT, "missing"), False, False),
    "runtime": (lambda: RuntimeError("no"), False, False),
    "tool": (lambda: ToolError(tool="t", detail="no"), False, False),
    "suppressed": (_suppressed, False, False),
    "circle": (_circle, False, False),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_the_machine_are_told_from_those_of_the_work(name: str) -> None:
    make, is_fault, is_scarce = FAULTS[name]
    assert (is_machine_fault(make()), is_exhaustion(make())) == (is_fault, is_scarce)


@pytest.mark.parametrize("name", FAULTS)
async def test_a_fault_of_the_machine_leaves_the_run_to_be_resumed(
    queue: TurnQueue, session: Session, name: str
) -> None:
    make, is_fault, _ = FAULTS[name]

    async def fail(turn: Turn) -> Outcome:
        raise make()

    async def complete(turn: Turn) -> Outcome:
        assert turn.is_resumed
        return TurnCompleted()

    run = await queue.submit(session.id)
    if not is_fault:
        assert (await queue.run(run.id, fail)).status == "failed"
        return
    with pytest.raises((HoldfastError, OSError, MemoryError, RuntimeError, ExceptionGroup)):
        await queue.run(run.id, fail)
    assert (await queue.get(run.id)).status == "running"
    assert (await queue.run(run.id, complete)).status == "completed"
