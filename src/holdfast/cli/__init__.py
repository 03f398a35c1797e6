"""The command line: one file per command, loaded when it is called.

`app.py` holds the root command and `main`, `commands.py` the table of commands,
`frame.py` the classes that commands are made of, `output.py` what prints results and
`failures.py` what prints errors and chooses the exit code.
"""

from __future__ import annotations

from holdfast.cli.app import main

__all__ = ["main"]
