"""Call a tool's function in bounds: whatever it does, the run goes on.

The function runs in a task of its own. It can end neither the task that waits for it nor the
loop, and one that does not stop when it is told to is left behind. What it gives back is
checked before any caller keeps or shows it.

A coroutine that never waits costs no trip around the loop: its task starts at once. Python
3.12 does this by itself. For 3.11 the first step is taken here, as the task that takes the
other steps, with the calls that asyncio documents for it. That task is a seat: it stays with
the caller, and one coroutine after the other takes it, until one waits and keeps it.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from holdfast.errors import (
    ArtifactQuotaExceeded,
    HoldfastError,
    TellModel,
    ToolError,
    ToolTimeout,
    UsageError,
)
from holdfast.messages import ARTIFACT_SCHEME, FilePart
from holdfast.tools.context import ToolContext
from holdfast.tools.definition import Tool
from holdfast.tools.result import NestedCallWaits, Outcome, ToolResult

P = ParamSpec("P")
T = TypeVar("T")

MOST_KEPT_BYTES = 64 * 1024 * 1024
_MOST_METADATA_BYTES = 256 * 1024
_LONGEST_TITLE = 200

STOP_GRACE_S = 5.0
"""How long a call that was told to stop may take to do so."""

_left_behind: set[asyncio.Future[Outcome]] = set()


async def invoke(
    tool: Tool,
    values: Mapping[str, Any],
    context: ToolContext,
    *,
    limit_s: float,
    grace_s: float = STOP_GRACE_S,
) -> Outcome:
    """Call the tool with validated values and return what it gives back.

    Cancelling this stops the call first; at the latest after `grace_s`, no caller waits for it.

    Raises:
        ToolTimeout: it did not end in time.
        ToolError: it failed, tried to end the program, or cancelled itself.
        TellModel, HoldfastError: what the tool itself raises.
    """
    try:
        task = start_eagerly(_guard(tool, values, context))
    except (asyncio.CancelledError, GeneratorExit) as error:
        # No caller has waited yet, so it is the tool's own.
        raise _make_own_end(tool, error) from error
    if isinstance(task, Ended):
        return task.value
    try:
        await asyncio.wait((task,), timeout=limit_s)
        while not task.done() and context.threads.is_queued(task):
            # Nothing has run yet: other runs have all threads, and the limit is none on those.
            await asyncio.wait((task,), timeout=limit_s)
    except asyncio.CancelledError:
        await _stop(task, context, grace_s)
        raise
    if not task.done():
        await _stop(task, context, grace_s)
        raise ToolTimeout(tool=tool.name, limit_s=limit_s)
    try:
        return task.result()
    except (asyncio.CancelledError, GeneratorExit) as error:
        raise _make_own_end(tool, error) from error


def _make_own_end(tool: Tool, error: BaseException) -> ToolError:
    """Return the failure of a tool that ended its own task."""
    is_cancelled = isinstance(error, asyncio.CancelledError)
    detail = "it cancelled itself" if is_cancelled else type(error).__name__
    return ToolError(tool=tool.name, detail=detail)


async def _guard(tool: Tool, values: Mapping[str, Any], context: ToolContext) -> Outcome:
    try:
        return await tool.call(values, context)
    except (asyncio.CancelledError, GeneratorExit, TellModel, HoldfastError, NestedCallWaits):
        raise
    except BaseException as error:
        raise make_tool_failure(tool.name, error) from error


async def ask_aside(
    tool: Tool, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call what a tool has besides its function (a preview, a note); it fails as the tool does.

    Raises:
        ToolTimeout: it did not end in the time that the tool itself has.
        ToolError: it failed, or tried to end the program.
        TellModel, HoldfastError: what it raises itself.
    """
    try:
        async with asyncio.timeout(tool.timeout_s) as limit:
            return await function(*args, **kwargs)
    except (asyncio.CancelledError, GeneratorExit, TellModel, HoldfastError):
        raise
    except BaseException as error:
        if isinstance(error, TimeoutError) and limit.expired():
            raise ToolTimeout(tool=tool.name, limit_s=tool.timeout_s) from error
        raise make_tool_failure(tool.name, error) from error


def make_tool_failure(tool: str, error: BaseException) -> ToolError:
    """Return the failure of a tool that raised something."""
    detail = f"{type(error).__name__}: {_render_text(error)}".removesuffix(": ")
    return ToolError(tool=tool, detail=detail)


async def _stop(task: asyncio.Future[Outcome], context: ToolContext, grace_s: float) -> None:
    """Tell a call to stop and wait a little; one that goes on is left behind."""
    context.cancellation.cancel()
    task.cancel()
    _left_behind.add(task)
    task.add_done_callback(_forget)
    await asyncio.wait((task,), timeout=grace_s)


def _forget(task: asyncio.Future[Outcome]) -> None:
    """Let go of a call that no caller waits for, and of how it ended."""
    _left_behind.discard(task)
    if not task.cancelled():
        task.exception()


def _render_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - even this can be a tool's own code
        return ""


# --- results --------------------------------------------------------------------------


def check_result(result: ToolResult, tool: str) -> ToolResult:
    """Return a result that can be stored as JSON.

    A tool may put anything into a result; what has no JSON form must not get as far as the
    journal.

    Raises:
        ToolError: output, metadata or attachments are not what they should be.
    """
    output: object = result.output
    title: object = result.title
    if not isinstance(output, str) or not isinstance(title, str):
        raise ToolError(tool=tool, detail="its result has an output or a title that is no text")
    if not (output.isascii() and title.isascii()):
        sound = _drop_surrogates(output), _drop_surrogates(title)
        result = msgspec.structs.replace(result, output=sound[0], title=sound[1])
    if len(title) > _LONGEST_TITLE:
        result = msgspec.structs.replace(result, title=result.title[:_LONGEST_TITLE])
    if result.metadata:
        result = msgspec.structs.replace(result, metadata=_collect_metadata(result.metadata, tool))
    if result.attachments:
        _check_attachments(result.attachments, tool)
    return result


async def shorten(result: ToolResult, limit: int, context: ToolContext) -> ToolResult:
    """Return a result whose output has at most about `limit` characters.

    Nothing is lost: the whole (up to 64 MB) is saved, and its handle stands in the text and
    the metadata.
    """
    text = result.output
    if len(text) <= limit:
        return result
    data = text.encode(errors="replace")[:MOST_KEPT_BYTES]
    name = f"{context.call_id or 'call'}.txt"
    try:
        handle = await context.artifacts.save(name, data, media_type="text/plain")
    except ArtifactQuotaExceeded as error:
        where = f"; the rest was not kept: {error}"
        return msgspec.structs.replace(result, output=_cut_middle(text, limit, where))
    kept = f"artifact {handle} (read {ARTIFACT_SCHEME}{handle})"
    return msgspec.structs.replace(
        result,
        output=_cut_middle(text, limit, f"; the whole is {kept}"),
        metadata={**result.metadata, "artifact": handle, "full_length": len(text)},
    )


async def keep_attachments(result: ToolResult, context: ToolContext) -> ToolResult:
    """Return a result whose files are artifacts: the journal names them, and holds none.

    One that the quota has no room for is left out, and the output says so.
    """
    kept: list[FilePart] = []
    output = result.output
    for number, file in enumerate(result.attachments, 1):
        if file.data is None:
            kept.append(file)
            continue
        try:
            handle = await _save_file(file, number, context)
        except ArtifactQuotaExceeded as error:
            output += f"\n(A file was left out: {error})"
        else:
            url = f"{ARTIFACT_SCHEME}{handle}"
            kept.append(msgspec.structs.replace(file, data=None, url=url))
    return msgspec.structs.replace(result, output=output, attachments=tuple(kept))


async def _save_file(file: FilePart, number: int, context: ToolContext) -> str:
    """Keep a file under its own name and type, as far as they can be ones."""
    data, store = file.data or b"", context.artifacts
    unnamed = f"{context.call_id or 'call'}-{number}"
    try:
        return await store.save(file.name or unnamed, data, media_type=file.media_type)
    except UsageError:
        return await store.save(unnamed, data)


def clip(text: str, limit: int) -> str:
    """Return text that can be stored, with head and tail of one that is too long."""
    return _drop_surrogates(text if len(text) <= limit else _cut_middle(text, limit, ""))


def _collect_metadata(metadata: object, tool: str) -> dict[str, object]:
    try:
        data = msgspec.json.encode(metadata)
        if len(data) > _MOST_METADATA_BYTES:
            return {"left_out": f"metadata of {len(data)} bytes"}
        return msgspec.json.decode(data, type=dict[str, object])
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ToolError(tool=tool, detail=f"its metadata has no JSON form: {error}") from error


def _check_attachments(attachments: object, tool: str) -> None:
    try:
        msgspec.json.decode(msgspec.json.encode(attachments), type=tuple[FilePart, ...])
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ToolError(tool=tool, detail=f"its attachments are no file parts: {error}") from error


def _cut_middle(text: str, limit: int, where: str) -> str:
    head, tail = text[: limit * 2 // 3], text[-(limit // 3) :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n\n[... {left_out} characters left out{where} ...]\n\n{tail}"


def _drop_surrogates(text: str) -> str:
    """Half characters cannot be stored as UTF-8; the same object comes back if there are none."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()


# --- tasks that start at once ---------------------------------------------------------


class Ended(msgspec.Struct, Generic[T], frozen=True):
    """What a coroutine returned that never waited."""

    value: T


class _Seat(Coroutine[Any, Any, Any]):
    """What a task executes that is there before its coroutine: first nothing, then a guest."""

    def __init__(self, loop: asyncio.AbstractEventLoop, context: contextvars.Context) -> None:
        self.context = context
        self._is_taken: asyncio.Future[None] = loop.create_future()
        self._guest: Coroutine[Any, Any, Any] | None = None
        self._first: tuple[object, ...] = ()
        self.task: asyncio.Task[Any] = asyncio.Task(self, loop=loop, context=context)

    def take(self, guest: Coroutine[Any, Any, Any], waits_for: object) -> None:
        """Let the task go on with a coroutine that has taken its first step, and waits now."""
        self._guest, self._first = guest, (waits_for,)
        del self.task  # which holds the seat: a circle
        if not self._is_taken.done():
            self._is_taken.set_result(None)

    def leave(self, caller: asyncio.Task[Any]) -> None:
        """Let the task end; nobody comes any more."""
        del self.task
        self._is_taken.cancel()
        if _seats.get(caller) is self:
            del _seats[caller]

    # --- for the task -----------------------------------------------------------------

    def send(self, value: Any) -> Any:  # noqa: ANN401 - passed on as it came
        if self._guest is None:
            return next(self._is_taken.__await__())
        if self._first:
            [waits_for], self._first = self._first, ()
            return waits_for
        return self._guest.send(value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - passed on as it came
        try:
            if self._guest is None:
                raise error[0]
            self._first = ()
            return self._guest.throw(*error)
        finally:
            del error  # whose traceback holds this frame: a circle

    def close(self) -> None:
        if self._guest is not None:
            self._guest.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise UsageError(detail="Only a task executes this.")


_seats: dict[asyncio.Task[Any], _Seat] = {}
"""Where the next coroutine of a task sits, as long as the task is not done."""


def _start_by_hand(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T] | Ended[T]:
    loop = asyncio.get_running_loop()
    caller = asyncio.current_task(loop)
    assert caller is not None
    context = contextvars.copy_context()
    seat = _seats.get(caller)
    # The coroutine finds here what its caller sees, and nothing else.
    if seat is None or seat.context != context or seat.task.cancelling() or seat.task.done():
        if seat is not None:
            caller.remove_done_callback(seat.leave)
            seat.leave(caller)
        seat = _seats[caller] = _Seat(loop, context)
        caller.add_done_callback(seat.leave)
    task = seat.task
    asyncio.tasks._leave_task(loop, caller)
    asyncio.tasks._enter_task(loop, task)
    try:
        waits_for = seat.context.run(coroutine.send, None)
    except StopIteration as end:
        if task.cancelling():  # a task that cancels itself and ends is cancelled
            raise asyncio.CancelledError from None
        return Ended(end.value)
    finally:
        asyncio.tasks._leave_task(loop, task)
        asyncio.tasks._enter_task(loop, caller)
    seat.take(coroutine, waits_for)
    del _seats[caller]
    caller.remove_done_callback(seat.leave)
    return task


if sys.version_info >= (3, 12):

    def start_eagerly(coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T] | Ended[T]:
        """Run a coroutine in a task of its own, at once up to where it first waits.

        Raises:
            BaseException: what it raises before it waits; `CancelledError` is its own, too.
        """
        task = asyncio.Task(coroutine, loop=asyncio.get_running_loop(), eager_start=True)
        return Ended(task.result()) if task.done() else task

else:
    start_eagerly = _start_by_hand
