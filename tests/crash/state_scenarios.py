"""What is killed: writes of state that can be taken up again, and counters of two processes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from postgres_boundaries import name_tenant, serve_boundaries

from holdfast.clock import SYSTEM
from holdfast.errors import StateConflict
from holdfast.hooks import Hooks
from holdfast.journal import (
    Journal,
    SqliteStore,
    grant_role,
    migrate_store,
    open_store,
    verify,
)
from holdfast.state import STATE, JournalStateStore, StateEnvironment, StateManager

STEPS = 10


def open_journal(place: str | Path) -> Journal:
    """Open the journal in a directory, or at an address."""
    if "://" in str(place):
        return Journal(open_store(str(place), base_dir=Path("/"), projections=(STATE,)))
    return Journal(SqliteStore(Path(place) / "journal.db", projections=(STATE,)))


async def set_up(url: str, role: str) -> None:
    """Make a database ready for a role that only serves."""
    await migrate_store(url, base_dir=Path("/"), projections=(STATE,))
    await grant_role(url, role, "records")


def manager_of(journal: Journal) -> StateManager:
    store = JournalStateStore(journal)
    return StateManager(StateEnvironment(store=store, clock=SYSTEM, hooks=Hooks()))


def acknowledge(directory: str, text: str) -> None:
    """Say that a write has returned, in a way that survives this process."""
    handle = os.open(f"{directory}/acknowledged", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


def write_values(directory: str) -> None:
    asyncio.run(_write_values(directory, directory))


def write_rows(directory: str) -> None:
    """Do the same in a database; each exchange that changes it is a boundary."""
    with serve_boundaries(os.environ["TEST_POSTGRES"]) as address:
        asyncio.run(_write_values(directory, name_tenant(address, directory)))


async def _write_values(directory: str, place: str) -> None:
    """Set, update, merge, remove, restore; each step knows from the state whether it is due."""
    async with open_journal(place) as journal:
        state = manager_of(journal)
        while True:
            entry = await state.entry("global/step")
            step = entry.value if entry is not None else 0
            if step >= STEPS:
                break
            await state.set(f"user/k{step}", {"step": step, "pad": "x" * (step % 3) * 20_000})
            await state.set("user/shared", {"a": step})
            seen = await state.entry("user/shared")
            assert seen is not None
            await state.set(
                "user/shared", {"b": step}, expected=seen.version - 1, on_conflict="merge"
            )
            with_conflict = False
            try:
                await state.set("user/shared", {}, expected=0)
            except StateConflict:
                with_conflict = True
            assert with_conflict
            if step == 4:
                await state.delete("user/k0")
            if step == 6:
                await state.restore("user", await state.snapshot("user", at=1))
            written = await state.set(
                "global/step", step + 1, expected=entry.version if entry is not None else 0
            )
            acknowledge(directory, f"{written.version}")


def check_values(directory: Path) -> None:
    asyncio.run(_check_values(directory, directory))


def check_rows(directory: Path) -> None:
    place = name_tenant(os.environ["TEST_POSTGRES"], directory)
    asyncio.run(_check_values(directory, place))


async def _check_values(directory: Path, place: str | Path) -> None:
    async with open_journal(place) as journal:
        assert await verify(journal.store) == []
        state = manager_of(journal)
        entry = await state.entry("global/step")
        assert entry is not None
        assert (entry.value, entry.version) == (STEPS, STEPS)
        told = (directory / "acknowledged").read_text().split()
        assert len(told) == len(set(told)), "a step was done twice"
        before = [(one.key, one.value, one.version) for one in (await state.list("user/")).entries]
        for scope in ("user", "global"):
            for one in (await state.list(f"{scope}/")).entries:
                versions = [c.version for c in await state.history(f"{scope}/{one.key}", limit=500)]
                assert versions == list(range(one.version, 0, -1))
        await journal.rebuild()
        after = [(one.key, one.value, one.version) for one in (await state.list("user/")).entries]
        assert before == after
        assert any(key == "shared" for key, _, _ in after)


async def count(directory: str, name: str, times: str) -> None:
    """Add one so many times to a counter that others add to as well."""
    async with open_journal(directory) as journal:
        state = manager_of(journal)
        for _ in range(int(times)):
            await state.update("global/count", lambda value: value + 1, default=0, retries=1000)
            await state.update(f"user:{name}/own", lambda value: value + 1, default=0)
    sys.stdout.write("done\n")


async def change_when_told(directory: str, address: str) -> None:
    """Change a value for every line on standard input."""
    async with open_journal(directory) as journal:
        state = manager_of(journal)
        await state.set("global/ready", True)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for line in sys.stdin:
            await state.set(address, line.strip())


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
