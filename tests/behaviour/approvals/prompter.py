"""A program for tests: asks at its terminal again and again, and keeps the answers.

prompter.py ANSWERS TIMES
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from holdfast import ask_in_terminal
from holdfast.policy import CallRequest, decide
from holdfast.sessions import PermissionRule
from holdfast.tools.gate import ApprovalRequest


async def main(times: int) -> bytes:
    request = ApprovalRequest(
        call_id="call",
        tool="write",
        permission="write",
        targets=("a.txt",),
        arguments={"file_path": "a.txt", "content": "new"},
        agent_path="build",
        decision=decide(CallRequest(permission="write")),
        preview="--- a/a.txt\n+++ b/a.txt\n-old\x1b[2J\n+new",
        rules=(PermissionRule(permission="write", pattern="a.txt", action="allow"),),
    )
    given = [await ask_in_terminal.approve(request) for _ in range(times)]
    return msgspec.json.encode(given)


Path(sys.argv[1]).write_bytes(asyncio.run(main(int(sys.argv[2]))))
