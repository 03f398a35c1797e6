"""Runs in the background: a process of their own, which waits for answers and goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from holdfast.cli.frame import Invocation
from holdfast.cli.loop import LoopWishes
from holdfast.cli.output import emit, say
from holdfast.errors import HoldfastError, NotFound, ToolError
from holdfast.ids import make_id
from holdfast.sync import Client

FOLDER: Final = "detached"
_BEGIN_S: Final = 30.0
_LOOK_S: Final = 0.1
_OPTIONS: Final = {"storage.state_dir": "--state-dir", "workspace": "--workspace"}


def start_detached(invocation: Invocation, goal: str, session: str, wishes: LoopWishes) -> None:
    """Start a run in a process of its own, and return when it has begun.

    Raises:
        HoldfastError: it did not begin; the text says what its process said.
    """
    run_id = wishes.run_id or make_id("run")
    words = [sys.executable, "-m", "holdfast", "run", "--attend", "--park", "--run-id", run_id]
    given = {"--agent": wishes.agent, "--model": wishes.model, "--session": session}
    for name, option in _OPTIONS.items():
        given[option] = str(invocation.overrides.get(name, ""))
    for option, value in given.items():
        words += [option, value] if value else []
    words += ["--auto-confirm"] if wishes.auto_confirm else []
    words += ["--plugins"] if wishes.plugins else []
    folder = Path(invocation.settings.storage_path) / FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = folder / f"{run_id}.log"
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        process = subprocess.Popen(
            [*words, "--", goal],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    finally:
        os.close(file)
    _await_begin(invocation, run_id, process, log)
    if invocation.is_text:
        say(f"The run {run_id} works in the background.")
        say(f"Follow and attend it: holdfast runs attach {run_id}", err=True)
    else:
        emit({"run_id": run_id, "pid": process.pid, "log": str(log)})


def _await_begin(
    invocation: Invocation, run_id: str, process: subprocess.Popen[bytes], log: Path
) -> None:
    with Client(invocation.place, settings=invocation.settings) as client:
        ends = time.monotonic() + _BEGIN_S
        while time.monotonic() < ends:
            try:
                client.runs.get(run_id)
            except NotFound:
                pass
            else:
                return
            if process.poll() is not None:
                break
            time.sleep(_LOOK_S)
    said = log.read_text(errors="replace").strip()[-2_000:]
    raise _make_not_begun(said)


def _make_not_begun(said: str) -> HoldfastError:
    return ToolError(tool="run --detach", detail=f"the run did not begin; its process said: {said}")


__all__ = ["start_detached"]
