"""A fleet in virtual time: the real queue and leases, on a store that the seed makes unreliable.

    python tests/property/fleet_simulation.py [--schedules 5000] [--seed N]

Several processes drain the queues of a few sessions. What lies between them and the store is
decided by the seed: delays, answers that are lost, partitions, processes that stop and go on
later, crashes, clocks that run too fast or too slow. Time is virtual, so a schedule of half a
minute takes milliseconds, and the same seed gives the same schedule. In the end the promises of
the design are checked; a broken one is told with its seed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import inspect
import random
import selectors
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from holdfast.errors import HoldfastError, LeaseLost, StorageUnavailable
from holdfast.journal import Journal, MemoryStore, Payload, payload, verify
from holdfast.sessions import SESSION_PROJECTIONS, SessionManager, compose
from holdfast.turns import LeaseKeeper, Outcome, Turn, TurnCompleted, TurnQueue

TTL_S = 5.0
STEPS = 3
HORIZON_S = 1_200.0


@payload("simulation.step_done")
class StepDone(Payload, frozen=True, kw_only=True):
    """A step of a run is done."""

    step: int


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for nothing: time jumps to when the next thing is due."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise RuntimeError("nothing is due any more: a task waits for ever")
        self.loop.moment += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a number."""

    def __init__(self) -> None:
        self.moment = 1_000.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.moment

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        """Run it at once: there are no threads in here."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class SkewedClock:
    """The clock of one machine: it began elsewhere, and runs too fast or too slow."""

    def __init__(self, loop: VirtualLoop, rate: float = 1.0, ahead: float = 0.0) -> None:
        self._loop, self._rate, self._ahead = loop, rate, ahead

    def now(self) -> float:
        return 1_800_000_000.0 + self.boottime()

    def monotonic(self) -> float:
        return self.boottime()

    def boottime(self) -> float:
        return self._loop.moment * self._rate + self._ahead

    def boot_id(self) -> str:
        return f"boot-{self._rate}-{self._ahead}"


class Wire:
    """The store as one process sees it: late, sometimes not at all, and silent once it is dead."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    def renew(self, held: dict[str, int], owner: str, ttl_s: float) -> set[str]:
        if self._process.is_cut:
            raise StorageUnavailable(path="simulation", detail="cut off")
        return self._world.store.renew(held, owner, ttl_s)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._world.store, name)
        if not inspect.iscoroutinefunction(function):
            return function

        async def call(*args: Any, **kwargs: Any) -> Any:
            world, process = self._world, self._process
            await world.travel(process)
            if process.is_cut:
                await asyncio.sleep(world.random.random() * 2)
                raise StorageUnavailable(path="simulation", detail="cut off")
            answer = await function(*args, **kwargs)
            is_lost = name == "append" and world.random.random() < world.lost_answers
            await world.travel(process)
            if is_lost or process.is_cut:
                # It is stored, and nobody here knows.
                raise StorageUnavailable(path="simulation", detail="the answer was lost")
            return answer

        return call


class SimulatedKeeper(LeaseKeeper):
    """Renews in a task of the loop, in virtual time, where the real one has a thread."""

    process: Process
    _renewing: asyncio.Task[None] | None = None

    async def show_presence(self) -> None:
        if self._renewing is None:
            with contextlib.suppress(StorageUnavailable):
                self._journal.store.renew({}, self.owner, self._ttl_s)
            self._renewing = asyncio.get_running_loop().create_task(self._renew_in_time())
            self.process.tasks.add(self._renewing)

    async def _renew_in_time(self) -> None:
        while True:
            await asyncio.sleep(self._ttl_s / 3)
            await self.process.is_awake.wait()
            self._renew()


class Process:
    """One worker: its queue, its clock, and what befalls it."""

    def __init__(self, world: World, number: int) -> None:
        choose = world.random
        self.number = number
        self.world = world
        self.is_cut = False
        self.is_awake = asyncio.Event()
        self.is_awake.set()
        self.tasks: set[asyncio.Task[Any]] = set()
        clock = SkewedClock(world.loop, choose.uniform(0.9, 1.1), choose.uniform(-1e4, 1e4))
        journal = Journal(Wire(world, self), clock=clock)  # type: ignore[arg-type]
        self.keeper = SimulatedKeeper(journal, ttl_s=TTL_S)
        self.keeper.process = self
        self.queue = TurnQueue(SessionManager(journal, self.keeper), self.keeper)
        self.tasks.add(world.loop.create_task(self._work()))

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(self.world.random.random())
            for session_id in self.world.random.sample(
                self.world.sessions, len(self.world.sessions)
            ):
                try:
                    await self.queue.drain(session_id, self._handle)
                except HoldfastError as error:
                    self.world.note(self.number, type(error).__name__)

    async def _handle(self, turn: Turn) -> Outcome:
        world = self.world
        done = {
            event.expect(StepDone).step
            for event in await self.queue._journal.read_all(turn.session_id)
            if event.run_id == turn.run.id and event.kind == StepDone.kind
        }
        for step in range(STEPS):
            if step in done:
                continue
            await asyncio.sleep(world.random.random() * 2)
            await world.travel(self)
            world.affect(turn, step)
            await turn.append(StepDone(step=step))
        return TurnCompleted(result={"steps": STEPS})

    def crash(self) -> None:
        """End it as `kill -9` does: nothing of it goes on, and nobody is told."""
        self.is_cut = True
        for task in tuple(self.tasks):
            task.cancel()


class World:
    """The store, the processes, and what effects have left outside."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.loop = loop
        self.random = random.Random(seed)
        self.slowest_s = self.random.choice([0.01, 0.3, 1.5])
        self.lost_answers = self.random.choice([0.0, 0.02, 0.1])
        self.store = MemoryStore(projections=SESSION_PROJECTIONS, clock=SkewedClock(loop))
        self.sessions: list[str] = []
        self.runs: dict[str, list[str]] = {}
        self.fences: dict[str, int] = {}
        self.effects: list[tuple[str, int]] = []
        self.wrong: list[str] = []
        self.trace: list[tuple[float, int, str]] = []
        self.processes: list[Process] = []

    def note(self, number: int, what: str) -> None:
        self.trace.append((round(self.loop.moment, 6), number, what))

    async def travel(self, process: Process) -> None:
        """Be on the way for a while, and wait while the process stands still."""
        await asyncio.sleep(self.random.random() * self.slowest_s)
        await process.is_awake.wait()

    def affect(self, turn: Turn, step: int) -> None:
        """Do something outside: who comes with an older fence than was seen is refused."""
        if turn.epoch < self.fences.get(turn.session_id, 0):
            raise LeaseLost(session_id=turn.session_id, current="another one", held=turn.epoch)
        self.fences[turn.session_id] = turn.epoch
        stream = self.store._streams[turn.session_id]
        for event in stream.events:
            is_step = event.run_id == turn.run.id and event.kind == StepDone.kind
            if is_step and event.expect(StepDone).step == step:
                self.wrong.append(f"step {step} of {turn.run.id} was done again after its result")
        self.effects.append((turn.run.id, step))

    async def execute(self) -> None:
        """Let it happen, then let everything be well, and wait for the runs to end."""
        journal = Journal(self.store, clock=SkewedClock(self.loop))
        manager = SessionManager(journal, LeaseKeeper(journal, ttl_s=TTL_S))
        for number in range(self.random.randint(1, 3)):
            session = await manager.create_session(f"s{number}")
            self.sessions.append(session.id)
            self.runs[session.id] = []
        self.processes = [Process(self, number) for number in range(self.random.randint(2, 4))]
        trouble = asyncio.create_task(self._make_trouble())
        submitter = TurnQueue(manager, SimulatedKeeper(journal, ttl_s=TTL_S))
        submitter._keeper.process = self.processes[0]  # type: ignore[attr-defined]
        for number in range(self.random.randint(2, 6)):
            session_id = self.random.choice(self.sessions)
            message = compose(session_id, "user", str(number), journal.clock.now())
            run = await submitter.submit(session_id, message, is_for_any_process=True)
            self.runs[session_id].append(run.id)
            await asyncio.sleep(self.random.random() * 3)
        await trouble
        ends = self.loop.moment + HORIZON_S
        while self.loop.moment < ends:
            runs = [await submitter.get(one) for of in self.runs.values() for one in of]
            if all(run.has_ended for run in runs):
                break
            await asyncio.sleep(1)
        await self._judge(submitter)

    async def _make_trouble(self) -> None:
        for _ in range(self.random.randint(1, 8)):
            await asyncio.sleep(self.random.random() * 4)
            victim = self.random.choice(self.processes)
            kind = self.random.choice(["crash", "stop", "cut", "cut"])
            self.note(victim.number, kind)
            if kind == "crash":
                victim.crash()
                self.processes.remove(victim)
                self.processes.append(Process(self, len(self.trace) + 10))
            elif kind == "stop":
                victim.is_awake.clear()
                self.loop.call_later(self.random.uniform(0.5, 3 * TTL_S), victim.is_awake.set)
            else:
                victim.is_cut = True
                later = self.random.uniform(0.5, 3 * TTL_S)
                self.loop.call_later(later, setattr, victim, "is_cut", False)
        self.lost_answers = 0.0

    async def _judge(self, queue: TurnQueue) -> None:
        """Hold everything that is stored, and everything outside, against the promises."""
        self.wrong += [f"{found.session_id}: {found.problem}" for found in await verify(self.store)]
        counted = Counter(self.effects)
        for session_id, runs in self.runs.items():
            events = self.store._streams[session_id].events
            epochs = [event.epoch for event in events]
            ended = [one.run_id for one in events if one.kind == "run.completed"]
            started = [one.run_id for one in events if one.kind == "run.started"]
            if ended != runs or started != runs:
                self.wrong.append(f"{session_id}: runs {runs} began {started} and ended {ended}")
            fenced = [e.epoch for e in events if e.kind in (StepDone.kind, "run.completed")]
            if fenced != sorted(fenced) or max(epochs, default=0) > queue_epoch(self, session_id):
                self.wrong.append(f"{session_id}: epochs go back: {fenced}")
            steps = Counter(
                (one.run_id, one.expect(StepDone).step)
                for one in events
                if one.kind == StepDone.kind
            )
            for run_id in runs:
                run = await queue.get(run_id)
                if run.status != "completed":
                    self.wrong.append(f"{run_id} is {run.status} after all was well for long")
                for step in range(STEPS):
                    if steps[run_id, step] != 1:
                        self.wrong.append(f"step {step} of {run_id}: {steps[run_id, step]} results")
                    if not counted[run_id, step]:
                        self.wrong.append(f"step {step} of {run_id} has a result and no effect")


def queue_epoch(world: World, session_id: str) -> int:
    """Return the epoch that the store has given last."""
    return world.store._streams[session_id].epoch


def simulate(seed: int) -> World:
    """Run one schedule; what was broken is in `wrong`."""
    loop = VirtualLoop()
    asyncio.set_event_loop(loop)
    world = World(loop, seed)
    try:
        loop.run_until_complete(world.execute())
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()
        asyncio.set_event_loop(None)
    return world


def main() -> int:
    """Run schedules; returns 1 if a promise was broken, and tells the seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="the first one")
    chosen = parser.parse_args()
    began = time.monotonic()
    broken = 0
    for seed in range(chosen.seed, chosen.seed + chosen.schedules):
        world = simulate(seed)
        if world.wrong:
            broken += 1
            sys.stdout.write(f"seed {seed}: {'; '.join(world.wrong[:5])}\n")
    took = time.monotonic() - began
    sys.stdout.write(
        f"{chosen.schedules} schedules from seed {chosen.seed}: {broken} broken, "
        f"{chosen.schedules / took * 60:,.0f} per minute\n"
    )
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
