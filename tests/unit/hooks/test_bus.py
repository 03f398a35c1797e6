"""The event bus: every event once, in order, whatever handlers do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from facts_kit import Noted
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast.sessions  # noqa: F401 - declares its kinds
from holdfast.errors import EventRejected, UsageError
from holdfast.hooks import Cancel, EventBus, Hooks, QueueOptions, Where
from holdfast.hooks.names import matches
from holdfast.hooks.points import EventBeforeEmit, EventHandlerError
from holdfast.journal import SYSTEM_SESSION, Journal, MemoryStore, Origin

LAST = 29


class Ear:
    """A handler that keeps what it heard, and can be made to wait."""

    def __init__(self) -> None:
        self.events = []
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.is_in = asyncio.Event()
        self.has_last = asyncio.Event()

    async def __call__(self, event) -> None:
        self.is_in.set()
        await self.may_go.wait()
        self.events += event if isinstance(event, tuple) else [event]
        if self.events[-1].data.get("number") == LAST:
            self.has_last.set()

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]

    @property
    def numbers(self) -> list[int]:
        return [event.data["number"] for event in self.events]


@pytest.mark.parametrize("patterns", ["", "*.failed", "a*b", "a**", [], ["tool.*", ""], 5, [5]])
async def test_patterns_that_mean_nothing_are_refused(bus: EventBus, patterns) -> None:
    with pytest.raises(UsageError):
        await bus.subscribe(patterns, print)


@pytest.mark.parametrize(
    ("pattern", "heard"),
    [
        ("app.a", ["app.a"]),
        ("app.*", ["app.a", "app.b"]),
        ("*", ["app.a", "app.b", "other"]),
        ("app", []),
        ("nothing.*", []),
    ],
)
async def test_patterns_are_exact_star_or_prefix(bus: EventBus, pattern: str, heard) -> None:
    ear = Ear()
    await bus.subscribe(pattern, ear)
    for name in ("app.a", "app.b", "other"):
        await bus.publish(name)
    await bus.settle()
    assert ear.names == heard


@given(st.text(max_size=5), st.text(max_size=5))
def test_star_at_the_end_means_any_ending_and_nothing_else_is_special(a: str, b: str) -> None:
    assert matches(a + b, (a + "*",))
    assert matches(a, (a,))
    if not b.endswith("*"):
        assert matches(a, (b,)) == (a == b)


async def test_publishing_inside_a_handler_does_not_deadlock(bus: EventBus) -> None:
    ear = Ear()

    async def answer(event) -> None:
        await bus.publish("app.answer", event.data)

    options = QueueOptions(size=1, overflow="block")
    await bus.subscribe("app.question", answer, options=options)
    await bus.subscribe("app.answer", ear, options=options)
    for number in range(5):
        await asyncio.wait_for(bus.publish("app.question", {"number": number}), 30)
    await asyncio.wait_for(bus.settle(), 30)
    assert ear.numbers == [0, 1, 2, 3, 4]


async def test_handler_may_publish_what_it_listens_to_although_its_queue_is_full(
    bus: EventBus,
) -> None:
    heard = []

    async def split(event) -> None:
        number = event.data["number"]
        heard.append(number)
        for _ in range(2 if number else 0):
            await bus.publish("app.n", {"number": number - 1})

    mine = await bus.subscribe("app.n", split, options=QueueOptions(size=1))
    await bus.publish("app.n", {"number": 3})
    await asyncio.wait_for(bus.settle(), 30)
    assert sorted(heard, reverse=True) == [3, 2, 2, 1, 1, 1, 1, *[0] * 8]
    assert mine.stats.overrun > 0


async def test_handler_that_multiplies_events_is_stopped_at_a_bound(bus: EventBus) -> None:
    refused = asyncio.Event()

    async def explode(event) -> None:
        try:
            for _ in range(50):
                await bus.publish("app.n")
        except EventRejected:
            refused.set()

    mine = await bus.subscribe("app.n", explode, options=QueueOptions(size=2))
    await bus.publish("app.n")
    await asyncio.wait_for(refused.wait(), 30)
    await bus.unsubscribe(mine)
    assert mine.stats.rejected >= 1
    assert mine.waiting <= 20


async def test_subscribing_and_unsubscribing_inside_a_handler_works(bus: EventBus) -> None:
    ear = Ear()

    async def recruit(event) -> None:
        await bus.subscribe("app.*", ear)
        await bus.unsubscribe(mine)

    mine = await bus.subscribe("app.*", recruit)
    await bus.publish("app.one")
    await bus.settle()
    await bus.publish("app.two")
    await bus.settle()
    assert ear.names == ["app.two"]
    assert mine.is_closed


async def test_equal_events_and_equal_subscriptions_are_all_served(bus: EventBus) -> None:
    ear = Ear()
    for _ in range(2):
        await bus.subscribe("app.same", ear)
    for _ in range(3):
        await bus.publish("app.same", {"x": 1})
    await bus.settle()
    assert len(ear.events) == 6


async def test_failing_handler_is_isolated_and_counted(journal: Journal) -> None:
    hooks, told, ear = Hooks(), [], Ear()

    @hooks.observe(EventHandlerError)
    async def note(payload) -> None:
        told.append((payload.event, payload.subscriber, payload.error))

    bus = EventBus(journal, hooks=hooks)

    async def stumble(event) -> None:
        raise ValueError("ouch")

    bad = await bus.subscribe("app.*", stumble)
    await bus.subscribe("app.*", ear)
    for _ in range(3):
        await bus.publish("app.x")
    await bus.settle()
    assert (len(ear.events), bad.stats.errors, bus.handler_errors) == (3, 3, 3)
    assert told[0] == ("app.x", bad.name, "ValueError: ouch")
    await bus.close()


async def test_handler_that_hangs_or_exits_is_cut_short(bus: EventBus) -> None:
    async def hang(event) -> None:
        await asyncio.Event().wait()

    def leave(event) -> None:
        raise SystemExit(1)

    hanging = await bus.subscribe("app.x", hang, options=QueueOptions(timeout_s=0.01))
    leaving = await bus.subscribe("app.x", leave)
    await bus.publish("app.x")
    await asyncio.wait_for(bus.settle(), 30)
    assert (hanging.stats.errors, leaving.stats.errors) == (1, 1)


@pytest.mark.parametrize(
    ("overflow", "heard", "dropped", "rejected"),
    [
        ("drop-oldest", [0, 3, 4], 2, 0),
        ("drop-newest", [0, 1, 2], 2, 0),
        ("reject", [0, 1, 2], 0, 2),
    ],
)
async def test_full_queue_follows_its_policy(
    bus: EventBus, overflow, heard, dropped, rejected
) -> None:
    ear = Ear()
    ear.may_go.clear()
    mine = await bus.subscribe("app.n", ear, options=QueueOptions(size=2, overflow=overflow))
    await bus.publish("app.n", {"number": 0})
    await asyncio.wait_for(ear.is_in.wait(), 30)
    refused = 0
    for number in range(1, 5):
        try:
            await bus.publish("app.n", {"number": number})
        except EventRejected:
            refused += 1
    ear.may_go.set()
    await bus.settle()
    assert (ear.numbers, mine.stats.dropped, mine.stats.rejected) == (heard, dropped, rejected)
    assert refused == rejected


async def test_blocking_queue_lets_the_publisher_wait_and_loses_nothing(bus: EventBus) -> None:
    ear = Ear()
    ear.may_go.clear()
    await bus.subscribe("app.n", ear, options=QueueOptions(size=1, overflow="block"))

    async def publish() -> None:
        for number in range(5):
            await bus.publish("app.n", {"number": number})

    publishing = asyncio.create_task(publish())
    await asyncio.wait_for(ear.is_in.wait(), 30)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not publishing.done()
    ear.may_go.set()
    await asyncio.wait_for(publishing, 30)
    await bus.settle()
    assert ear.numbers == [0, 1, 2, 3, 4]


async def test_slow_subscriber_loses_no_fact_and_holds_nobody_up(bus: EventBus, note) -> None:
    slow, quick = Ear(), Ear()
    slow.may_go.clear()
    await bus.subscribe("spec.*", slow, options=QueueOptions(size=2, overflow="block"))
    await bus.subscribe("spec.*", quick)
    await note(0)
    await asyncio.wait_for(slow.is_in.wait(), 30)
    for number in range(1, 30):
        await note(number)
    await asyncio.wait_for(quick.has_last.wait(), 30)
    slow.may_go.set()
    await asyncio.wait_for(bus.settle(), 30)
    assert slow.numbers == quick.numbers == list(range(30))


async def test_replay_goes_over_into_live_events_without_gap_or_repetition(
    bus: EventBus, note
) -> None:
    await note(*range(10))
    ear = Ear()

    async def write() -> None:
        for number in range(10, 60):
            await note(number)
            await asyncio.sleep(0)

    await bus.subscribe("spec.*", Ear())
    writing = asyncio.create_task(write())
    await bus.subscribe("spec.*", ear, after=3, options=QueueOptions(size=4))
    await writing
    await asyncio.wait_for(bus.settle(), 30)
    assert ear.numbers == list(range(3, 60))


@settings(max_examples=40)
@given(st.data())
def test_any_interleaving_of_writing_and_joining_hears_each_fact_once(data) -> None:
    async def scenario() -> None:
        async with Journal(MemoryStore()) as journal:
            bus = EventBus(journal)
            try:
                await steps(journal, bus)
            finally:
                # Hypothesis may leave in the middle of an example.
                await bus.close()

    async def steps(journal: Journal, bus: EventBus) -> None:
        joined: list[tuple[int, Ear]] = []
        number = 0
        for _ in range(data.draw(st.integers(1, 12))):
            if data.draw(st.booleans()):
                after = data.draw(st.integers(0, number))
                ear = Ear()
                options = QueueOptions(size=data.draw(st.integers(1, 3)))
                await bus.subscribe("spec.*", ear, after=after, options=options)
                joined.append((after, ear))
            else:
                batch = data.draw(st.integers(1, 3))
                facts = [Noted(number=number + i) for i in range(batch)]
                await journal.append(SYSTEM_SESSION, facts)
                number += batch
            for _ in range(data.draw(st.integers(0, 5))):
                await asyncio.sleep(0)
        await asyncio.wait_for(bus.settle(), 10)
        for after, ear in joined:
            assert ear.numbers == list(range(after, number))

    asyncio.run(scenario())


async def test_position_can_be_kept_and_gone_on_after(bus: EventBus, note) -> None:
    first, second = Ear(), Ear()
    mine = await bus.subscribe("spec.*", first)
    await note(1, 2)
    await bus.settle()
    await bus.unsubscribe(mine)
    await note(3)
    await bus.subscribe("spec.*", second, after=mine.position)
    await bus.settle()
    assert (first.numbers, second.numbers) == ([1, 2], [3])


async def test_batches_hand_over_what_waits(bus: EventBus) -> None:
    sizes, ear = [], Ear()
    ear.may_go.clear()

    async def count(batch) -> None:
        sizes.append(len(batch))
        await ear(batch)

    await bus.subscribe("app.n", count, options=QueueOptions(batch=3))
    await bus.publish("app.n", {"number": 0})
    await asyncio.wait_for(ear.is_in.wait(), 30)
    for number in range(1, 5):
        await bus.publish("app.n", {"number": number})
    ear.may_go.set()
    await bus.settle()
    assert (sizes, ear.numbers) == ([1, 3, 1], [0, 1, 2, 3, 4])


async def test_sink_gets_batches_and_is_closed_with_the_bus(bus: EventBus, note) -> None:
    class Sink:
        def __init__(self) -> None:
            self.names, self.is_closed = [], False

        async def write(self, events) -> None:
            self.names += [event.name for event in events]

        async def close(self) -> None:
            self.is_closed = True

    sink = Sink()
    await note(1)
    await bus.add_sink(sink, after=0)
    await bus.publish("app.x")
    await bus.settle()
    await bus.close()
    assert (sorted(sink.names), sink.is_closed) == (["app.x", "spec.noted"], True)


async def test_events_can_be_iterated(bus: EventBus, note) -> None:
    await note(1, 2, 3)
    heard = []
    async for event in bus.events("spec.*", after=1):
        heard.append(event.data["number"])
        if len(heard) == 2:
            break
    assert heard == [2, 3]


async def test_timeline_of_a_run_or_a_correlation_is_in_order(
    bus: EventBus, journal: Journal
) -> None:
    origins = [
        Origin(run_id="run_a"),
        Origin(run_id="run_b", correlation_id="trace"),
        Origin(run_id="run_a", correlation_id="trace"),
    ]
    for number, origin in enumerate(origins):
        await journal.append(SYSTEM_SESSION, [Noted(number=number)], origin=origin)

    async def numbers(**query) -> list[int]:
        return [event.data["number"] for event in await bus.timeline(**query)]

    assert await numbers(run_id="run_a") == [0, 2]
    assert await numbers(correlation_id="trace") == [1, 2]
    assert await numbers(correlation_id="run_b") == [1]
    assert await numbers(session_id=SYSTEM_SESSION, after=1) == [1, 2]
    assert await numbers(limit=1) == [0]


async def test_subscription_can_be_bound_to_a_session_or_run(bus: EventBus) -> None:
    ear = Ear()
    await bus.subscribe("*", ear, run_id="run_1")
    await bus.publish("app.x", where=Where(run_id="run_1"))
    await bus.publish("app.x", where=Where(run_id="run_2"))
    await bus.settle()
    assert len(ear.events) == 1


@pytest.mark.parametrize("name", ["", "app.*", "run.completed", "tool.completed"])
async def test_facts_cannot_be_forged_by_publishing_them(bus: EventBus, name: str) -> None:
    with pytest.raises(UsageError):
        await bus.publish(name)


async def test_data_that_is_no_object_and_handlers_that_are_no_functions_are_refused(
    bus: EventBus,
) -> None:
    wrong: Any = 5
    with pytest.raises(UsageError):
        await bus.publish("app.thing", wrong)
    with pytest.raises(UsageError):
        await bus.subscribe("app.*", wrong)


async def test_data_that_is_no_json_is_refused_before_anybody_hears_it(bus: EventBus) -> None:
    ear = Ear()
    await bus.subscribe("*", ear)
    with pytest.raises(UsageError):
        await bus.publish("app.x", {"thing": object()})
    assert ear.events == []


async def test_hook_can_change_or_stop_an_event(journal: Journal) -> None:
    hooks, ear = Hooks(), Ear()

    @hooks.on(EventBeforeEmit)
    async def check(payload):
        if payload.event == "app.secret":
            return Cancel("not for everybody")
        return payload.modify(data={"number": payload.data["number"] + 1})

    bus = EventBus(journal, hooks=hooks)
    await bus.subscribe("app.*", ear)
    assert not await bus.publish("app.secret", {"number": 1})
    assert await bus.publish("app.x", {"number": 1})
    await bus.settle()
    assert ear.numbers == [2]
    await bus.close()


async def test_handler_cannot_wait_for_all_handlers(bus: EventBus) -> None:
    caught = []

    async def wait(event) -> None:
        try:
            await bus.settle()
        except UsageError as error:
            caught.append(error.code)

    await bus.subscribe("app.x", wait)
    await bus.publish("app.x")
    await asyncio.wait_for(bus.settle(), 30)
    assert caught == ["usage.invalid"]


@pytest.mark.parametrize(
    "wrong", [{"size": 0}, {"batch": 0}, {"timeout_s": 0}, {"overflow": "explode"}]
)
def test_queue_options_that_mean_nothing_are_refused(wrong) -> None:
    with pytest.raises(UsageError):
        QueueOptions(**wrong)
