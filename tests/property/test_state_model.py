"""State against a simple model, on both stores, with two callers and a clock."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from holdfast.errors import StateConflict
from holdfast.hooks import Hooks
from holdfast.journal import Journal, MemoryStore, SqliteStore, verify
from holdfast.state import STATE, JournalStateStore, StateEnvironment, StateManager
from holdfast.testing import FakeClock

KEYS = ("a", "b", "a/c", "ä")
VALUES = st.none() | st.integers(-3, 3) | st.dictionaries(st.sampled_from("xy"), st.integers(0, 3))
scopes = st.sampled_from(["user", "user:bob", "custom:team", "global"])
keys = st.sampled_from(KEYS)


class Value:
    """What a key should be: every version that it had, the last one present."""

    def __init__(self) -> None:
        self.versions: list[tuple[bool, Any, float]] = []

    def at(self, now: float) -> tuple[bool, Any]:
        if not self.versions:
            return False, None
        is_there, value, expires = self.versions[-1]
        return (False, None) if not is_there or 0 < expires <= now else (True, value)


class States(RuleBasedStateMachine):
    """Every rule does the same to real state and to its model."""

    is_sqlite = False

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.place = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.model: dict[tuple[str, str], Value] = {}
        self.snapshots: list[tuple[Any, dict[str, Any]]] = []
        self.journal = self.open()
        self.managers = [self.manager(), self.manager()]

    def open(self) -> Journal:
        path = Path(self.place.name) / "journal.db"
        store = (
            SqliteStore(path, projections=(STATE,), clock=self.clock)
            if self.is_sqlite
            else MemoryStore(projections=(STATE,), clock=self.clock)
        )
        return self.do(Journal(store, clock=self.clock).open())

    def manager(self) -> StateManager:
        store = JournalStateStore(self.journal)
        return StateManager(StateEnvironment(store=store, clock=self.clock, hooks=Hooks()))

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def known(self, scope: str, key: str) -> Value:
        return self.model.setdefault((scope, key), Value())

    @rule(scope=scopes, key=keys, value=VALUES, who=st.integers(0, 1), ttl=st.none() | st.just(5))
    def set(self, scope: str, key: str, value: Any, who: int, ttl: int | None) -> None:
        known = self.known(scope, key)
        entry = self.do(self.managers[who].set(f"{scope}/{key}", value, ttl_s=ttl))
        known.versions.append((True, value, self.clock.now() + ttl if ttl else 0.0))
        assert (entry.value, entry.version) == (value, len(known.versions))

    @rule(scope=scopes, key=keys, value=VALUES, expected=st.integers(0, 4))
    def compare_and_set(self, scope: str, key: str, value: Any, expected: int) -> None:
        known = self.known(scope, key)
        is_there, _ = known.at(self.clock.now())
        fits = expected == len(known.versions) or (expected == 0 and not is_there)
        try:
            self.do(self.managers[0].set(f"{scope}/{key}", value, expected=expected))
        except StateConflict as error:
            assert not fits and error.context["found"] == len(known.versions)
        else:
            assert fits
            known.versions.append((True, value, 0.0))

    @rule(scope=scopes, key=keys)
    def delete(self, scope: str, key: str) -> None:
        known = self.known(scope, key)
        is_there, _ = known.at(self.clock.now())
        assert self.do(self.managers[1].delete(f"{scope}/{key}")) == is_there
        if known.versions and known.versions[-1][0]:
            known.versions.append((False, None, 0.0))

    @rule(scope=scopes, key=keys)
    def update(self, scope: str, key: str) -> None:
        known = self.known(scope, key)
        _, value = known.at(self.clock.now())
        self.do(self.managers[0].update(f"{scope}/{key}", lambda old: [old]))
        known.versions.append((True, [value], 0.0))

    @rule(seconds=st.integers(1, 6))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def sweep(self) -> None:
        now = self.clock.now()
        gone = [one for one in self.model.values() if one.versions and one.versions[-1][0]]
        gone = [one for one in gone if 0 < one.versions[-1][2] <= now]
        assert self.do(self.managers[0].sweep()) == len(gone)
        for one in gone:
            one.versions.append((False, None, 0.0))

    @rule()
    def snapshot(self) -> None:
        taken = self.do(self.managers[0].snapshot("user"))
        self.snapshots.append((taken, self.values_of("user")))
        assert taken.values == self.values_of("user")

    @rule(number=st.integers(0, 5))
    def restore(self, number: int) -> None:
        if not self.snapshots:
            return
        taken, values = self.snapshots[number % len(self.snapshots)]
        self.do(self.managers[1].restore("user", taken))
        kept = {entry.key: entry for entry in taken.entries}
        for key in KEYS:
            known = self.known("user", key)
            was = kept.get(key)
            now = known.versions[-1] if known.versions else (False, None, 0.0)
            then = (was is not None, was.value if was else None, was.expires_at if was else 0.0)
            if now[0] != then[0] or (then[0] and not (same(now[1], then[1]) and now[2] == then[2])):
                known.versions.append(then)

    @rule()
    def rebuild(self) -> None:
        self.do(self.journal.rebuild())

    @rule()
    def reopen(self) -> None:
        if self.is_sqlite:
            self.do(self.journal.close())
            self.journal = self.open()
            self.managers = [self.manager(), self.manager()]

    def values_of(self, scope: str) -> dict[str, Any]:
        found = {}
        for (named, key), known in self.model.items():
            is_there, value = known.at(self.clock.now())
            if named == scope and is_there:
                found[key] = value
        return found

    @invariant()
    def is_as_the_model_says(self) -> None:
        if not hasattr(self, "journal"):
            return
        for scope in ("user", "user:bob", "custom:team", "global"):
            page = self.do(self.managers[0].list(f"{scope}/"))
            values = {entry.key: entry.value for entry in page.entries}
            assert values == self.values_of(scope)
            assert list(values) == sorted(values, key=str.encode)
        for (scope, key), known in self.model.items():
            changes = self.do(self.managers[0].history(f"{scope}/{key}"))
            assert [one.version for one in changes] == list(range(len(known.versions), 0, -1))
            told = [(not one.is_deleted, one.value) for one in reversed(changes)]
            assert told == [(is_there, value) for is_there, value, _ in known.versions]

    def teardown(self) -> None:
        if hasattr(self, "journal"):
            assert self.do(verify(self.journal.store)) == []
            self.do(self.journal.close())
            self.loop.close()
            self.place.cleanup()


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


class StatesInSqlite(States):
    is_sqlite = True


@pytest.mark.parametrize("machine", [States, StatesInSqlite])
def test_state_is_what_a_simple_model_says(machine: type[States]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=25, stateful_step_count=25))
