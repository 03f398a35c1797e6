"""Artifacts against a model, with crashes at every step of every operation."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.artifacts import (
    ARTIFACT_PROJECTIONS,
    ArtifactActor,
    ArtifactFilter,
    ArtifactKey,
    ArtifactServices,
    ArtifactStore,
    FileBlobs,
    FileLocks,
    KeyRing,
    collect,
    make_blob_key,
    rekey,
    verify,
)
from holdfast.journal import Journal, MemoryStore

KEYS = [ArtifactKey(bytes([n]) * 32) for n in range(3)]
EVERYTHING = ArtifactFilter(has_old_versions=True)
names = st.sampled_from(["a", "b", "folder/c"])
contents = st.sampled_from([b"", b"x", b"one", b"two" * 5_000, bytes(1_100_000)])
crashes = st.integers(0, 12)


class Killed(BaseException):
    """The process is gone."""


class DyingBlobs(FileBlobs):
    """Files whose process dies before the n-th thing that it does to them."""

    left = 0

    def step(self) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                raise Killed

    async def claim(self, mark):
        self.step()
        return await super().claim(mark)

    def begin(self, name):
        self.step()
        upload = super().begin(name)
        real = upload.write, upload.publish, upload.discard

        async def write(data):
            self.step()
            await real[0](data)

        async def publish(key, *, replaces=False):
            self.step()
            await real[1](key, replaces=replaces)
            self.step()

        async def discard():
            if self.left:
                self.step()
            elif self.is_dead:
                return
            await real[2]()

        upload.write, upload.publish, upload.discard = write, publish, discard
        return upload

    is_dead = False

    async def remove(self, keys):
        self.step()
        await super().remove(keys)
        self.step()


class ArtifactMachine(RuleBasedStateMachine):
    """What is listed is what the model says, whole; what was in doubt is one or the other."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.place = Path(self.folder.name)
        self.journal = Journal(MemoryStore(projections=ARTIFACT_PROJECTIONS))
        self.loop.run_until_complete(self.journal.open())
        self.key = 0
        self.model: dict[str, tuple[str, bytes]] = {}
        self.open()

    def open(self) -> None:
        self.blobs = DyingBlobs(self.place / "artifacts")
        self.services = ArtifactServices(
            journal=self.journal,
            blobs=self.blobs,
            locks=FileLocks(self.place / "locks"),
            place="here",
            keys=KeyRing(active=KEYS[self.key], former=KEYS[self.key - 1]),
        )
        actor = ArtifactActor(tenant="acme", subject="owner", user="local", is_admin=True)
        self.store = ArtifactStore(self.services, actor)

    def perform(self, work, crash: int):
        """Do something in a process that may die; returns None if it did."""
        self.blobs.left = crash
        try:
            return self.loop.run_until_complete(work)
        except Killed:
            self.blobs.is_dead = True
            # The kernel takes the locks of a dead process.
            locks = self.services.locks
            if locks._held >= 0:
                os.close(locks._held)
                locks._held = -1
            self.open()
            return None
        finally:
            self.blobs.left = 0

    def listed(self):
        page = self.loop.run_until_complete(self.store.list(EVERYTHING, limit=10_000))
        return {one.id: one for one in page.items}

    @rule(name=names, data=contents, crash=crashes)
    def save(self, name, data, crash):
        before = self.listed()
        saved = self.perform(self.store.save(name, data), crash)
        if saved is not None:
            self.model[saved.id] = (name, data)
            return
        for new in set(self.listed()) - set(before):
            self.model[new] = (name, data)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), crash=crashes)
    def delete(self, data, crash):
        chosen = data.draw(st.sampled_from(sorted(self.model)))
        self.perform(self.store.delete(chosen), crash)
        if chosen not in self.listed():
            del self.model[chosen]

    @rule(crash=crashes)
    def collect(self, crash):
        self.perform(collect(self.store), crash)

    @rule(crash=crashes)
    def rekey(self, crash):
        report = self.perform(rekey(self.store), crash)
        if report is not None:
            assert report.failed == ()

    @rule()
    def next_key(self):
        # Only when nothing is left under the key that goes.
        if self.perform(rekey(self.store), 0) is not None:
            self.key = (self.key + 1) % len(KEYS)
            self.open_again()

    def open_again(self) -> None:
        self.loop.run_until_complete(self.services.locks.close())
        self.open()

    @invariant()
    def what_is_listed_is_what_was_saved(self):
        listed = self.listed()
        assert set(listed) == set(self.model)
        for artifact_id, (name, data) in self.model.items():
            assert listed[artifact_id].name == name
            assert self.loop.run_until_complete(self.store.load(artifact_id)) == data
        assert self.loop.run_until_complete(verify(self.store)) == []

    def teardown(self) -> None:
        with contextlib.suppress(Killed):
            self.loop.run_until_complete(collect(self.store))
        self.loop.run_until_complete(self._check_no_orphan())
        self.open_again()
        self.loop.run_until_complete(self.journal.close())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
        self.folder.cleanup()

    async def _check_no_orphan(self) -> None:
        kept = {info.key async for info in self.blobs.scan()}
        assert kept == {
            make_blob_key("acme", one.digest)
            for one in (await self.store.list(EVERYTHING, limit=10_000)).items
        }
        assert list(await self.blobs.uploads()) == []


TestArtifacts = ArtifactMachine.TestCase
TestArtifacts.settings = settings(
    max_examples=25, stateful_step_count=15, deadline=None, print_blob=True
)
