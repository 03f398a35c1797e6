"""One turn of a chat: the engine works in its own thread, the person sits in this one.

So a person can be asked, and can press Ctrl-C, whatever the engine does: the first Ctrl-C
asks the run to end, which leaves a whole transcript; a second one leaves the chat.
"""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import queue
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import click

from holdfast.agents import AgentResult
from holdfast.canonical import JsonObject
from holdfast.cli.approve import ask_here
from holdfast.cli.chat_status import notify
from holdfast.cli.screen import Screen
from holdfast.errors import HoldfastError, NotFound
from holdfast.ids import make_id
from holdfast.runs import StreamItem
from holdfast.runtime import ToolCallResult
from holdfast.sync import Client
from holdfast.tools import ApprovalAnswer, ApprovalRequest, Approver

_LOOK_S = 0.1
_STOPPED = "the person stopped it"


@dataclass(frozen=True)
class _Asked:
    """A call that asks for consent, and where its answer goes."""

    request: ApprovalRequest
    answer: Callable[[ApprovalAnswer | None], None]


_Item: TypeAlias = StreamItem | ToolCallResult | _Asked | BaseException
_T = TypeVar("_T", AgentResult, ToolCallResult)


class ChatApprover(Approver):
    """Hands what asks over to the thread in which the person sits."""

    def __init__(self) -> None:
        """Hand over to nothing yet."""
        self.items: queue.Queue[_Item] | None = None

    async def approve(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Wait for the person; a run that is cancelled meanwhile waits no longer."""
        if self.items is None:
            return None
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[ApprovalAnswer | None] = loop.create_future()

        def settle(given: ApprovalAnswer | None) -> None:
            if not answered.done():
                answered.set_result(given)

        def answer(given: ApprovalAnswer | None) -> None:
            loop.call_soon_threadsafe(settle, given)

        self.items.put(_Asked(request, answer))
        return await answered


class _Interrupts:
    """Counts Ctrl-C during a turn: the first is noted, the second raises KeyboardInterrupt.

    So the first one interrupts nothing midway; the person who waits looks at `is_pressed`.
    """

    def __init__(self) -> None:
        self.is_pressed = False
        self.is_heeded = False
        self._before: Any = None

    def __enter__(self) -> None:
        self.is_pressed = self.is_heeded = False
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._press)

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    @contextlib.contextmanager
    def as_usual(self) -> Iterator[None]:
        """Let Ctrl-C interrupt at once, as it does at a prompt."""
        if self._before is None:
            yield
            return
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, self._press)

    def _press(self, _number: int, _frame: object) -> None:
        if self.is_pressed:
            raise KeyboardInterrupt
        self.is_pressed = True


class ChatTurn:
    """Runs one message of a chat and shows what happens."""

    def __init__(self, client: Client, screen: Screen, approver: ChatApprover | None) -> None:
        """Work with this client; without an approver, what asks is refused."""
        self._client = client
        self._screen = screen
        self._approver = approver
        self._keys = _Interrupts()
        self._typed: tuple[str, JsonObject] | None = None

    def run(
        self, agent: str, session_id: str, message: str, *, model: str = "", run_id: str = ""
    ) -> AgentResult:
        """Return the result; a cancelled one after the first Ctrl-C.

        Raises:
            KeyboardInterrupt: Ctrl-C for the second time.
            HoldfastError: the run could not begin.
        """
        run_id = run_id or make_id("run")
        return self._see_through(
            AgentResult,
            run_id,
            lambda: self._client.stream_agent(
                agent, session_id, message, model=model, run_id=run_id, with_children=True
            ),
        )

    def call(self, tool: str, arguments: JsonObject, session_id: str) -> ToolCallResult:
        """Call a tool in the person's name, through the gate; raises as `run` does.

        Who typed the call has consented to it: where the gate would ask for no more than that,
        nothing is asked. What is denied stays denied.
        """
        run_id = make_id("run")
        self._typed = (tool, arguments)

        def work() -> Iterator[ToolCallResult]:
            yield self._client.tools.call(tool, arguments, session_id=session_id, run_id=run_id)

        try:
            return self._see_through(ToolCallResult, run_id, work)
        finally:
            self._typed = None

    def _see_through(
        self, wanted: type[_T], run_id: str, start: Callable[[], Iterable[_Item]]
    ) -> _T:
        """Let the engine work, and show and ask what comes of it, until its result comes."""
        items: queue.Queue[_Item] = queue.Queue()
        if self._approver is not None:
            self._approver.items = items

        def work() -> None:
            try:
                for item in start():
                    items.put(item)
            except BaseException as error:  # noqa: BLE001 - the other thread raises it
                items.put(error)

        # A daemon: a turn that is left behind must not keep the program from ending.
        threading.Thread(target=work, name="holdfast-turn", daemon=True).start()
        with self._keys:
            while True:
                item = self._take_next(items, run_id)
                if isinstance(item, wanted):
                    return item
                if isinstance(item, BaseException):
                    raise item
                if isinstance(item, _Asked):
                    self._ask(item)
                elif not isinstance(item, AgentResult | ToolCallResult):
                    self._screen.hear(item)

    def _take_next(self, items: queue.Queue[_Item], run_id: str) -> _Item:
        """Return what comes next, and see to Ctrl-C meanwhile."""
        while True:
            if self._keys.is_pressed:
                self._stop(run_id)
            with contextlib.suppress(queue.Empty):
                return items.get(timeout=_LOOK_S)
            # Nothing asks, so what was announced runs now.
            self._screen.announce()

    def _stop(self, run_id: str) -> None:
        """Cancel the run, and say so once it is kept: another Ctrl-C leaves at any moment."""
        if self._keys.is_heeded:
            self._cancel(run_id)
            return
        self._keys.is_heeded = True
        self._screen.close()
        self._cancel(run_id)
        click.echo("Stopping; Ctrl-C again leaves the chat.", err=True)

    def _cancel(self, run_id: str) -> None:
        try:
            self._client.runs.cancel(run_id, reason=_STOPPED)
        except NotFound:
            # It is not in the queue yet; the next look finds it.
            return
        except HoldfastError as error:
            click.echo(str(error), err=True)

    def _ask(self, asked: _Asked) -> None:
        """Ask the person; Ctrl-C and Ctrl-D stop the run."""
        request = asked.request
        is_plain = request.permission in (request.tool, "external_directory")
        if self._typed == (request.tool, request.arguments) and is_plain and request.required == 1:
            asked.answer(ApprovalAnswer(verdict="allow", by=getpass.getuser()))
            return
        self._screen.announce(but=request)
        self._screen.close()
        notify(f"{request.tool} asks")
        try:
            with self._keys.as_usual():
                asked.answer(ask_here(asked.request))
        except (click.Abort, KeyboardInterrupt):
            click.echo(err=True)
            asked.answer(ApprovalAnswer(verdict="stop", by=getpass.getuser(), reason=_STOPPED))
