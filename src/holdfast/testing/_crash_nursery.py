"""The process that scenarios are forked from: it imports them once, so that a child is quick.

It speaks JSON lines: one request on standard input, one answer on standard output.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from holdfast.testing import _crash_boundaries

_POLL_S = 0.001


def main() -> None:
    """Serve until standard input ends."""
    setup = json.loads(sys.stdin.readline())
    sys.path[:] = setup["path"]
    answers = os.fdopen(os.dup(1), "w")
    # What a scenario prints must not reach the channel.
    os.dup2(2, 1)
    scenario = load_scenario(setup["scenario"])
    if setup["is_warm"]:
        with tempfile.TemporaryDirectory() as place:
            scenario(os.path.join(place, "state"))
        # Collecting in a child would copy every page of what was imported here.
        gc.collect()
        gc.freeze()
    answers.write("{}\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(_serve(scenario, json.loads(line))) + "\n")
        answers.flush()


def load_scenario(name: str) -> Callable[[str], Any]:
    """Import `module:function`."""
    module, _, function = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in function.split("."):
        found = getattr(found, part)
    scenario: Callable[[str], Any] = found
    return scenario


def _serve(scenario: Callable[[str], Any], request: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _live(scenario, request)
    return {
        "status": _wait(child, started, request["kill_after_s"], request["timeout_s"]),
        "seconds": time.monotonic() - started,
    }


def _wait(child: int, started: float, kill_after_s: float | None, timeout_s: float) -> int:
    """Wait for the child's end, or bring it about; returns its exit status, -9 when killed."""
    limit = started + (timeout_s if kill_after_s is None else kill_after_s)
    status: int | None = None
    while status is None:
        found, raw = os.waitpid(child, os.WNOHANG)
        if found:
            status = os.waitstatus_to_exitcode(raw)
        elif time.monotonic() >= limit:
            os.kill(child, signal.SIGKILL)
            _, raw = os.waitpid(child, 0)
            status = os.waitstatus_to_exitcode(raw)
            if kill_after_s is None:
                status = -signal.SIGALRM
        else:
            time.sleep(_POLL_S)
    with contextlib.suppress(ProcessLookupError):
        # Whatever it started dies with it, as on a machine that lost its power.
        os.killpg(child, signal.SIGKILL)
    return status


def _live(scenario: Callable[[str], Any], request: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)
        output = os.open(request["output"], os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        log = os.open(request["log"], os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        _crash_boundaries.install(request["directory"], log, request["kill_at"], request["when"])
        scenario(request["directory"])
        code = 0
    except BaseException:  # noqa: BLE001 - the end of a process: told, not passed on
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(code)
