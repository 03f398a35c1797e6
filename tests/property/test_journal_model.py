"""Both stores against a model of a few dictionaries, through the same rules."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.errors import AlreadyExists, HoldfastError, LeaseLost, NotFound, StaleWriter
from holdfast.journal import Journal, MemoryStore, RowQuery, SessionDeleted, SqliteStore, verify
from holdfast.testing import FakeClock
from holdfast.testing._store_samples import SAMPLE_TABLES, TOPICS, Mark, Note, Topic

SESSIONS = st.sampled_from(["s1", "s2", "s3"])
NOTES = st.builds(
    Note,
    topic=st.sampled_from(["", "a", "b"]),
    text=st.sampled_from(["", "x", "large", "größer"]).map(
        lambda text: text * 8000 if text == "large" else text
    ),
    rank=st.integers(-3, 3),
)
TTL_S = 10.0


class ModelSession:
    """What a session should be."""

    def __init__(self) -> None:
        self.notes: list[Note | Mark | None] = []
        self.epoch = 0
        self.owner = ""
        self.expires = 0.0


class JournalMachine(RuleBasedStateMachine):
    """Does the same to a store and to the model, and compares after every step."""

    is_kept: ClassVar[bool]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.place = Path(tempfile.mkdtemp(prefix="model-"))
        self.clock = FakeClock()
        self.model: dict[str, ModelSession] = {}
        self.deletions = 0
        self.known: set[str] = set()
        """Owners that have shown themselves; their death can be proved."""
        self.locked: set[str] = set()
        """Owners whose byte this store holds."""
        self.journal = Journal(self.make_store(), clock=self.clock)
        self.run(self.journal.open())

    def make_store(self) -> Any:
        raise NotImplementedError

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def refused(self, work: Any, wanted: type[HoldfastError] | None) -> Any:
        """Run something that must be refused with an error, or succeed when there is none."""
        try:
            result = self.run(work)
        except HoldfastError as error:
            assert wanted is not None and type(error) is wanted, (error, wanted)
            return None
        assert wanted is None, f"{wanted} expected"
        return result

    @rule(name=SESSIONS, notes=st.lists(NOTES, min_size=1, max_size=3))
    def create(self, name: str, notes: list[Note]) -> None:
        wanted = AlreadyExists if name in self.model else None
        self.refused(self.journal.append(name, notes, must_be_new=True), wanted)
        if wanted is None:
            self.model[name] = ModelSession()
            self.model[name].notes = list(notes)

    @rule(
        name=SESSIONS,
        notes=st.lists(NOTES, min_size=1, max_size=3),
        behind=st.sampled_from([None, 0, 0, 0, 1, -1]),
        missed=st.sampled_from([None, None, 0, 1]),
        release=st.booleans(),
    )
    def append(
        self, name: str, notes: list[Note], behind: int | None, missed: int | None, release: bool
    ) -> None:
        self.append_notes(name, notes, behind, missed, release)

    def append_notes(
        self,
        name: str,
        notes: Sequence[Note | Mark],
        behind: int | None,
        missed: int | None,
        release: bool = False,
    ) -> None:
        model = self.model.get(name)
        epoch = None if behind is None else (model.epoch if model else 0) - behind
        after = None if missed is None else (len(model.notes) if model else 0) - missed
        wanted: type[HoldfastError] | None = None
        if model is None:
            wanted = NotFound
        elif behind:
            wanted = LeaseLost
        elif missed:
            wanted = StaleWriter
        release = release and epoch is not None
        work = self.journal.append(name, notes, epoch=epoch, after=after, release=release)
        self.refused(work, wanted)
        if wanted is None and model is not None:
            model.notes += notes
            if release:
                model.owner, model.expires = "", 0.0

    @rule(
        name=SESSIONS,
        numbers=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        behind=st.sampled_from([None, 0, 0, 0, 1]),
        missed=st.sampled_from([None, 0, 1]),
    )
    def mark(self, name: str, numbers: list[int], behind: int | None, missed: int | None) -> None:
        """Append small facts one by one: the short way through the SQLite store."""
        for number in numbers:
            self.append_notes(name, [Mark(number=number)], behind, missed)

    @rule(name=SESSIONS, count=st.integers(2, 5))
    def append_at_once(self, name: str, count: int) -> None:
        if name not in self.model:
            return
        notes = [Note(rank=number) for number in range(count)]

        async def together() -> None:
            await asyncio.gather(*[self.journal.append(name, [note]) for note in notes])

        self.run(together())
        self.model[name].notes += notes

    @rule(name=SESSIONS, owner=st.sampled_from(["me", "you"]))
    def acquire(self, name: str, owner: str) -> None:
        model = self.model.get(name)
        head = self.refused(
            self.journal.store.acquire(name, owner, TTL_S), None if model else NotFound
        )
        if model is None:
            return
        self.locked.add(owner)
        is_free = not self.is_held(model)
        assert (head is not None) == is_free
        if is_free:
            model.epoch += 1
            model.owner, model.expires = owner, self.clock.boottime() + TTL_S

    @rule(owner=st.sampled_from(["me", "you"]), behind=st.sampled_from([0, 0, 1]))
    def renew(self, owner: str, behind: int) -> None:
        held = {name: model.epoch - behind for name, model in self.model.items()}
        lost = self.journal.store.renew(held, owner, TTL_S)
        self.known.add(owner)
        self.locked.add(owner)
        for name, model in self.model.items():
            is_held = model.owner == owner and not behind
            assert (name not in lost) == is_held
            if is_held:
                model.expires = self.clock.boottime() + TTL_S
        assert self.run(self.journal.store.is_alive(owner))

    @rule(name=SESSIONS, behind=st.sampled_from([0, 1]))
    def release(self, name: str, behind: int) -> None:
        model = self.model.get(name)
        self.run(self.journal.store.release(name, (model.epoch if model else 0) - behind))
        if model is not None and not behind:
            model.owner, model.expires = "", 0.0

    @rule(seconds=st.sampled_from([1.0, 9.0, 10.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(name=SESSIONS, numbers=st.sets(st.integers(0, 8), min_size=1))
    def redact(self, name: str, numbers: set[int]) -> None:
        model = self.model.get(name)
        if model is None:
            return
        notes = {n: note for n, note in enumerate(model.notes, 1) if isinstance(note, Note)}
        wanted = sorted(numbers & notes.keys())
        already = [
            event.session_seq
            for event in self.run(self.journal.read_all(name))
            if event.is_redacted
        ]
        wanted = [number for number in wanted if number not in already]
        assert self.run(self.journal.redact(name, wanted, reason="model")) == len(wanted)
        if wanted:
            for number in wanted:
                model.notes[number - 1] = notes[number].redacted()
            model.notes.append(None)

    @rule(name=SESSIONS, is_holder=st.booleans(), comes_back=st.booleans())
    def delete(self, name: str, is_holder: bool, comes_back: bool) -> None:
        """Remove a session; sometimes restore it as it was."""
        model = self.model.get(name)
        note = SessionDeleted(session_id=name, last=0, hash="")
        events = self.run(self.journal.read_all(name))
        epoch = (model.epoch if model else 0) - (not is_holder)
        wanted = NotFound if model is None else None if is_holder else LeaseLost
        draft = self.journal.draft(note)
        self.refused(self.journal.store.delete(name, draft, epoch), wanted)
        if wanted is not None or model is None:
            return
        self.deletions += 1
        if comes_back:
            self.run(self.journal.store.restore(events))
            model.epoch = max(event.epoch for event in events)
            model.owner, model.expires = "", 0.0
        else:
            del self.model[name]

    @rule()
    def rebuild(self) -> None:
        self.run(self.journal.rebuild())

    @rule()
    def collect(self) -> None:
        self.run(self.journal.store.collect())

    @precondition(lambda self: self.is_kept)
    @rule()
    def open_again(self) -> None:
        """Close the store without a word of its owners: those that were known are proved dead."""
        self.run(self.journal.close())
        self.journal = Journal(self.make_store(), clock=self.clock)
        self.run(self.journal.open())
        self.locked.clear()

    def is_held(self, model: ModelSession) -> bool:
        is_dead = model.owner in self.known - self.locked
        return model.expires > self.clock.boottime() and not is_dead

    @invariant()
    def the_store_is_as_the_model_says(self) -> None:
        heads = {head.session_id: head for head in self.run(self.journal.store.heads())}
        heads.pop("system", None)
        assert heads.keys() == self.model.keys()
        rows: dict[tuple[str, str], Topic] = {}
        for name, model in self.model.items():
            head = heads[name]
            assert (head.session_seq, head.epoch) == (len(model.notes), model.epoch)
            is_held = self.is_held(model)
            assert (head.owner, head.is_held) == (model.owner, is_held)
            events = self.run(self.journal.read_all(name))
            kinds = (Note.kind, Mark.kind)
            found = [event.decode() if event.kind in kinds else None for event in events]
            assert found == model.notes
            rows |= self.folded(name, model.notes)
        query = RowQuery(projection=TOPICS, limit=1000)
        stored = self.run(self.journal.rows(query))
        assert {(keyed.session_id, keyed.key): keyed.row for keyed in stored} == rows
        seqs = [event.seq for event in self.run(self.journal.store.feed(after=0, limit=10_000))]
        assert seqs == sorted(set(seqs))
        assert self.run(self.journal.read_last_seq()) == (seqs[-1] if seqs else 0)

    @invariant()
    def the_chains_hold(self) -> None:
        assert self.run(verify(self.journal.store)) == []

    @staticmethod
    def folded(name: str, notes: list[Note | Mark | None]) -> dict[tuple[str, str], Topic]:
        rows: dict[tuple[str, str], Topic] = {}
        for note in notes:
            if not isinstance(note, Note) or not note.topic:
                continue
            place = (name, note.topic)
            if not note.text:
                rows.pop(place, None)
                continue
            rows[place] = Topic(
                topic=note.topic,
                text=note.text,
                rank=note.rank,
                count=rows[place].count + 1 if place in rows else 1,
                is_long=len(note.text) > 20,
            )
        return rows

    def teardown(self) -> None:
        self.run(self.journal.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
        shutil.rmtree(self.place)


class MemoryMachine(JournalMachine):
    is_kept = False

    def make_store(self) -> MemoryStore:
        return MemoryStore(projections=SAMPLE_TABLES, clock=self.clock)


class SqliteMachine(JournalMachine):
    is_kept = True

    def make_store(self) -> SqliteStore:
        path = self.place / "journal.db"
        return SqliteStore(path, projections=SAMPLE_TABLES, clock=self.clock)


class TestMemoryStore(MemoryMachine.TestCase):
    settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


class TestSqliteStore(SqliteMachine.TestCase):
    settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
