"""What one scope does: versions, conflicts, time to live, limits, labels, snapshots, hooks."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from holdfast.errors import (
    HookRefused,
    NotFound,
    PermissionDenied,
    StateConflict,
    StateFull,
    UsageError,
)
from holdfast.hooks import Cancel, HookPayload, Replace
from holdfast.journal import Journal
from holdfast.redaction import Redactor
from holdfast.state import (
    ConflictCase,
    JournalStateStore,
    ScopedState,
    StateLimits,
    StateManager,
    StateOwner,
)
from holdfast.testing import FakeClock, memory_state
from holdfast.tools import ContextLabels


def journal_of(state: ScopedState) -> Journal:
    store = state.environment.store
    assert isinstance(store, JournalStateStore)
    return store.journal


async def facts(state: ScopedState, kind: str) -> list[dict[str, Any]]:
    events = await journal_of(state).read(state.bound.chain)
    return [vars_of(event.decode()) for event in events if event.kind == kind]


def vars_of(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


async def test_versions_count_and_go_on_after_a_removal() -> None:
    state = memory_state()
    assert (await state.set("a", 1)).version == 1
    assert (await state.set("a", 2)).version == 2
    assert await state.delete("a")
    assert not await state.delete("a")
    assert not await state.delete("never")
    assert await state.get("a", "none") == "none"
    assert (await state.set("a", 3, expected=0)).version == 4


async def test_compare_and_set_refuses_another_version_and_says_so_in_the_journal() -> None:
    state = memory_state()
    await state.set("a", 1)
    await state.set("a", 2, expected=1)
    for expected in (0, 1, 3):
        with pytest.raises(StateConflict) as caught:
            await state.set("a", 9, expected=expected)
        assert caught.value.context["found"] == 2
    with pytest.raises(StateConflict):
        await state.delete("a", expected=1)
    assert await state.get("a") == 2
    kept = await facts(state, "state.conflict")
    assert [one["outcome"] for one in kept] == ["refused"] * 4
    assert await state.delete("a", expected=2)


async def test_the_strategies_resolve_a_conflict_by_name() -> None:
    state = memory_state()
    await state.set("a", {"x": 1, "y": 1})
    await state.set("a", {"x": 2, "y": 1})
    merged = await state.set("a", {"x": 1, "y": 5}, expected=1, on_conflict="merge")
    assert merged.value == {"x": 2, "y": 5}
    over = await state.set("a", {"z": 1}, expected=1, on_conflict="last-writer")
    assert over.value == {"z": 1}
    cases: list[ConflictCase] = []

    async def choose(case: ConflictCase) -> Any:
        cases.append(case)
        return {"chosen": True}

    own = await state.set("a", {"mine": 1}, expected=3, on_conflict=choose)
    assert own.value == {"chosen": True}
    [case] = cases
    assert (case.base, case.theirs, case.mine) == ({"x": 2, "y": 5}, {"z": 1}, {"mine": 1})
    assert (case.expected, case.found) == (3, 4)
    kept = await facts(state, "state.conflict")
    assert [one["outcome"] for one in kept] == ["merged", "overwritten", "resolved"]
    assert [one["strategy"] for one in kept][:2] == ["merge", "last-writer"]
    assert "choose" in kept[2]["strategy"]


async def test_merge_needs_objects_on_both_sides() -> None:
    state = memory_state()
    await state.set("a", [1])
    with pytest.raises(StateConflict):
        await state.set("a", {"x": 1}, expected=0, on_conflict="merge")
    await state.delete("a")
    with pytest.raises(StateConflict):
        await state.set("a", {"x": 1}, expected=1, on_conflict="merge")


async def test_update_is_called_again_until_nobody_came_between() -> None:
    state = memory_state()

    async def add(value: int) -> int:
        await asyncio.sleep(0)
        return value + 1

    await asyncio.gather(*[state.update("n", add, default=0, retries=1000) for _ in range(20)])
    assert await state.get("n") == 20
    kept = await facts(state, "state.conflict")
    assert kept and {one["outcome"] for one in kept} == {"retried"}


async def test_update_gives_up_after_its_retries() -> None:
    state = memory_state()

    async def disturb(value: object) -> object:
        await state.set("n", "other")
        return "mine"

    with pytest.raises(StateConflict):
        await state.update("n", disturb, retries=2)
    assert await state.get("n") == "other"
    [refused] = [one for one in await facts(state, "state.conflict") if one["outcome"] == "refused"]
    assert refused["attempts"] == 3


async def test_a_value_is_gone_when_its_time_is_up() -> None:
    clock = FakeClock()
    state = memory_state(clock=clock)
    await state.set("a", 1, ttl_s=10)
    await state.set("b", 1)
    assert await state.get("a") == 1
    clock.advance(10)
    assert await state.get("a") is None
    assert await state.entry("a") is None
    assert [one.key for one in (await state.list()).entries] == ["b"]
    assert not await state.delete("a")
    assert (await state.set("a", 2, expected=0)).version == 3
    await state.set("a", 3, ttl_s=1)
    clock.advance(2)
    manager = StateManager(state.environment)
    assert await manager.sweep() == 1
    assert await manager.sweep() == 0
    assert (await state.history("a"))[0].cause == "expire"


@pytest.mark.parametrize("ttl", [0, -1, float("inf"), float("nan"), True, "10"])
async def test_a_time_to_live_that_is_none_is_refused(ttl: Any) -> None:
    state = memory_state()
    with pytest.raises(UsageError):
        await state.set("a", 1, ttl_s=ttl)
    assert await state.entry("a") is None


async def test_what_is_too_large_or_no_json_is_refused_before_anything_happens() -> None:
    state = memory_state(limits=StateLimits(value_bytes=100))
    for value in (
        "x" * 101,
        object(),
        float("inf"),
        {"a": [float("nan")]},
        "\ud800",
        {1, 2}.__iter__(),
    ):
        with pytest.raises(UsageError):
            await state.set("a", value)
        with pytest.raises(UsageError):
            await state.update("a", lambda _old, value=value: value)
    assert await journal_of(state).head(state.bound.chain) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"expected": -1},
        {"expected": "1"},
        {"expected": True},
        {"on_conflict": "hope"},
        {"on_conflict": 7},
        {"labels": "untrusted"},
        {"labels": ["secret"]},
    ],
)
async def test_arguments_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    state = memory_state()
    with pytest.raises(UsageError):
        await state.set("a", 1, **wrong)
    for call in (
        state.list(limit=0),
        state.list(limit=10_000),
        state.history("a", limit=0),
        state.update("a", 7),  # type: ignore[arg-type]
        state.update("a", str, retries=-1),
        state.snapshot(at=99),
        state.snapshot(at_seq=-1),
        state.restore(True),
    ):
        with pytest.raises(UsageError):
            await call
    assert await journal_of(state).head(state.bound.chain) is None


async def test_pages_follow_one_another_without_gap_or_overlap() -> None:
    state = memory_state()
    for number in range(25):
        await state.set(f"k/{number:02}", number)
    await state.set("other", 1)
    seen: list[int] = []
    cursor = ""
    while True:
        page = await state.list("k/", limit=10, cursor=cursor)
        seen += [entry.value for entry in page.entries]
        cursor = page.cursor
        if not cursor:
            break
    assert seen == list(range(25))


async def test_labels_come_back_on_read_and_taint_what_is_written() -> None:
    taint = ContextLabels()
    state = memory_state()
    reader = memory_state(taint=taint, store=state.environment.store)
    await state.set("a", "from the web", labels=["untrusted"])
    await reader.set("before", 1)
    await reader.get("a")
    assert taint.seen == {"untrusted"}
    await reader.set("after", 1)
    before, after = await state.entry("before"), await state.entry("after")
    assert before is not None and before.labels == ()
    assert after is not None and after.labels == ("untrusted",)
    await state.set("p", 1, labels=["private"])
    for read in (reader.list(), reader.history("p"), reader.snapshot()):
        taint.labels, taint.new = (), ()
        await read
        assert "private" in taint.seen


async def test_a_merged_value_has_the_labels_of_both() -> None:
    state = memory_state()
    await state.set("a", {"x": 1})
    await state.set("a", {"x": 2}, labels=["untrusted"])
    merged = await state.set("a", {"y": 1}, expected=1, on_conflict="merge", labels=["private"])
    assert merged.labels == ("private", "untrusted")


async def test_a_snapshot_is_a_position_and_the_way_back_is_a_change() -> None:
    state = memory_state()
    await state.set("a", 1, labels=["private"])
    await state.set("b", 1)
    then = await state.snapshot()
    await state.set("a", 2)
    await state.delete("b")
    await state.set("c", 3)
    assert await state.restore(then) == 3
    assert (await state.snapshot()).values == {"a": 1, "b": 1}
    entry = await state.entry("a")
    assert entry is not None and entry.labels == ("private",) and entry.version == 3
    assert await state.restore(then.position) == 0
    assert (await state.snapshot(at=1)).values == {"a": 1}
    assert (await state.history("a"))[0].cause == "restore"
    with pytest.raises(UsageError):
        await state.scope("global").restore(then)


async def test_secrets_do_not_reach_the_journal_and_the_answer_says_so() -> None:
    state = memory_state()
    journal = journal_of(state)
    journal.redactor = Redactor({"PASSWORD": "correct-horse-battery"})
    entry = await state.set("a", {"key": "correct-horse-battery"})
    assert "correct-horse" not in str(entry.value)
    assert "correct-horse" not in str(await state.get("a"))
    for event in await journal.read(state.bound.chain):
        assert b"correct-horse" not in event.payload


async def test_every_hook_of_state_is_asked_and_may_decide() -> None:
    state = memory_state()
    hooks = state.environment.hooks
    seen: list[str] = []

    @hooks.observe("state.*")
    def note(payload: HookPayload) -> None:
        seen.append(payload.point)

    await state.set("a", 1)
    await state.get("a")
    assert seen == [
        "state.before_write",
        "state.after_write",
        "state.before_read",
        "state.after_read",
    ]
    changing = hooks.on("state.before_write", lambda p: p.modify(value="changed"))
    assert (await state.set("a", 2)).value == "changed"
    hooks.off(changing)
    showing = hooks.on("state.after_read", lambda p: p.modify(value="shown"))
    assert await state.get("a") == "shown"
    [listed] = (await state.list()).entries
    assert listed.value == "shown"
    hooks.off(showing)
    for point in ("state.before_read", "state.before_write"):
        refusing = hooks.on(point, lambda p: Cancel("no"))
        with pytest.raises(HookRefused):
            await state.update("a", lambda value: value)
        hooks.off(refusing)
    refusing = hooks.on("state.before_write", lambda p: Cancel("no"))
    with pytest.raises(HookRefused):
        await state.delete("a")
    hooks.off(refusing)
    deciding = hooks.on("state.conflict", lambda p: Replace("by a hook"))
    assert (await state.set("a", 9, expected=1)).value == "by a hook"
    hooks.off(deciding)
    hooks.on("state.conflict", lambda p: Cancel("no"))
    with pytest.raises(HookRefused):
        await state.set("a", 9, expected=1, on_conflict="last-writer")


async def test_a_watch_tells_of_changes_of_its_prefix_only() -> None:
    state = memory_state()
    await state.set("a/1", "before")
    async with contextlib.aclosing(state.watch("a/", after=0)) as changes, asyncio.timeout(30):
        assert (await anext(changes)).value == "before"
        waiting = asyncio.ensure_future(anext(changes))
        await state.set("b", "other")
        await state.set("a/2", "now")
        change = await waiting
        assert (change.key, change.value, change.version) == ("a/2", "now", 1)
        await state.delete("a/2")
        gone = await anext(changes)
        assert gone.is_deleted and gone.value is None


async def test_scopes_need_an_owner_or_an_id() -> None:
    state = memory_state(owner=StateOwner())
    for kind in ("project", "session", "agent", "tool", "workflow", "run", "custom"):
        with pytest.raises(UsageError):
            state.scope(kind)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        state.scope("galaxy")  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        state.scope("global", "x")
    await state.scope("custom", "team").set("k", 1)
    with pytest.raises(NotFound):
        await state.scope("session", "ses_nobody").set("k", 1)
    manager = StateManager(state.environment)
    with pytest.raises(UsageError):
        await manager.get("run:r/x")
    for address in ("session:ses_x", "user/key"):
        with pytest.raises(UsageError):
            await manager.forget(address)


class NoWriting:
    def check(self, action: str, target: str, *, is_own: bool) -> None:
        if action == "write" or target.endswith("secret"):
            raise PermissionDenied(permission=action, target=target, because="test")

    def may(self, action: str, target: str, *, is_own: bool) -> bool:
        return action == "read" and not target.endswith("secret")


async def test_rights_hold_for_every_way_in() -> None:
    owner = memory_state()
    await owner.set("open", 1)
    await owner.set("secret", 1)
    state = memory_state(access=NoWriting(), store=owner.environment.store)
    assert [one.key for one in (await state.list()).entries] == ["open"]
    assert (await state.snapshot()).values == {"open": 1}
    manager = StateManager(state.environment)
    for refused in (
        state.get("secret"),
        state.entry("secret"),
        state.history("secret"),
        state.set("open", 2),
        state.delete("open"),
        state.update("open", lambda value: value),
        state.restore(0),
        manager.forget("custom:test"),
    ):
        with pytest.raises(PermissionDenied):
            await refused
    assert (await owner.snapshot()).values == {"open": 1, "secret": 1}


async def test_a_scope_has_so_many_keys_and_no_more() -> None:
    state = memory_state(limits=StateLimits(keys=3))
    other = state.scope("custom", "other")
    for number in range(3):
        await state.set(f"k{number}", number)
        await other.set(f"k{number}", number)
    for write in (
        state.set("more", 1),
        state.update("more", lambda _: 1),
        state.set("m", 1, expected=0),
    ):
        with pytest.raises(StateFull) as refused:
            await write
        assert refused.value.code == "state.full"
    assert await state.get("more") is None
    await state.set("k0", "changed")
    await state.delete("k1")
    await state.set("more", 1)
    with pytest.raises(StateFull):
        await state.set("k1", "revived")


async def test_keys_whose_time_is_up_make_room() -> None:
    clock = FakeClock()
    state = memory_state(limits=StateLimits(keys=1), clock=clock)
    await state.set("short", 1, ttl_s=5)
    with pytest.raises(StateFull):
        await state.set("other", 1)
    clock.advance(6)
    await state.set("other", 1)


async def test_keys_of_other_writers_count_when_the_scope_seems_full() -> None:
    mine = memory_state(limits=StateLimits(keys=4))
    theirs = ScopedState(
        StateManager(mine.environment).environment.__class__(
            store=mine.environment.store,
            clock=mine.environment.clock,
            hooks=mine.environment.hooks,
            limits=mine.environment.limits,
        ),
        mine.bound,
    )
    await mine.set("a", 1)
    for key in ("b", "c", "d"):
        await theirs.set(key, 1)
    with pytest.raises(StateFull):
        await theirs.set("e", 1)
    # Not told of theirs, so at most one round of counting late.
    await theirs.delete("b")
    await mine.set("b", 2)


async def test_values_that_were_replaced_go_by_age_and_by_number() -> None:
    clock = FakeClock()
    state = memory_state(clock=clock)
    manager = StateManager(state.environment)
    user = manager.scope("user")
    for number in range(5):
        await user.set("x", number)
        await user.set("once", "kept") if number == 0 else None
        clock.advance(10)
    assert await manager.trim() == 0
    assert await manager.trim(ttl_s=35) == 2
    assert [one.value for one in await user.history("x")] == [4, 3, 2, None, None]
    assert await manager.trim(keep_versions=1) == 2
    assert [one.is_redacted for one in await user.history("x")] == [False, True, True, True, True]
    assert (await user.get("x"), await user.get("once")) == (4, "kept")
    assert await manager.trim(keep_versions=1, ttl_s=1) == 0
    await journal_of(state).rebuild()
    entry = await user.entry("x")
    assert entry is not None and (entry.value, entry.version) == (4, 5)
    assert (await user.set("x", 5)).version == 6


async def test_a_blind_write_after_the_scope_was_forgotten_begins_anew() -> None:
    state = memory_state()
    manager = StateManager(state.environment)
    await manager.set("user/a", 1)
    await manager.set("user/x", 1)
    await manager.set("user/x", 2)
    # As another process would do it, of which this one is not told.
    await state.environment.store.forget(manager.scope("user").bound, owner="other", reason="gone")
    written = await manager.set("user/x", 3)
    assert written.version == 1
    assert [one.value for one in await manager.history("user/x")] == [3]
    await manager.set("user/x", 4)
    assert [one.value for one in await manager.history("user/x")] == [4, 3]
