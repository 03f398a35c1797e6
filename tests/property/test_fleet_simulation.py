"""The promises of a fleet hold in every schedule that a seed makes; see fleet_simulation.py."""

from __future__ import annotations

import msgspec
import pytest
from fleet_simulation import simulate

from holdfast.journal import AppendRequest, Event, MemoryStore

SEEDS = range(40)


def test_every_promise_holds_in_every_schedule() -> None:
    broken = {seed: world.wrong for seed in SEEDS if (world := simulate(seed)).wrong}
    assert not broken, f"python tests/property/fleet_simulation.py --seed SEED: {broken}"


def test_a_seed_tells_all_that_happens() -> None:
    for seed in (3, 7, 11):
        one, other = simulate(seed), simulate(seed)
        assert one.trace == other.trace
        assert one.loop.moment == other.loop.moment
        assert [step for _, step in one.effects] == [step for _, step in other.effects]


def test_a_store_that_does_not_look_at_the_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulation would tell: without the fence two processes write into each other's turns."""
    real = MemoryStore.append

    async def append(store: MemoryStore, request: AppendRequest) -> tuple[Event, ...]:
        return await real(store, msgspec.structs.replace(request, epoch=None, after=None))

    monkeypatch.setattr(MemoryStore, "append", append)
    assert any(simulate(seed).wrong for seed in range(300))


def test_a_lease_that_is_given_to_two_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Effects would be repeated after their results, and runs would begin twice."""
    from holdfast.journal.stores.memory import _Stream  # noqa: PLC0415 - what it breaks

    monkeypatch.setattr(_Stream, "is_held", lambda stream, now: False)
    monkeypatch.setattr(
        _Stream, "take", lambda stream, wish, now: setattr(stream, "owner", wish.owner)
    )
    assert any(simulate(seed).wrong for seed in range(300))
