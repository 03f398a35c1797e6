"""A program that forks after a run: the child works on, or is told why it cannot."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WAIT_S = 60
PROGRAM = """
import asyncio, os, sys, threading
from holdfast import Agent, Client, tool
from holdfast.errors import UsageError
from holdfast.testing import ScriptedModel, tool_call
from holdfast.tools import builtin_tools

@tool(effect="read")
def look(word: str) -> str:
    "Look a word up, in a thread."
    return f"{word} {threading.current_thread().name}"

def run(client, run_id):
    calls = [tool_call("look", word="up"),
             tool_call("write", file_path=f"{run_id}.txt", content="x"),
             tool_call("bash", command=f"touch {run_id}.bash.txt")]
    model = ScriptedModel(*calls, "done")
    agent = Agent("forker", model=model, tools=[look, *builtin_tools()],
                  permission=[{"permission": "*", "pattern": "*", "action": "allow"}])
    result = agent.run_sync("go", run_id=run_id, client=client)
    assert result.status == "completed", result
    return result.response

place = sys.argv[1]
os.chdir(sys.argv[2])
before = Client(place)
print(run(before, "run_before"), flush=True)
for number in range(2):
    child = os.fork()
    if child == 0:
        try:
            before.sessions.list()
            os._exit(9)
        except UsageError:
            pass
        with Client(place) as mine:
            assert run(mine, f"run_child{number}") == "done"
            # A fork of a fork, with a client open in both.
            grandchild = os.fork()
            if grandchild == 0:
                with Client(place) as own:
                    assert run(own, f"run_grandchild{number}") == "done"
                os._exit(0)
            _, status = os.waitpid(grandchild, 0)
            assert os.waitstatus_to_exitcode(status) == 0
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    print(run(before, f"run_after{number}"), flush=True)
before.close()
with Client(place) as client:
    runs = sorted(run.id for run in client.runs.list())
    findings = client.audit.verify()
    print(len(runs), findings.findings if hasattr(findings, "findings") else findings)
"""


def test_a_program_that_forks_after_a_run_goes_on_in_both_processes(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "state"), str(work)],
        capture_output=True,
        timeout=WAIT_S,
        check=False,
        text=True,
    )
    assert ended.stdout == "done\ndone\ndone\n7 []\n", ended.stderr
    assert len(list(work.glob("*.txt"))) == 14
