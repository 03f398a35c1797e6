"""What every dispatcher has to keep; subclass it, and say how one is made.

```python
class TestMine(DispatcherConformance):
    async def make_dispatcher(self):
        return MyDispatcher()
```
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from holdfast.dispatch import Dispatcher, Progress, WakeHandler, WorkerOptions, WorkerStatus
from holdfast.errors import NotFound, UsageError

PATIENCE_S = 30


class WatchedHandler:
    """A handler that tells what it was given, and does as it is told."""

    def __init__(
        self, answer: Callable[[str, int], Progress] = lambda session, count: "done"
    ) -> None:
        """Answer as told, given a session and how often it was taken."""
        self.taken: list[str] = []
        self.news = asyncio.Condition()
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.running: set[str] = set()
        self.most_at_once = 0
        self._answer = answer

    async def __call__(self, session_id: str) -> Progress:
        """Take a session."""
        async with self.news:
            self.taken.append(session_id)
            assert session_id not in self.running, "one session, two workers"
            self.running.add(session_id)
            self.most_at_once = max(self.most_at_once, len(self.running))
            self.news.notify_all()
        try:
            await self.may_go_on.wait()
            return self._answer(session_id, self.taken.count(session_id))
        finally:
            self.running.discard(session_id)

    async def wait_until(self, is_so: Callable[[list[str]], bool]) -> None:
        """Wait for what was taken."""
        async with asyncio.timeout(PATIENCE_S), self.news:
            await self.news.wait_for(lambda: is_so(self.taken))


async def _find_worker(dispatcher: Dispatcher) -> WorkerStatus:
    """Return the one worker; it may begin before it has said who it is."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await dispatcher.list_workers()):  # noqa: ASYNC110 - a row of a worker
            await asyncio.sleep(0.02)
    [status] = found
    return status


class DispatcherConformance:
    """The promises of `Dispatcher`, each as a test."""

    async def make_dispatcher(self) -> Dispatcher:
        """Return a new dispatcher with nothing in it."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Dispatcher]:
        """Have one for a while."""
        dispatcher = await self.make_dispatcher()
        await dispatcher.open()
        try:
            yield dispatcher
        finally:
            await dispatcher.close()

    @contextlib.asynccontextmanager
    async def run_worker(
        self, dispatcher: Dispatcher, handler: WakeHandler, options: WorkerOptions | None = None
    ) -> AsyncIterator[asyncio.Event]:
        """Have a worker for a while; it ends by being told to."""
        stop = asyncio.Event()
        chosen = options or WorkerOptions(name="one", retry_s=0.01, look_again_s=0.01, grace_s=5)
        task = asyncio.create_task(dispatcher.work(handler, chosen, stop))
        try:
            yield stop
        finally:
            stop.set()
            async with asyncio.timeout(PATIENCE_S):
                await task

    async def test_a_session_that_is_woken_is_worked_on(self) -> None:
        """A session that is woken is worked on."""
        async with self.opened() as dispatcher:
            handler = WatchedHandler()
            async with self.run_worker(dispatcher, handler):
                await dispatcher.wake("ses_a")
                await handler.wait_until(lambda taken: taken == ["ses_a"])

    async def test_what_was_woken_before_a_worker_came_waits_for_it(self) -> None:
        """What was woken before a worker came waits for it."""
        async with self.opened() as dispatcher:
            await dispatcher.wake("ses_a")
            await dispatcher.wake("ses_b")
            handler = WatchedHandler()
            async with self.run_worker(dispatcher, handler):
                await handler.wait_until(lambda taken: sorted(taken) == ["ses_a", "ses_b"])

    async def test_wakeups_of_one_session_that_wait_are_one(self) -> None:
        """Wakeups of one session that wait are one."""
        async with self.opened() as dispatcher:
            for _ in range(5):
                await dispatcher.wake("ses_a")
            handler = WatchedHandler()
            async with self.run_worker(dispatcher, handler):
                await handler.wait_until(lambda taken: "ses_a" in taken)
                await dispatcher.wake("ses_b")
                await handler.wait_until(lambda taken: "ses_b" in taken)
            assert handler.taken == ["ses_a", "ses_b"]

    async def test_a_wakeup_during_the_work_is_not_lost(self) -> None:
        """A wakeup during the work is not lost."""
        async with self.opened() as dispatcher:
            handler = WatchedHandler()
            handler.may_go_on.clear()
            options = WorkerOptions(name="one", concurrency=1, grace_s=5)
            async with self.run_worker(dispatcher, handler, options):
                await dispatcher.wake("ses_a")
                await handler.wait_until(lambda taken: taken == ["ses_a"])
                await dispatcher.wake("ses_a")
                handler.may_go_on.set()
                await handler.wait_until(lambda taken: taken == ["ses_a", "ses_a"])

    async def test_not_more_sessions_are_worked_on_than_allowed(self) -> None:
        """Not more sessions are worked on than allowed."""
        async with self.opened() as dispatcher:
            handler = WatchedHandler()
            handler.may_go_on.clear()
            names = [f"ses_{number}" for number in range(6)]
            for name in names:
                await dispatcher.wake(name)
            options = WorkerOptions(name="one", concurrency=2, grace_s=5)
            async with self.run_worker(dispatcher, handler, options):
                await handler.wait_until(lambda taken: len(taken) == 2)
                status = await _find_worker(dispatcher)
                assert sorted(status.sessions) == sorted(handler.taken)
                handler.may_go_on.set()
                await handler.wait_until(lambda taken: sorted(taken) == names)
            assert handler.most_at_once == 2

    async def test_a_session_that_others_hold_is_asked_for_again(self) -> None:
        """A session that others hold is asked for again."""
        async with self.opened() as dispatcher:
            handler = WatchedHandler(lambda session, count: "later" if count < 3 else "done")
            async with self.run_worker(dispatcher, handler):
                await dispatcher.wake("ses_a")
                await handler.wait_until(lambda taken: len(taken) == 3)
            assert await dispatcher.list_dead() == []

    async def test_a_delayed_wakeup_comes_after_one_that_is_not(self) -> None:
        """A delayed wakeup comes after one that is not."""
        async with self.opened() as dispatcher:
            await dispatcher.wake("ses_late", delay_s=1.0)
            await dispatcher.wake("ses_now")
            handler = WatchedHandler()
            async with self.run_worker(dispatcher, handler):
                await handler.wait_until(lambda taken: taken == ["ses_now", "ses_late"])

    async def test_what_fails_too_often_becomes_a_dead_letter_and_can_be_tried_again(self) -> None:
        """What fails too often becomes a dead letter and can be tried again."""

        def fail(session: str, count: int) -> Progress:
            if session == "ses_bad" and count <= 3:
                raise UsageError(detail="no such agent")
            return "done"

        async with self.opened() as dispatcher:
            handler = WatchedHandler(fail)
            options = WorkerOptions(name="one", most_failures=3, retry_s=0.01, grace_s=5)
            async with self.run_worker(dispatcher, handler, options):
                await dispatcher.wake("ses_bad")
                await handler.wait_until(lambda taken: taken.count("ses_bad") == 3)
                await dispatcher.wake("ses_good")
                await handler.wait_until(lambda taken: "ses_good" in taken)
            [letter] = await dispatcher.list_dead()
            assert (letter.session_id, letter.failures) == ("ses_bad", 3)
            assert letter.error == UsageError.code
            assert await dispatcher.retry_dead(letter.id) == letter
            assert await dispatcher.list_dead() == []
            with pytest.raises(NotFound):
                await dispatcher.retry_dead(letter.id)
            async with self.run_worker(dispatcher, handler, options):
                await handler.wait_until(lambda taken: taken.count("ses_bad") == 4)

    async def test_a_worker_that_leaves_hands_over_what_has_not_ended(self) -> None:
        """A worker that leaves hands over what has not ended."""
        async with self.opened() as dispatcher:
            first, second = WatchedHandler(), WatchedHandler()
            first.may_go_on.clear()
            left: list[str] = []
            options = WorkerOptions(
                name="one", grace_s=0.1, on_leaving=lambda: left.append("leaving")
            )
            async with self.run_worker(dispatcher, first, options):
                await dispatcher.wake("ses_a")
                await first.wait_until(lambda taken: taken == ["ses_a"])
            assert left == ["leaving"]
            assert await dispatcher.list_workers() == []
            async with self.run_worker(dispatcher, second):
                await second.wait_until(lambda taken: taken == ["ses_a"])

    async def test_workers_are_listed_while_they_live(self) -> None:
        """Workers are listed while they live."""
        async with self.opened() as dispatcher:
            assert await dispatcher.list_workers() == []
            handler = WatchedHandler()
            handler.may_go_on.clear()
            options = WorkerOptions(name="blue", concurrency=3, grace_s=5)
            async with self.run_worker(dispatcher, handler, options):
                await dispatcher.wake("ses_a")
                await handler.wait_until(lambda taken: taken == ["ses_a"])
                status = await _find_worker(dispatcher)
                assert (status.name, status.concurrency) == ("blue", 3)
                assert status.sessions == ("ses_a",)
                assert status.time_started <= status.time_seen + 1
                handler.may_go_on.set()
            assert await dispatcher.list_workers() == []

    async def test_what_is_urgent_goes_first_and_what_waits_long_goes_before_it(self) -> None:
        """What is urgent goes first, and what waits long goes before it."""
        async with self.opened() as dispatcher:
            handler = WatchedHandler()
            handler.may_go_on.clear()
            options = WorkerOptions(name="one", concurrency=1, ageing_s=10, grace_s=5)
            async with self.run_worker(dispatcher, handler, options):
                await dispatcher.wake("ses_first")
                await handler.wait_until(lambda taken: taken == ["ses_first"])
                await dispatcher.wake("ses_plain")
                await dispatcher.wake("ses_urgent", priority=50)
                await dispatcher.wake("ses_last", priority=-50)
                handler.may_go_on.set()
                await handler.wait_until(lambda taken: len(taken) == 4)
            assert handler.taken == ["ses_first", "ses_urgent", "ses_plain", "ses_last"]
            handler.may_go_on.clear()
            options = WorkerOptions(name="one", concurrency=1, ageing_s=0.1, grace_s=5)
            async with self.run_worker(dispatcher, handler, options):
                await dispatcher.wake("ses_holding")
                await handler.wait_until(lambda taken: len(taken) == 5)
                await dispatcher.wake("ses_patient", priority=-2)
                # Only its age brings it before what comes later and is more urgent.
                await asyncio.sleep(1.2)
                await dispatcher.wake("ses_eager", priority=1)
                handler.may_go_on.set()
                await handler.wait_until(lambda taken: len(taken) == 7)
            assert handler.taken[-2:] == ["ses_patient", "ses_eager"]

    async def test_a_queue_is_served_by_its_own_workers_alone(self) -> None:
        """A queue is served by its own workers alone."""
        async with self.opened() as dispatcher:
            plain, bound = WatchedHandler(), WatchedHandler()
            review = WorkerOptions(name="two", queues=("review",), grace_s=5)
            async with self.run_worker(dispatcher, plain):
                await dispatcher.wake("ses_a", queue="review")
                await dispatcher.wake("ses_b")
                await plain.wait_until(lambda taken: taken == ["ses_b"])
                async with self.run_worker(dispatcher, bound, review):
                    await bound.wait_until(lambda taken: taken == ["ses_a"])
                    queues = {one.queues for one in await dispatcher.list_workers()}
                    assert queues <= {("",), ("review",)}
            assert (plain.taken, bound.taken) == (["ses_b"], ["ses_a"])

    async def test_not_more_of_a_kind_than_allowed_are_claimed(self) -> None:
        """Not more of a kind than allowed are claimed, by whichever worker."""
        async with self.opened() as dispatcher:
            claimed: set[str] = set()
            most = 0
            ended: list[str] = []
            is_done = asyncio.Event()

            async def handle(session_id: str) -> Progress:
                nonlocal most
                if not await dispatcher.claim(session_id, {"agent a": 2, "": 3}):
                    return "later"
                claimed.add(session_id)
                most = max(most, len(claimed))
                await asyncio.sleep(0)
                claimed.discard(session_id)
                ended.append(session_id)
                if len(ended) == 12:
                    is_done.set()
                return "done"

            options = WorkerOptions(name="one", concurrency=6, look_again_s=0.01, grace_s=5)
            other = WorkerOptions(name="two", concurrency=6, look_again_s=0.01, grace_s=5)
            async with (
                self.run_worker(dispatcher, handle, options),
                self.run_worker(dispatcher, handle, other),
            ):
                for number in range(12):
                    await dispatcher.wake(f"ses_{number}")
                async with asyncio.timeout(PATIENCE_S):
                    await is_done.wait()
            assert 1 <= most <= 2
            assert sorted(ended) == sorted(f"ses_{number}" for number in range(12))
