"""Client: the blocking facade, over one background loop.

Every method of `AsyncClient` is forwarded, one line each; nothing is written twice. Calls may
come from any thread, also from inside a running event loop (which they block, as blocking
calls do). A call from the background loop itself could never return and is refused.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar

from holdfast.client import AsyncClient
from holdfast.client.base import forked
from holdfast.errors import UsageError, WouldDeadlock

if TYPE_CHECKING:
    from holdfast.hooks import ExecutionContext, Hooks
    from holdfast.redaction import Redactor
    from holdfast.settings import Settings
    from holdfast.tools.gate import Approver

P = ParamSpec("P")
T = TypeVar("T")

_CLEAN_UP_S: Final = 10.0
"""How long Ctrl-C waits for the end of what it cancelled."""
_LOOK_S: Final = 0.2


class _Portal:
    """A thread with an event loop, for as long as a client lives."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = _new_loop()
        # Reentrant: an iterator may be disposed of by the collector, in the midst of a call.
        self._guard = threading.RLock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="holdfast-client", daemon=True)
        self._thread.start()

    def call(self, name: str, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result.

        Ctrl-C while waiting cancels it, and waits a while for its end: the work must neither
        go on unseen nor be left half done. Another Ctrl-C waits no longer.
        """
        work = self._start(name, coroutine)
        try:
            return work.ended.result()
        except concurrent.futures.CancelledError as error:
            if self._is_closed:
                raise _closed() from error
            raise
        except BaseException:
            if not work.ended.done():
                work.cancel()
                concurrent.futures.wait([work.ended], _CLEAN_UP_S)
            raise

    def _start(self, name: str, coroutine: Coroutine[Any, Any, T]) -> _Work[T]:
        try:
            if self.is_forked:
                raise forked()
            self.check_thread(name)
            with self._guard:
                if self._is_closed:
                    raise _closed()
                work = _Work(self._loop, coroutine)
                self._loop.call_soon_threadsafe(work.begin)
                return work
        except BaseException:
            coroutine.close()
            raise

    def check_thread(self, name: str) -> None:
        """Refuse a call from the loop itself: it could never return."""
        if threading.current_thread() is self._thread:
            raise WouldDeadlock(method=name)

    def dispose(self, items: AsyncIterator[Any]) -> None:
        """Close an iterator, without waiting; a loop that has ended has closed it already."""
        if self.is_forked:
            return
        with self._guard:
            if not self._is_closed:
                asyncio.run_coroutine_threadsafe(_finish(items), self._loop)

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine, then end everything that is under way, the loop and its thread.

        Ctrl-C while waiting waits no longer, and all this goes on by itself.
        """
        work = self._start("close", last)
        with self._guard:
            self._is_closed = True
        work.ended.add_done_callback(self._stop)
        while self._thread.is_alive():
            # A signal that comes right before one begins to wait would not end the waiting.
            self._thread.join(_LOOK_S)
        work.ended.result()

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked from the one in which the thread works."""
        return os.getpid() != self._process

    def _stop(self, _ended: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self) -> None:
        loop = self._loop
        try:
            loop.run_forever()
            loop.run_until_complete(_cancel_others())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()


class _Work(Generic[T]):
    """A coroutine that the loop runs; `ended` is settled when it has really ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self.ended: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._loop = loop
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        """Start it; on the loop."""
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._settle)

    def cancel(self) -> None:
        """Ask it to end; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the work with it
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _settle(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.ended.set_exception(concurrent.futures.CancelledError())
        elif (error := task.exception()) is not None:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(task.result())


async def _cancel_others() -> None:
    """Cancel what is under way, so that nobody waits for ever for its end."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _closed() -> UsageError:
    return UsageError(detail="This client is closed; make a new one.")


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - an optional extra
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _forward(
    method: Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Client, P], T]:
    @functools.wraps(method)
    def blocking(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.call(method.__name__, method(self._client, *args, **kwargs))

    return blocking


def _forward_iterator(
    method: Callable[Concatenate[AsyncClient, P], AsyncIterator[T]],
) -> Callable[Concatenate[Client, P], Iterator[T]]:
    @functools.wraps(method)
    def blocking(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items = method(self._client, *args, **kwargs)
        try:
            while True:
                found = self._portal.call(method.__name__, _advance(items))
                if found is None:
                    return
                yield found[0]
        finally:
            self._portal.dispose(items)

    return blocking


async def _advance(items: AsyncIterator[T]) -> tuple[T] | None:
    try:
        return (await anext(items),)
    except StopAsyncIteration:
        return None


async def _finish(items: AsyncIterator[Any]) -> None:
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


class Client:
    """The same as `AsyncClient`, without `await`.

    Use it as a context manager, or call `close` when done::

        with Client() as client:
            session = client.create_session("Math Help")
    """

    def __init__(
        self,
        base_dir: str | os.PathLike[str] | None = None,
        *,
        storage_path: str | os.PathLike[str] | None = None,
        settings: Settings | None = None,
        redactor: Redactor | None = None,
        tenant: str = "",
    ) -> None:
        """Read and check the settings; files are opened with the first call."""
        self._client = AsyncClient(
            base_dir,
            storage_path=storage_path,
            settings=settings,
            redactor=redactor,
            tenant=tenant,
        )
        self._portal = _Portal()
        self._closing = threading.Lock()

    def __enter__(self) -> Client:
        """Return the client; files are opened with the first call."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Finish what was accepted and give everything back; safe to repeat.

        In a forked process nothing happens: the client is the other one's.
        """
        if self._portal.is_forked:
            return
        self._portal.check_thread("close")
        with self._closing:
            if not self._portal.is_closed:
                self._portal.close(self._client.close())

    @property
    def hooks(self) -> Hooks:
        """The hooks of this client; plain functions run in threads and may call this client."""
        return self._client.hooks

    @property
    def context(self) -> ExecutionContext:
        """What every run of this client inherits: data, and services by type."""
        return self._client.context

    @property
    def settings(self) -> Settings:
        """The settings of this client."""
        return self._client.settings

    @property
    def redactor(self) -> Redactor:
        """What keeps secrets out of the state directory."""
        return self._client.redactor

    @property
    def approver(self) -> Approver | None:
        """Who answers when a call asks; nobody unless set."""
        return self._client.approver

    @approver.setter
    def approver(self, approver: Approver | None) -> None:
        self._client.approver = approver

    create_session = _forward(AsyncClient.create_session)
    get_session = _forward(AsyncClient.get_session)
    list_sessions = _forward(AsyncClient.list_sessions)
    most_recent_session = _forward(AsyncClient.most_recent_session)
    update_session = _forward(AsyncClient.update_session)
    change_session_state = _forward(AsyncClient.change_session_state)
    archive_session = _forward(AsyncClient.archive_session)
    restore_session = _forward(AsyncClient.restore_session)
    delete_session = _forward(AsyncClient.delete_session)
    fork_session = _forward(AsyncClient.fork_session)
    revert_session = _forward(AsyncClient.revert_session)
    export_session = _forward(AsyncClient.export_session)
    session_lines = _forward_iterator(AsyncClient.session_lines)
    import_session = _forward(AsyncClient.import_session)

    add_message = _forward(AsyncClient.add_message)
    list_messages = _forward(AsyncClient.list_messages)
    get_message = _forward(AsyncClient.get_message)
    update_message_part = _forward(AsyncClient.update_message_part)
    delete_message = _forward(AsyncClient.delete_message)

    register_agent = _forward(AsyncClient.register_agent)
    get_agent = _forward(AsyncClient.get_agent)
    list_agents = _forward(AsyncClient.list_agents)
    remove_agent = _forward(AsyncClient.remove_agent)
    load_installed_agents = _forward(AsyncClient.load_installed_agents)
    register_tool = _forward(AsyncClient.register_tool)
    execute_agent = _forward(AsyncClient.execute_agent)
    launch = _forward(AsyncClient.launch)
    stream_agent = _forward_iterator(AsyncClient.stream_agent)
    stream = stream_agent
    ready_model = _forward(AsyncClient.ready_model)
    session_context = _forward(AsyncClient.session_context)
    compact_session = _forward(AsyncClient.compact_session)
    register_skill = _forward(AsyncClient.register_skill)
    list_skills = _forward(AsyncClient.list_skills)
    trust_skill = _forward(AsyncClient.trust_skill)
    mcp_manager = _forward(AsyncClient.mcp_manager)
    list_mcp_endpoints = _forward(AsyncClient.list_mcp_endpoints)
    trust_mcp_endpoint = _forward(AsyncClient.trust_mcp_endpoint)
    forget_mcp_endpoint = _forward(AsyncClient.forget_mcp_endpoint)
    list_mcp_tools = _forward(AsyncClient.list_mcp_tools)
    accept_mcp_tools = _forward(AsyncClient.accept_mcp_tools)
    mcp_health = _forward(AsyncClient.mcp_health)
    invoke_mcp = _forward(AsyncClient.invoke_mcp)
    cancel_run = _forward(AsyncClient.cancel_run)
    steer = _forward(AsyncClient.steer)
    get_run = _forward(AsyncClient.get_run)

    await_answer = _forward(AsyncClient.await_answer)
    child_runs = _forward(AsyncClient.child_runs)
    cancel_children = _forward(AsyncClient.cancel_children)
    family_events = _forward(AsyncClient.family_events)
    watch_family = _forward_iterator(AsyncClient.watch_family)
    run_loop = _forward(AsyncClient.run_loop)
    stream_loop = _forward_iterator(AsyncClient.stream_loop)
    loop_state = _forward(AsyncClient.loop_state)
    loop_report = _forward(AsyncClient.loop_report)
    replay_loop = _forward(AsyncClient.replay_loop)
    list_runs = _forward(AsyncClient.list_runs)
    export_run = _forward(AsyncClient.export_run)
    import_run = _forward(AsyncClient.import_run)

    call_tool = _forward(AsyncClient.call_tool)
    use_search = _forward(AsyncClient.use_search)
    get_execution_history = _forward(AsyncClient.get_execution_history)
    load_tool_output = _forward(AsyncClient.load_tool_output)

    register_workflow = _forward(AsyncClient.register_workflow)
    validate_workflow = _forward(AsyncClient.validate_workflow)
    run_workflow = _forward(AsyncClient.run_workflow)
    resume_workflow = _forward(AsyncClient.resume_workflow)
    get_workflow_run = _forward(AsyncClient.get_workflow_run)
    list_workflow_runs = _forward(AsyncClient.list_workflow_runs)
    list_workflows = _forward(AsyncClient.list_workflows)

    add_trigger = _forward(AsyncClient.add_trigger)
    list_triggers = _forward(AsyncClient.list_triggers)
    remove_trigger = _forward(AsyncClient.remove_trigger)
    list_firings = _forward(AsyncClient.list_firings)
    run_triggers = _forward(AsyncClient.run_triggers)

    list_approvals = _forward(AsyncClient.list_approvals)
    get_approval = _forward(AsyncClient.get_approval)
    approve = _forward(AsyncClient.approve)
    deny = _forward(AsyncClient.deny)
    open_questions = _forward(AsyncClient.open_questions)
    decide_outcome = _forward(AsyncClient.decide_outcome)
    answer_question = _forward(AsyncClient.answer_question)

    list_hooks = _forward(AsyncClient.list_hooks)
    trust_hooks = _forward(AsyncClient.trust_hooks)
    use_callbacks = _forward(AsyncClient.use_callbacks)
    on_progress = _forward(AsyncClient.on_progress)
    on_notification = _forward(AsyncClient.on_notification)
    follow_sessions = _forward(AsyncClient.follow_sessions)
    subscribe = _forward(AsyncClient.subscribe)
    unsubscribe = _forward(AsyncClient.unsubscribe)
    events = _forward_iterator(AsyncClient.events)
    add_event_sink = _forward(AsyncClient.add_event_sink)
    publish = _forward(AsyncClient.publish)
    timeline = _forward(AsyncClient.timeline)
    settle_events = _forward(AsyncClient.settle_events)
    add_agent_resource = _forward(AsyncClient.add_agent_resource)
    agent_state = _forward(AsyncClient.agent_state)

    reload_policies = _forward(AsyncClient.reload_policies)

    store_memory = _forward(AsyncClient.store_memory)
    search_memory = _forward(AsyncClient.search_memory)
    relevant_memories = _forward(AsyncClient.relevant_memories)
    summarize_memories = _forward(AsyncClient.summarize_memories)
    remember_session = _forward(AsyncClient.remember_session)
    get_memory = _forward(AsyncClient.get_memory)
    memory_history = _forward(AsyncClient.memory_history)
    update_memory = _forward(AsyncClient.update_memory)
    list_memories = _forward(AsyncClient.list_memories)
    pin_memory = _forward(AsyncClient.pin_memory)
    forget_memories = _forward(AsyncClient.forget_memories)
    delete_memory = _forward(AsyncClient.delete_memory)
    memory_stats = _forward(AsyncClient.memory_stats)
    reindex_memories = _forward(AsyncClient.reindex_memories)
    memory_lines = _forward_iterator(AsyncClient.memory_lines)
    import_memories = _forward(AsyncClient.import_memories)

    get_usage = _forward(AsyncClient.get_usage)
    list_events = _forward(AsyncClient.list_events)
    count_events = _forward(AsyncClient.count_events)
    watch = _forward_iterator(AsyncClient.watch)
    verify = _forward(AsyncClient.verify)
    export_heads = _forward(AsyncClient.export_heads)
    export_layout = _forward(AsyncClient.export_layout)
    clean_up = _forward(AsyncClient.clean_up)
    rebuild = _forward(AsyncClient.rebuild)
    storage_stats = _forward(AsyncClient.storage_stats)
    interrupted_runs = _forward(AsyncClient.interrupted_runs)
