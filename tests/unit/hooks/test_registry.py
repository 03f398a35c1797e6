"""Hooks are asked in order, checked, isolated and cut off."""

from __future__ import annotations

import asyncio
import sys
import threading
from importlib import metadata
from typing import Any

import pytest

from holdfast.errors import HookFailed, HookRefused, NotFound, StorageFull, UsageError
from holdfast.hooks import (
    Cancel,
    Continue,
    HookBroke,
    HookDecided,
    HookLimits,
    HookPayload,
    Hooks,
    Modify,
    Replace,
    Retry,
    ScriptHook,
    ScriptOutcome,
    list_points,
)
from holdfast.hooks.points import (
    AgentAfterInit,
    SystemStartup,
    ToolAfterExecution,
    ToolBeforeExecution,
)
from holdfast.testing import FakeClock


class Record:
    """Keeps what hooks decided and how they failed."""

    def __init__(self) -> None:
        self.facts = []
        self.error = None

    async def __call__(self, where, fact) -> None:
        if self.error is not None:
            raise self.error
        self.facts.append(fact)

    @property
    def decided(self) -> list[HookDecided]:
        return [fact for fact in self.facts if isinstance(fact, HookDecided)]

    @property
    def broke(self) -> list[HookBroke]:
        return [fact for fact in self.facts if isinstance(fact, HookBroke)]


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def hooks(record: Record, clock: FakeClock) -> Hooks:
    return Hooks(recorder=record, clock=clock)


def call(**arguments) -> ToolBeforeExecution:
    return ToolBeforeExecution(tool="t", call_id="c1", arguments=arguments, session_id="s")


async def test_point_without_hooks_gives_the_payload_back(hooks: Hooks, record: Record) -> None:
    payload = call(x=1)
    fired = await hooks.fire(payload)
    assert fired.payload is payload
    assert isinstance(fired.verdict, Continue)
    assert not hooks
    assert not hooks.has(ToolBeforeExecution)


async def test_hooks_say_whether_there_are_any(hooks: Hooks) -> None:
    assert hooks.is_empty
    first = hooks.on(ToolBeforeExecution, lambda payload: Continue())
    second = hooks.on(ToolBeforeExecution, lambda payload: Continue())
    assert not hooks.is_empty
    hooks.off(first)
    assert not hooks.is_empty
    hooks.off(second)
    assert hooks.is_empty


async def test_highest_priority_is_asked_first_then_the_order_of_arrival(hooks: Hooks) -> None:
    order = []

    def noting(name):
        async def note(payload):
            order.append(name)

        return note

    for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", -1), ("e", 5)):
        hooks.on("tool.before_execution", noting(name), priority=priority)
    hooks.observe("tool.before_execution", noting("observer"))
    await hooks.fire(call())
    assert order == ["b", "e", "a", "c", "d", "observer"]


async def test_changed_payload_goes_to_the_next_hook_and_to_observers(
    hooks: Hooks, record: Record
) -> None:
    seen = []

    async def grow(payload):
        return payload.modify(arguments={"x": payload.arguments["x"] + 1})

    async def watch(payload):
        seen.append(payload.arguments)

    hooks.on("tool.before_execution", grow, name="first")
    hooks.on("tool.before_execution", grow, name="second")
    hooks.observe("tool.before_execution", watch)
    fired = await hooks.fire(call(x=1))
    assert (fired.payload.arguments, seen) == ({"x": 3}, [{"x": 3}])
    assert [(each.hook, each.changed) for each in record.decided] == [
        ("first", ("arguments",)),
        ("second", ("arguments",)),
    ]


@pytest.mark.parametrize("verdict", [Cancel("no"), Replace("instead")])
async def test_final_verdict_ends_the_round(hooks: Hooks, record: Record, verdict) -> None:
    later = []
    hooks.on("tool.before_execution", lambda payload: verdict, name="first", priority=1)
    hooks.on("tool.before_execution", later.append)
    fired = await hooks.fire(call())
    assert (fired.verdict, fired.hook, later) == (verdict, "first", [])
    assert [each.verdict for each in record.decided] == [verdict.__struct_config__.tag]


async def test_cancelled_point_raises_when_asked_to(hooks: Hooks) -> None:
    hooks.on("tool.before_execution", lambda payload: Cancel("no"), name="guard")
    with pytest.raises(HookRefused) as caught:
        (await hooks.fire(call())).raise_if_cancelled()
    assert caught.value.context == {
        "hook": "guard",
        "point": "tool.before_execution",
        "reason": "no",
    }


@pytest.mark.parametrize(
    "answer",
    [
        "yes",
        Retry(),
        Modify(None),
        Modify(SystemStartup()),
        Modify(call(x=1).modify(tool="other").payload),
        Modify(call(x=1).modify(session_id="other").payload),
        Modify(call(x=1).modify(arguments="no object").payload),
        Modify(call(x=1).modify(arguments={"x": object()}).payload),
    ],
    ids=("text", "retry", "nothing", "other-point", "tool", "session", "no-object", "no-json"),
)
async def test_answer_that_the_point_does_not_take_is_a_failure_and_changes_nothing(
    hooks: Hooks, record: Record, answer
) -> None:
    hooks.on("tool.before_execution", lambda payload: answer, name="odd")
    payload = call(x=1)
    fired = await hooks.fire(payload)
    assert fired.payload is payload
    assert isinstance(fired.verdict, Continue)
    assert (hooks.failures, [each.hook for each in record.broke]) == (1, ["odd"])
    assert record.decided == []


async def test_unchanged_payload_is_no_decision(hooks: Hooks, record: Record) -> None:
    hooks.on("tool.before_execution", lambda payload: payload.modify(arguments={"x": 1}))
    await hooks.fire(call(x=1))
    assert record.facts == []


async def test_decision_is_kept_before_it_takes_effect(hooks: Hooks, record: Record) -> None:
    hooks.on("tool.before_execution", lambda payload: Cancel("no"))
    record.error = StorageFull(path="journal.db")
    with pytest.raises(StorageFull):
        await hooks.fire(call())


async def test_failure_that_cannot_be_kept_does_not_break_the_run(
    hooks: Hooks, record: Record
) -> None:
    async def stumble(payload):
        raise ValueError("ouch")

    hooks.observe("tool.before_execution", stumble)
    record.error = StorageFull(path="journal.db")
    await hooks.fire(call())
    assert hooks.failures == 2


@pytest.mark.parametrize(
    "error", [ValueError("ouch"), SystemExit(2), asyncio.CancelledError(), StopIteration()]
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_whatever_a_hook_raises_stays_with_it(
    hooks: Hooks, record: Record, error, is_async: bool
) -> None:
    def stumble(payload):
        raise error

    async def stumble_later(payload):
        raise error

    hooks.on("tool.before_execution", stumble_later if is_async else stumble)
    assert (await hooks.fire(call(x=1))).payload == call(x=1)
    assert len(record.broke) == 1


async def test_cancelling_the_run_passes_through_a_hook(hooks: Hooks, record: Record) -> None:
    began = asyncio.Event()

    async def wait(payload):
        began.set()
        await asyncio.Event().wait()

    hooks.on("tool.before_execution", wait)
    firing = asyncio.create_task(hooks.fire(call()))
    await asyncio.wait_for(began.wait(), 30)
    firing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await firing
    assert record.facts == []


@pytest.mark.parametrize("is_async", [True, False])
async def test_hook_that_takes_too_long_is_left(
    hooks: Hooks, record: Record, is_async: bool
) -> None:
    release = threading.Event()

    async def wait(payload):
        await asyncio.Event().wait()

    function = wait if is_async else lambda payload: release.wait(60)
    hooks.on("tool.before_execution", function, limits=HookLimits(timeout_s=0.01))
    try:
        await asyncio.wait_for(hooks.fire(call()), 30)
    finally:
        release.set()
    assert "0.01 s" in record.broke[0].error


async def test_breaker_leaves_a_hook_out_reports_once_and_tries_again(
    hooks: Hooks, record: Record, clock: FakeClock
) -> None:
    calls, is_broken = [], True

    async def flaky(payload):
        calls.append(payload)
        if is_broken:
            raise ValueError("down")

    hooks.on("tool.before_execution", flaky, limits=HookLimits(failures_in_row=2, open_s=60))
    for _ in range(5):
        await hooks.fire(call())
    assert len(calls) == 2
    assert [each.is_cut_off for each in record.broke] == [False, True]
    clock.advance(61)
    await hooks.fire(call())
    await hooks.fire(call())
    assert len(calls) == 3, "one try, then left out again"
    clock.advance(61)
    is_broken = False
    for _ in range(3):
        await hooks.fire(call())
    assert len(calls) == 6


async def test_success_between_failures_starts_the_count_anew(hooks: Hooks) -> None:
    calls = []

    async def every_other(payload):
        calls.append(payload)
        if len(calls) % 2:
            raise ValueError("now and then")

    hooks.on("tool.before_execution", every_other, limits=HookLimits(failures_in_row=2))
    for _ in range(8):
        await hooks.fire(call())
    assert len(calls) == 8


async def test_guard_refuses_when_it_fails_and_while_it_is_left_out(
    hooks: Hooks, record: Record
) -> None:
    async def guard(payload):
        raise ValueError("down")

    limits = HookLimits(failures_in_row=1)
    hooks.on("tool.before_execution", guard, is_guard=True, limits=limits)
    for _ in range(3):
        assert isinstance((await hooks.fire(call())).verdict, Cancel)
    assert [each.verdict for each in record.decided] == ["cancel"] * 3
    assert len(record.broke) == 1


def test_guard_needs_a_point_where_something_can_be_refused(hooks: Hooks) -> None:
    with pytest.raises(UsageError):
        hooks.on(ToolAfterExecution, lambda payload: None, is_guard=True)


def test_unknown_point_is_refused(hooks: Hooks) -> None:
    for name in ("tool.before_lunch", "nothing.*", ""):
        with pytest.raises(NotFound):
            hooks.on(name, lambda payload: None)


async def test_pattern_registers_at_every_point_it_means(hooks: Hooks) -> None:
    hook = hooks.observe("tool.*", lambda payload: None)
    expected = {name for name in list_points() if name.startswith("tool.")}
    assert {cls.point for cls in hook.points} == expected
    hooks.off(hook)
    hooks.off(hook)
    assert not hooks


async def test_hook_may_add_and_remove_hooks_while_it_runs(hooks: Hooks) -> None:
    calls = []

    async def once(payload):
        calls.append("once")
        hooks.off(mine)
        hooks.on("tool.before_execution", lambda payload: calls.append("later"))

    mine = hooks.on("tool.before_execution", once)
    await hooks.fire(call())
    await hooks.fire(call())
    assert calls == ["once", "later"]


async def test_decorators_leave_the_function_as_it_is(hooks: Hooks) -> None:
    @hooks.on("agent.after_init", priority=3)
    def told(payload: AgentAfterInit) -> None:
        heard.append(payload.agent)

    heard: list[str] = []
    told(AgentAfterInit(agent="direct"))
    await hooks.notify(AgentAfterInit(agent="fired"))
    assert heard == ["direct", "fired"]


async def test_verdict_at_a_point_that_only_observes_is_ignored_by_notify(hooks: Hooks) -> None:
    hooks.on("agent.after_init", lambda payload: Cancel("too late"))
    await hooks.notify(AgentAfterInit(agent="a"))
    assert hooks.failures == 0


# --- entry points --------------------------------------------------------------------


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("hooks_plugin")
    module.register = lambda hooks: hooks.on("system.startup", lambda payload: None)
    module.broken = None
    monkeypatch.setitem(sys.modules, "hooks_plugin", module)
    found = [
        metadata.EntryPoint("good", "hooks_plugin:register", "holdfast.hooks"),
        metadata.EntryPoint("bad", "hooks_plugin:broken", "holdfast.hooks"),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found)


@pytest.mark.usefixtures("plugin")
def test_entry_points_are_loaded_only_when_asked_for(hooks: Hooks) -> None:
    assert not hooks
    assert hooks.load_entry_points(["good"]) == ("good",)
    assert hooks.has(SystemStartup)
    with pytest.raises(HookFailed):
        hooks.load_entry_points()


# --- scripts -------------------------------------------------------------------------


class Runner:
    def __init__(self, stdout: bytes = b"", exit_code: int = 0, stderr: bytes = b"") -> None:
        self.outcome = ScriptOutcome(exit_code=exit_code, stdout=stdout, stderr=stderr)
        self.calls = []

    async def run(self, argv, stdin, *, timeout_s) -> ScriptOutcome:
        self.calls.append((argv, stdin, timeout_s))
        return self.outcome


@pytest.mark.parametrize(
    ("stdout", "verdict"),
    [
        (b"", Continue()),
        (b'{"verdict": "continue"}', Continue()),
        (b'{"verdict": "cancel", "reason": "no"}', Cancel("no")),
        (b'{"verdict": "replace", "value": [1]}', Replace([1])),
    ],
)
async def test_script_answers_with_a_verdict(hooks: Hooks, stdout: bytes, verdict) -> None:
    hooks.scripts = runner = Runner(stdout)
    hooks.on_script("tool.before_execution", ["check", "-q"], limits=HookLimits(timeout_s=3))
    assert (await hooks.fire(call(x=1))).verdict == verdict
    [(argv, stdin, timeout_s)] = runner.calls
    assert (argv, timeout_s) == (("check", "-q"), 3)
    assert b'"point":"tool.before_execution"' in stdin
    assert b'"arguments":{"x":1}' in stdin


async def test_script_changes_the_fields_it_names(hooks: Hooks) -> None:
    hooks.scripts = Runner(b'{"verdict": "modify", "changes": {"arguments": {"x": 2}}}')
    hooks.on_script("tool.before_execution", ["check"])
    assert (await hooks.fire(call(x=1))).payload.arguments == {"x": 2}


@pytest.mark.parametrize(
    "runner",
    [
        Runner(b"no json"),
        Runner(b'{"verdict": "perhaps"}'),
        Runner(b'{"verdict": "cancel", "unknown": 1}'),
        Runner(b'{"verdict": "modify", "changes": {"nonsense": 1}}'),
        Runner(b'{"verdict": "modify", "changes": {"tool": "other"}}'),
        Runner(b'{"verdict": "modify", "changes": {"arguments": 1}}'),
        Runner(b'{"verdict": "retry"}'),
        Runner(b'{"verdict": "cancel"}', exit_code=1, stderr=b"crashed"),
        Runner(b" " * (1024 * 1024 + 1)),
    ],
)
async def test_script_that_answers_nonsense_fails_and_changes_nothing(
    hooks: Hooks, record: Record, runner: Runner
) -> None:
    hooks.scripts = runner
    hooks.on_script("tool.before_execution", ["check"])
    fired = await hooks.fire(call(x=1))
    assert (fired.payload, len(record.broke)) == (call(x=1), 1)


def test_script_is_a_list_of_words_and_needs_a_runner(hooks: Hooks) -> None:
    with pytest.raises(UsageError):
        hooks.on_script("tool.before_execution", ["check"])
    for argv in ("rm -rf /", [], [1]):
        with pytest.raises(UsageError):
            ScriptHook(argv, Runner(), timeout_s=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong", [{"timeout_s": 0}, {"timeout_s": float("inf")}, {"failures_in_row": 0}, {"open_s": -1}]
)
def test_limits_that_mean_nothing_are_refused(wrong) -> None:
    with pytest.raises(UsageError):
        HookLimits(**wrong)


async def test_decorated_function_can_be_taken_out_again(hooks: Hooks) -> None:
    heard: list[str] = []

    class Ear:
        def hear(self, payload: HookPayload) -> None:
            heard.append(payload.point)

    ear = Ear()
    hooks.on(ToolBeforeExecution)(ear.hear)
    hooks.observe("tool.*")(ear.hear)
    hooks.off(ear.hear)
    hooks.off(ear.hear)
    assert not hooks


@pytest.mark.parametrize(("point", "function"), [(5, print), (int, print), ("tool.*", 5)])
def test_hook_that_cannot_be_meant_is_refused(hooks: Hooks, point: Any, function: Any) -> None:
    with pytest.raises(UsageError):
        hooks.on(point, function)
    with pytest.raises(UsageError):
        hooks.on(point)(function)
    assert not hooks
