"""Ctrl-C in a program that waits for the blocking client. (8.1)"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, signal, sys, threading
from holdfast import Client
from holdfast.turns import TurnCompleted

signal.signal(signal.SIGINT, signal.default_int_handler)
client = Client(sys.argv[1])
session = client.create_session("Waiting")
ended = threading.Event()

async def run(asynchronous):
    queue = await asynchronous.runs.turns()
    submitted = await queue.submit(session.id, run_id="job-1")

    async def handler(turn):
        print("begun", flush=True)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await queue.run(submitted.id, handler)

try:
    client._portal.call("run", run(client._client))
except KeyboardInterrupt:
    print("interrupted", ended.is_set(), flush=True)

async def status(asynchronous):
    return (await (await asynchronous.runs.turns()).get("job-1")).status

print(client._portal.call("status", status(client._client)), flush=True)
client.close()
"""


def test_ctrl_c_while_waiting_cancels_the_work_and_leaves_the_client_usable(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "state")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
    assert rest.splitlines() == ["interrupted True", "cancelled"]
    assert process.returncode == 0
