"""The command line logs to standard error, as the settings say, and without secrets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

SECRET = "hunter2-hunter2-hunter2"
PROGRAM = """
import logging
from holdfast.cli.frame import Invocation
assert Invocation().settings.log.format == "json"
logging.getLogger("library").info("using %s", "hunter2-hunter2-hunter2")
raise RuntimeError("hunter2-hunter2-hunter2")
"""


def test_line_of_a_library_and_an_uncaught_error_come_out_redacted(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "MY_PASSWORD": SECRET,
        "HOLDFAST_LOG_LEVEL": "info",
        "HOLDFAST_LOG_FORMAT": "json",
        "HOME": str(tmp_path),
    }
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stdout, ended.returncode) == ("", 1)
    assert SECRET not in ended.stderr
    first, last = [json.loads(line) for line in ended.stderr.splitlines()]
    assert (first["message"], first["log.logger"]) == ("using [redacted:my-password]", "library")
    assert "RuntimeError: [redacted:my-password]" in last["error.stack_trace"]
