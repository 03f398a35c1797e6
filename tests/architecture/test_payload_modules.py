"""Every kind of event that Holdfast stores can be read by a process that only opens a runtime."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent


def test_every_module_with_payloads_is_loaded_or_declared() -> None:
    with_payloads = {
        file.relative_to(SOURCE.parent).with_suffix("").as_posix().replace("/", ".")
        for file in SOURCE.rglob("*.py")
        if re.search(r"^@payload\(", file.read_text(encoding="utf-8"), re.MULTILINE)
        and "testing" not in file.parts
    }
    code = "import sys, holdfast.runtime.runtime\n"
    code += "from holdfast.journal import list_known_kinds as known\n"
    code += "print(*{kind.__module__ for kind in known().values()})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert with_payloads - set(found.stdout.split()) == set()
