"""Client: the same as AsyncClient, for code that cannot wait."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import inspect
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast import AsyncClient, Client
from holdfast.client.surface import FLAT
from holdfast.errors import NotFound, StorageReadOnly, UsageError, WouldDeadlock
from holdfast.operations import Caller, OperationRights, StreamOperation
from holdfast.operations.table import NAMESPACES as NAMESPACE_NAMES
from holdfast.runtime import Runtime
from holdfast.sync import _make_loop, _Portal

WAIT_S = 20

NAMESPACES = sorted(NAMESPACE_NAMES)


def methods(surface: object) -> list[str]:
    return [name for name in dir(type(surface)) if not name.startswith("_")]


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_namespace_has_the_same_methods_with_and_without_await(
    blocking: Client, state: Path, name: str
) -> None:
    ours, theirs = getattr(blocking, name), getattr(AsyncClient(state / "other"), name)
    assert type(ours) is type(theirs)
    assert methods(ours)
    for method in methods(ours):
        mine, other = getattr(ours, method), getattr(theirs, method)
        assert inspect.signature(mine).parameters == inspect.signature(other).parameters, method
        assert mine.__doc__, method


@pytest.mark.parametrize("name", sorted(FLAT))
def test_a_flat_name_is_the_method_of_its_namespace(blocking: Client, name: str) -> None:
    namespace, _, method = FLAT[name].partition(".")
    assert getattr(blocking, name) is getattr(getattr(blocking, namespace), method)
    assert name in dir(blocking)


def test_an_unknown_name_is_no_attribute(blocking: Client) -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = blocking.nothing  # type: ignore[attr-defined]
    assert inspect.signature(Client).parameters == inspect.signature(AsyncClient).parameters


def test_a_conversation_without_await(blocking: Client, tmp_path: Path) -> None:
    session = blocking.create_session("Math Help")
    message = blocking.add_message(session.id, "user", "What is 15 times 23?")
    assert blocking.get_message(session.id, message.id) == message
    assert blocking.list_messages(session.id).items == (message,)
    lines = list(blocking.sessions.lines(session.id))
    assert blocking.sessions.export(session.id, tmp_path / "x.jsonl") == 2
    assert b"".join(lines) == (tmp_path / "x.jsonl").read_bytes()
    with pytest.raises(NotFound):
        blocking.get_session("ses_none")
    with pytest.raises(NotFound):
        list(blocking.sessions.lines("ses_none"))


def test_a_client_without_arguments_uses_the_standard_place(home: Path) -> None:
    with Client() as client:
        client.create_session("Here")
    assert [file.name for file in home.rglob("journal.db")] == ["journal.db"]


def test_a_place_that_cannot_be_written_is_named() -> None:
    with Client("/proc/nonexistent/state") as client, pytest.raises(StorageReadOnly):
        client.create_session("Nowhere")


def test_two_places_are_refused(state: Path) -> None:
    with pytest.raises(UsageError):
        Client(state, storage_path=state)


async def test_it_works_inside_a_running_loop(state: Path) -> None:
    with Client(state) as client:
        session = client.create_session("From inside")
        assert client.get_session(session.id) == session
        events = client.events.watch(after=0)
        assert next(events).kind == "session.created"
        events.close()


def on_the_loop(client: Client, call: Callable[[], object]) -> BaseException | None:
    """Call something on the client's own loop, as a callback would."""

    async def inside() -> BaseException | None:
        try:
            call()
        except (Exception, asyncio.CancelledError) as error:
            return error
        return None

    return client._portal.call("test", inside())


def test_a_call_from_its_own_loop_is_refused(blocking: Client) -> None:
    session = blocking.create_session("Deadlock")
    calls: list[Callable[[], object]] = [
        blocking.list_sessions,
        lambda: blocking.get_session(session.id),
        lambda: next(blocking.events.watch()),
        blocking.close,
    ]
    for call in calls:
        error = on_the_loop(blocking, call)
        assert isinstance(error, WouldDeadlock)
        assert error.code == "client.would_deadlock"
    assert blocking.get_session(session.id) == session


def test_a_closed_client_says_so(state: Path) -> None:
    client = Client(state)
    session = client.create_session("Once")
    left_open = client.events.watch(after=0)
    next(left_open)
    client.close()
    client.close()
    with pytest.raises(UsageError):
        client.get_session(session.id)
    with pytest.raises(UsageError):
        next(left_open)
    with pytest.raises(UsageError):
        next(client.sessions.lines(session.id))


def test_closing_wakes_whoever_still_waits(state: Path) -> None:
    client = Client(state)
    client.create_session("Waiting")
    waiting = threading.Event()

    def wait_forever() -> BaseException | None:
        events = client.events.watch(after=0)
        next(events)
        waiting.set()
        try:
            next(events)
        except (Exception, asyncio.CancelledError) as error:
            return error
        return None

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(wait_forever)
        assert waiting.wait(WAIT_S)
        client.close()
        assert ended.result(WAIT_S) is not None


def test_work_that_outlives_the_client_is_told(state: Path) -> None:
    client = Client(state)
    begun = threading.Event()

    async def forever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> BaseException | None:
        try:
            client._portal.call("test", forever())
        except (Exception, asyncio.CancelledError) as error:
            return error
        return None

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(call)
        assert begun.wait(WAIT_S)
        client.close()
        assert isinstance(ended.result(WAIT_S), UsageError)


def test_work_that_was_cancelled_from_within_says_so(blocking: Client) -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(concurrent.futures.CancelledError):
        blocking._portal.call("test", cancelled())


def test_many_threads_share_one_client(blocking: Client) -> None:
    session = blocking.create_session("Crowd")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: blocking.add_message(session.id, "user", str(n)), range(24)))
    texts = [message.text for message in blocking.list_messages(session.id).items]
    assert sorted(texts, key=int) == [str(n) for n in range(24)]


def test_many_threads_close_one_client(state: Path) -> None:
    client = Client(state)
    client.create_session("Crowd")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: client.close(), range(4)))


def test_an_iterator_that_is_left_early_is_closed(blocking: Client) -> None:
    closed = threading.Event()

    async def watch(runtime: Runtime, caller: Caller) -> AsyncGenerator[int, None]:
        try:
            yield 1
            yield 2
        finally:
            closed.set()

    spying = StreamOperation("test.watch", OperationRights(scope="test:read"), watch)

    def numbers(client: Client) -> Iterator[int]:
        found: Iterator[int] = client._channel.stream(spying)
        return found

    items = numbers(blocking)
    assert next(items) == 1
    items.close()  # type: ignore[attr-defined]
    assert closed.wait(WAIT_S)
    closed.clear()
    abandoned = numbers(blocking)
    assert next(abandoned) == 1
    del abandoned
    gc.collect()
    assert closed.wait(WAIT_S)
    assert list(numbers(blocking)) == [1, 2]


def test_the_loop_is_uvloop_when_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with contextlib.closing(_make_loop()) as loop:
        assert isinstance(loop, asyncio.BaseEventLoop)
    made = asyncio.new_event_loop()

    class Fake:
        @staticmethod
        def new_event_loop() -> asyncio.AbstractEventLoop:
            return made

    monkeypatch.setitem(sys.modules, "uvloop", Fake)  # type: ignore[arg-type]
    assert _make_loop() is made
    made.close()


def test_ctrl_c_while_closing_waits_no_longer_and_the_closing_goes_on() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    portal, release, done = _Portal(), threading.Event(), threading.Event()

    async def last() -> None:
        # As the kernel does it: whoever waits is the one that is interrupted.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await asyncio.to_thread(release.wait, WAIT_S)
        done.set()

    try:
        with pytest.raises(KeyboardInterrupt):
            portal.close(last())
    finally:
        signal.signal(signal.SIGINT, before)
    assert portal.is_closed
    assert not done.is_set()
    release.set()
    assert done.wait(WAIT_S)
    portal._thread.join(WAIT_S)
    assert not portal._thread.is_alive()


def test_a_client_from_before_a_fork_says_so_instead_of_waiting_for_ever(tmp_path: Path) -> None:
    program = """
import asyncio, os, sys
from holdfast import AsyncClient, Client
from holdfast.errors import UsageError
client, other = Client(sys.argv[1]), AsyncClient(sys.argv[1])
client.create_session("before")
child = os.fork()
if child:
    _, status = os.waitpid(child, 0)
    print(len(client.list_sessions().items), os.waitstatus_to_exitcode(status))
    client.close()
else:
    refused = 0
    try:
        client.list_sessions()
    except UsageError:
        refused += 1
    try:
        asyncio.run(other.list_sessions())
    except UsageError:
        refused += 1
    client.close()
    with Client(sys.argv[1]) as mine:
        mine.create_session("after")
    os._exit(refused)
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)],
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ended.stdout == b"2 2\n", ended.stderr
