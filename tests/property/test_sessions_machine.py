"""Sessions against a simple model, on both stores."""

from __future__ import annotations

import asyncio
import gc
import io
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from holdfast.errors import InvalidTransition
from holdfast.journal import Journal, MemoryStore, SqliteStore, verify
from holdfast.messages import Message, TextPart
from holdfast.sessions import (
    SESSION_PROJECTIONS,
    STATES,
    SessionManager,
    export_lines,
    list_allowed_states,
    parse_export,
)
from holdfast.sessions.events import MessageCreated
from holdfast.testing import FakeClock
from holdfast.turns import LeaseKeeper

Talk = tuple[tuple[str, tuple[str, ...]], ...]
"""A conversation: message ids with the texts of their parts."""


class Model:
    """What a session should be: its conversation after each event, by event number."""

    def __init__(self, history: list[Talk], spent: float = 0.0) -> None:
        self.history = history
        self.state = "active"
        self.spent = spent
        self.metadata: dict[str, int] = {}

    @property
    def now(self) -> Talk:
        return self.history[-1]


def has_room(machine: Sessions) -> bool:
    return len(machine.models) < 6


def has_more_than_one(machine: Sessions) -> bool:
    return len(machine.models) > 1


class Sessions(RuleBasedStateMachine):
    """Every rule does the same to a real session and to its model."""

    is_sqlite = False

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.counter = 0
        self.models: dict[str, Model] = {}

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(asyncio.wait_for(work, 30))

    @initialize()
    def open(self) -> None:
        self.store: Any = (
            SqliteStore(
                Path(self.folder.name) / "j.db", projections=SESSION_PROJECTIONS, clock=self.clock
            )
            if self.is_sqlite
            else MemoryStore(projections=SESSION_PROJECTIONS, clock=self.clock)
        )
        self.journal = self.do(Journal(self.store, clock=self.clock).open())
        self.manager = SessionManager(self.journal, LeaseKeeper(self.journal))
        self.create()

    def teardown(self) -> None:
        if self.models:
            self.check_everything()
            self.manager.keeper.close()
            self.do(self.journal.close())
        self.loop.close()
        self.folder.cleanup()

    def name(self) -> str:
        self.counter += 1
        return f"n{self.counter}"

    def pick(self, number: int) -> tuple[str, Model]:
        names = sorted(self.models)
        name = names[number % len(names)]
        return name, self.models[name]

    # --- rules ------------------------------------------------------------------------

    @rule()
    def create(self) -> None:
        if len(self.models) < 4:
            session = self.do(self.manager.create_session(self.name()))
            self.models[session.id] = Model([(), ()])

    @rule(which=st.integers(0, 9), cost=st.sampled_from([0.0, 0.5]))
    def add(self, which: int, cost: float) -> None:
        name, model = self.pick(which)
        if model.state != "active":
            return
        message = Message(
            id=self.name(),
            session_id="",
            role="user",
            cost_usd=cost,
            parts=(TextPart(id="a", text="1"),),
        )

        async def append() -> None:
            async with self.manager.writing(name) as hold:
                await hold.append(MessageCreated(message=message), is_last=True)

        self.do(append())
        model.spent += cost
        model.history.append((*model.now, (message.id, ("1",))))

    @rule(which=st.integers(0, 9), place=st.integers(0, 9), text=st.sampled_from("xyz"))
    def change_part(self, which: int, place: int, text: str) -> None:
        name, model = self.pick(which)
        if model.now:
            message, parts = model.now[place % len(model.now)]
            part = TextPart(id="a" if text == "x" else "b", text=text)
            self.do(self.manager.update_part(name, message, part))
            changed = (text, *parts[1:]) if text == "x" else (parts[0], text)
            model.history.append(tuple((m, changed if m == message else p) for m, p in model.now))

    @rule(which=st.integers(0, 9), place=st.integers(0, 9))
    def delete_message(self, which: int, place: int) -> None:
        name, model = self.pick(which)
        if model.now:
            message = model.now[place % len(model.now)][0]
            self.do(self.manager.delete_message(name, message))
            model.history.append(tuple(pair for pair in model.now if pair[0] != message))

    @rule(which=st.integers(0, 9), to=st.integers(1, 60))
    def revert(self, which: int, to: int) -> None:
        name, model = self.pick(which)
        to = 1 + to % (len(model.history) - 1)
        self.do(self.manager.revert_session(name, to=to))
        model.history.append(model.history[to])

    @precondition(has_room)
    @rule(which=st.integers(0, 9), at=st.integers(1, 60))
    def fork(self, which: int, at: int) -> None:
        name, model = self.pick(which)
        at = 1 + at % (len(model.history) - 1)
        fork = self.do(self.manager.fork_session(name, at=at))
        talk = model.history[at]
        twin = Model([*model.history[: at + 1], talk, talk])
        twin.metadata = dict(fork.metadata)
        self.models[fork.id] = twin

    @rule(which=st.integers(0, 9), state=st.sampled_from(STATES))
    def change_state(self, which: int, state: Any) -> None:
        name, model = self.pick(which)
        legal = state in list_allowed_states(model.state)  # type: ignore[arg-type]
        try:
            self.do(self.manager.change_state(name, state))
            assert legal
            model.state = state
            model.history.append(model.now)
        except InvalidTransition:
            assert not legal

    @rule(which=st.integers(0, 9), key=st.sampled_from("abc"), value=st.none() | st.integers(0, 3))
    def update(self, which: int, key: str, value: int | None) -> None:
        name, model = self.pick(which)
        self.do(self.manager.update_session(name, metadata={key: value}))
        model.metadata.pop(key, None)
        if value is not None:
            model.metadata[key] = value
        model.history.append(model.now)

    @precondition(has_more_than_one)
    @rule(which=st.integers(0, 9))
    def delete(self, which: int) -> None:
        name, _ = self.pick(which)
        self.do(self.manager.delete_session(name))
        del self.models[name]

    @rule(which=st.integers(0, 9))
    def export_delete_import(self, which: int) -> None:
        name, _ = self.pick(which)
        data = self.do(self.export(name))
        self.do(self.manager.delete_session(name))
        self.do(self.manager.import_events(parse_export(io.BytesIO(data))))
        assert self.do(self.export(name)) == data

    @rule(which=st.integers(0, 9))
    def copy(self, which: int) -> None:
        name, model = self.pick(which)
        if len(self.models) < 6:
            events = parse_export(io.BytesIO(self.do(self.export(name))))
            copy = self.do(self.manager.import_events(events, as_new=True))
            original = self.do(self.manager.get_session(name))
            assert msgspec.structs.replace(copy, id=original.id, slug=original.slug) == original
            twin = Model(list(model.history), model.spent)
            twin.state, twin.metadata = model.state, dict(model.metadata)
            self.models[copy.id] = twin

    @rule()
    def rebuild(self) -> None:
        self.do(self.journal.rebuild())

    @rule()
    def wait(self) -> None:
        self.clock.advance(1)

    async def export(self, name: str) -> bytes:
        return b"".join([line async for line in export_lines(self.journal, name)])

    # --- what always holds ------------------------------------------------------------

    @invariant()
    def sessions_are_as_the_model_says(self) -> None:
        for name, model in self.models.items():
            session = self.do(self.manager.get_session(name))
            assert session.state == model.state
            assert session.metadata == model.metadata
            assert session.total_cost == model.spent
            assert session.message_count == len(model.now)

    def check_everything(self) -> None:
        listed = self.do(self.manager.list_sessions()).items
        assert {session.id for session in listed} == set(self.models)
        for session in listed:
            messages = self.do(self.manager.messages.all(session))
            talk = tuple(
                (m.id, tuple(p.text for p in m.parts if isinstance(p, TextPart))) for m in messages
            )
            assert talk == self.models[session.id].now
            assert self.do(self.manager.find_last_number(session.id)) == (
                len(self.models[session.id].history) - 1
            )
        assert self.do(verify(self.store)) == []


class SessionsInSqlite(Sessions):
    is_sqlite = True


@pytest.fixture(autouse=True)
def no_garbage_of_other_tests() -> None:
    """Hypothesis parses the source of the machine; on Python 3.11 that fails when garbage is
    collected meanwhile whose finalizers show a traceback (which parses too)."""
    gc.collect()


def test_sessions_in_memory_follow_the_model() -> None:
    chosen = settings(max_examples=60, stateful_step_count=25, deadline=None)
    run_state_machine_as_test(Sessions, settings=chosen)  # type: ignore[no-untyped-call]


def test_sessions_in_sqlite_follow_the_model() -> None:
    chosen = settings(max_examples=25, stateful_step_count=20, deadline=None)
    run_state_machine_as_test(SessionsInSqlite, settings=chosen)  # type: ignore[no-untyped-call]
