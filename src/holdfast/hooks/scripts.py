"""Hooks that are commands: the payload as JSON on stdin, the verdict as JSON on stdout.

    stdin   {"point": "tool.before_execution", "payload": {...}}
    stdout  {"verdict": "cancel", "reason": "not on a Friday"}
            {"verdict": "modify", "changes": {"arguments": {...}}}
            {"verdict": "replace", "value": "..."}      {"verdict": "retry"}
            nothing, or {"verdict": "continue"}

The command is a list of words, never a shell line. It is executed by a runner that is handed
in, so that it stands behind the same sandbox as every other process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import SandboxFailed, UsageError
from holdfast.hooks.points import HookPayload
from holdfast.hooks.verdicts import (
    CONTINUE,
    Cancel,
    Modify,
    Replace,
    Retry,
    Verdict,
    VerdictName,
)

_LARGEST_ANSWER = 1024 * 1024


class ScriptOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended."""

    exit_code: int
    stdout: bytes
    stderr: bytes = b""


class ScriptRunner(Protocol):
    """Executes a command for a hook."""

    async def run(self, argv: Sequence[str], stdin: bytes, *, timeout_s: float) -> ScriptOutcome:
        """Execute a command, confined, and return how it ended; stop it when time is up."""
        ...


class NoScripts:
    """Refuses to execute commands for hooks."""

    async def run(self, argv: Sequence[str], stdin: bytes, *, timeout_s: float) -> ScriptOutcome:
        """Refuse."""
        raise SandboxFailed(detail="script hooks need a runner, and none was given")


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    verdict: VerdictName = "continue"
    changes: JsonObject = msgspec.field(default_factory=dict)
    reason: str = ""
    value: Any = None


class ScriptHook:
    """A hook that asks a command."""

    def __init__(self, argv: Sequence[str], runner: ScriptRunner, *, timeout_s: float) -> None:
        """Keep the command; it is a list of words, the first one names the program.

        Raises:
            UsageError: it is empty, or a single text instead of a list.
        """
        if isinstance(argv, str) or not argv or not all(isinstance(word, str) for word in argv):
            raise UsageError(detail="A script hook is a list of words, such as ['./check', '-q'].")
        self.argv = tuple(argv)
        self.name = f"script:{argv[0]}"
        self._runner = runner
        self._timeout_s = timeout_s

    async def __call__(self, payload: HookPayload) -> Verdict:
        """Run the command and return its verdict.

        Raises:
            ValueError: it failed, or its answer cannot be read.
        """
        told = msgspec.json.encode({"point": payload.point, "payload": payload})
        ended = await self._runner.run(self.argv, told, timeout_s=self._timeout_s)
        if ended.exit_code != 0:
            said = ended.stderr.decode(errors="replace").strip()[:500]
            raise ValueError(f"it ended with code {ended.exit_code}: {said}")
        if len(ended.stdout) > _LARGEST_ANSWER:
            raise ValueError(f"its answer is larger than {_LARGEST_ANSWER} bytes")
        if not ended.stdout.strip():
            return CONTINUE
        return _make_verdict(payload, msgspec.json.decode(ended.stdout, type=_Answer))


def _make_verdict(payload: HookPayload, answer: _Answer) -> Verdict:
    match answer.verdict:
        case "modify":
            unknown = sorted(set(answer.changes) - set(payload.__struct_fields__))
            if unknown:
                raise ValueError(f"it changes {', '.join(unknown)}, which {payload.point} lacks")
            plain = msgspec.to_builtins(payload)
            return Modify(msgspec.convert({**plain, **answer.changes}, type(payload)))
        case "cancel":
            return Cancel(answer.reason or "a script said no")
        case "replace":
            return Replace(answer.value, answer.reason)
        case "retry":
            return Retry(answer.reason)
    return CONTINUE
