"""What tools may ask of the runtime, each as a small protocol beside a plain version.

The plain versions are safe to hand out when nothing better is there: they keep things
in memory, or refuse and say why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from holdfast.artifacts import Artifact, ArtifactScope
from holdfast.canonical import JsonObject, hash_sha256
from holdfast.errors import NotFound, PermissionDenied, SandboxFailed
from holdfast.messages import ToolPart

if TYPE_CHECKING:
    from holdfast.sandbox import SandboxLimits, SandboxRunner, Workspace


class ProgressUpdate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a call is; `fraction` is between 0 and 1 where the tool knows."""

    call_id: str
    text: str
    fraction: float | None = None


ProgressSink: TypeAlias = Callable[[ProgressUpdate], None]


class Cancellation:
    """Says to a call that no caller waits for it any more; any thread may look at it.

    `async def` tools are cancelled as tasks and rarely need it; a `def` tool that runs
    long should look at it now and then.
    """

    is_cancelled = False
    """Whether the call should stop; it is only ever looked at, so a flag is enough."""

    def cancel(self) -> None:
        """Ask the call to stop."""
        self.is_cancelled = True

    def raise_if_cancelled(self) -> None:
        """Leave the tool if the call should stop."""
        if self.is_cancelled:
            raise asyncio.CancelledError


# --- artifacts -----------------------------------------------------------------------


class ToolArtifacts(Protocol):
    """Where tools leave files, and what is too large for an answer; found by their handle."""

    async def save(
        self,
        name: str,
        data: bytes | AsyncIterable[bytes],
        *,
        media_type: str = "",
        tags: tuple[str, ...] = (),
        scope: ArtifactScope | None = None,
    ) -> str:
        """Keep the data and return a handle by which `load` finds it.

        A name that is there already gets a new version. Secrets are taken out of text; other
        content, and what comes as a stream, is kept to the byte. Without a `scope` it belongs
        to the session.
        """
        ...

    async def load(self, handle: str) -> bytes:
        """Return what was saved, checked.

        Raises:
            NotFound: nothing was saved under this handle, or not for this session.
            ArtifactDamaged: it is not what was saved.
        """
        ...

    def stream(self, handle: str) -> AsyncGenerator[bytes, None]:
        """Yield what was saved in pieces of up to a megabyte; raises as `load` does."""
        ...

    async def list(self, name: str = "", *, limit: int = 50) -> tuple[Artifact, ...]:
        """Return what this session may read, newest first; `name` is a part of the name."""
        ...

    async def delete(self, handle: str) -> None:
        """Delete what was saved; raises NotFound."""
        ...


class MemoryArtifacts:
    """Artifacts that live as long as this object, by the hash of their content."""

    def __init__(self) -> None:
        """Start empty."""
        self._blobs: dict[str, tuple[Artifact, bytes]] = {}

    async def save(
        self,
        name: str,
        data: bytes | AsyncIterable[bytes],
        *,
        media_type: str = "",
        tags: tuple[str, ...] = (),
        scope: ArtifactScope | None = None,
    ) -> str:
        """Keep the data and return its handle."""
        content = data if isinstance(data, bytes) else b"".join([one async for one in data])
        handle = hash_sha256(content)
        artifact = Artifact(
            id=handle,
            name=name,
            digest=handle,
            size=len(content),
            media_type=media_type,
            kind="tool_result",
            tags=tags,
            scope=scope or "session",
            scope_id="",
            tenant="",
            owner="",
            version=1,
            previous="",
            time=0.0,
        )
        self._blobs[handle] = (artifact, content)
        return handle

    async def load(self, handle: str) -> bytes:
        """Return what was saved, or raise NotFound."""
        if handle not in self._blobs:
            raise NotFound(kind="artifact", value=handle)
        return self._blobs[handle][1]

    async def stream(self, handle: str) -> AsyncGenerator[bytes, None]:
        """Yield what was saved, or raise NotFound."""
        yield await self.load(handle)

    async def list(self, name: str = "", *, limit: int = 50) -> tuple[Artifact, ...]:
        """Return what was saved, newest first."""
        found = [one for one, _ in self._blobs.values() if name.lower() in one.name.lower()]
        return tuple(reversed(found))[:limit]

    async def delete(self, handle: str) -> None:
        """Delete what was saved, or raise NotFound."""
        await self.load(handle)
        del self._blobs[handle]


# --- network -------------------------------------------------------------------------


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, already read; `url` is where it came from after redirects."""

    url: str
    status: int
    headers: dict[str, str]
    body: bytes
    is_truncated: bool = False

    @property
    def media_type(self) -> str:
        """The content type without its parameters, in lower case."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask for, and how much to take."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    body: bytes = b""
    max_bytes: int = 5 * 1024 * 1024
    timeout_s: float = 30.0


class HttpClient(Protocol):
    """The one way from a tool to the network."""

    async def fetch(self, request: HttpRequest) -> HttpResponse:
        """Send a request and read the answer, redirects followed.

        Raises:
            PermissionDenied: the host or one of its addresses is not allowed.
            NetworkFailed: it could not be reached, or did not answer in time.
        """
        ...


class ClosedNetwork:
    """A client that refuses every request."""

    async def fetch(self, request: HttpRequest) -> HttpResponse:
        """Refuse."""
        raise PermissionDenied(
            permission="network", target=request.url, because="the network is closed (ALLOW_NET)"
        )


# --- commands ------------------------------------------------------------------------


PassedBy: TypeAlias = Literal["rules", "sandbox", "person"]
"""What let a call pass: rules that allow it, rules that name no commands because the sandbox is the
boundary, or a person who approved exactly this call."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run in a directory of the workspace."""

    text: str
    directory: str = "."
    passed_by: PassedBy = "rules"
    timeout_s: float = 120.0
    max_output_bytes: int = 1024 * 1024


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended; head and tail of long output are kept, the middle is not.

    `exit_code` is negative when a signal ended it. `stopped` says why we ended it:
    `timeout`, `output`, `memory`, `disk`, or empty.
    """

    exit_code: int
    stdout: str
    stderr: str
    stopped: str = ""
    is_truncated: bool = False
    sandbox: str = ""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program that reads `given` and answers on its output, with the rights that it needs.

    `workspace` is what it may do there; with `none` it runs in the first of `readable` and does
    not see the workspace. `readable` and `writable` are further directories.
    """

    argv: tuple[str, ...]
    given: bytes = b""
    workspace: Literal["none", "read", "write"] = "read"
    has_network: bool = False
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    timeout_s: float = 120.0
    max_output_bytes: int = 8 * 1024 * 1024


class OpensReader(Protocol):
    """Opens sandboxes for processes that only read, as `runtime.ProcessEnvironment` does."""

    def __call__(
        self,
        workspace: Workspace | str,
        *,
        limits: SandboxLimits = ...,
        environment: Mapping[str, str] = ...,
        readable: tuple[str, ...] = (),
    ) -> SandboxRunner:
        """Return what runs processes in a workspace without writing and without a network.

        The caller closes it. `environment` is all that a process sees of the application's.
        """
        ...


def refuse_processes(workspace: Workspace | str, **_rights: object) -> SandboxRunner:
    """Refuse every process; an `OpensReader` for contexts without a runtime.

    Raises:
        SandboxFailed: always.
    """
    raise SandboxFailed(detail="no process can be started here: nothing confines it")


class CommandRunner(Protocol):
    """The one way from a tool to a process."""

    async def run(self, command: Command) -> CommandResult:
        """Run a command to its end; cancelling ends its whole process tree.

        Raises:
            SandboxFailed: it cannot be confined here, so it was not started.
            PermissionDenied: the command is not allowed.
        """
        ...

    async def run_program(self, program: Program) -> CommandResult:
        """Run a program that is no command of a model's, with no more rights than it names.

        Nothing of its output is left out: one that writes too much is stopped.

        Raises:
            SandboxFailed: it cannot be confined here, so it was not started.
            PermissionDenied: it needs what this run may not do.
        """
        ...


class NoCommands:
    """A runner that refuses every command."""

    async def run(self, command: Command) -> CommandResult:
        """Refuse."""
        raise SandboxFailed(detail="no command runner was configured, so nothing is executed")

    async def run_program(self, program: Program) -> CommandResult:
        """Refuse."""
        raise SandboxFailed(detail="no command runner was configured, so nothing is executed")


# --- calls of calls ------------------------------------------------------------------


class NestedCalls(Protocol):
    """The way from a tool to other tools: through the same gate, recorded like any call."""

    async def run(self, calls: Sequence[tuple[str, JsonObject]]) -> tuple[ToolPart, ...]:
        """Execute calls, given as name and arguments, and return their results in order."""
        ...


class NoNestedCalls:
    """Refuses, because nothing that executes tools stands behind the call."""

    async def run(self, calls: Sequence[tuple[str, JsonObject]]) -> tuple[ToolPart, ...]:
        """Refuse."""
        raise SandboxFailed(detail="tools can only be called from inside a run")


# --- people --------------------------------------------------------------------------


class Option(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One choice of a question."""

    label: str
    description: str = ""


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question for the person who attends the run."""

    question: str
    header: str = ""
    options: tuple[Option, ...] = ()
    is_multiple: bool = False


class Attendant(Protocol):
    """Can answer questions while the run goes on."""

    async def ask(self, questions: Sequence[Question]) -> tuple[tuple[str, ...], ...] | None:
        """Return the chosen answers for each question, or None if no approver is there."""
        ...


class NoAttendant:
    """No approver is there; the caller that asks has to park."""

    async def ask(self, questions: Sequence[Question]) -> tuple[tuple[str, ...], ...] | None:
        """Return None."""
        return None


def ignore_progress(update: ProgressUpdate) -> None:
    """Drop a progress update."""


__all__ = [
    "Attendant",
    "Cancellation",
    "ClosedNetwork",
    "Command",
    "CommandResult",
    "CommandRunner",
    "HttpClient",
    "HttpRequest",
    "HttpResponse",
    "MemoryArtifacts",
    "NestedCalls",
    "NoAttendant",
    "NoCommands",
    "NoNestedCalls",
    "Option",
    "Program",
    "ProgressSink",
    "ProgressUpdate",
    "Question",
    "ToolArtifacts",
    "ignore_progress",
]
