"""Read a command line, say what it would do, and compare it with an allowlist.

Pure: nothing here starts a process or looks at a file. What `parse_command` returns is
what the sandbox executes, program by program, without a shell in between.
"""

from holdfast.policy.commands.allowlist import is_allowed_by
from holdfast.policy.commands.classify import (
    Classification,
    CommandKind,
    classify_argv,
    classify_command,
)
from holdfast.policy.commands.model import (
    ParsedCommand,
    Pipeline,
    Redirection,
    SimpleCommand,
    render_canonical_text,
)
from holdfast.policy.commands.parse import parse_command

__all__ = [
    "Classification",
    "CommandKind",
    "ParsedCommand",
    "Pipeline",
    "Redirection",
    "SimpleCommand",
    "classify_argv",
    "classify_command",
    "is_allowed_by",
    "parse_command",
    "render_canonical_text",
]
