"""Hooks: who wants to be asked or told at which point, and how they are called.

A hook gets a copy of the payload: nothing that it does to the copy is seen by any other hook. Only
what an interceptor returns counts, after it was checked.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, overload

import msgspec

from holdfast.clock import SYSTEM, Clock
from holdfast.errors import HoldfastError, HookFailed, HookRefused, UsageError
from holdfast.hooks.breaker import HookBreaker, HookLimits
from holdfast.hooks.calling import call_limited
from holdfast.hooks.events import HookBroke, HookDecided
from holdfast.hooks.points import HookPayload, match_points
from holdfast.hooks.scripts import NoScripts, ScriptHook, ScriptRunner
from holdfast.hooks.verdicts import (
    CONTINUE,
    Cancel,
    Continue,
    Modify,
    Replace,
    Retry,
    Verdict,
    name_of,
)
from holdfast.journal import Payload

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

H = TypeVar("H", bound=HookPayload)
F = TypeVar("F", bound=Callable[..., Any])
ENTRY_POINTS = "holdfast.hooks"
_encode = msgspec.json.Encoder().encode
_LIMITS = HookLimits()

Point: TypeAlias = str | type[HookPayload]
"""The name of a point, `*`, `prefix*`, or a payload class."""


class HookRecorder(Protocol):
    """Where decisions and failures of hooks are kept."""

    async def __call__(self, where: HookPayload, fact: Payload) -> None:
        """Keep a fact with the session and run that the payload names."""
        ...


async def record_nothing(where: HookPayload, fact: Payload) -> None:
    """Keep nothing."""


class Hook(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One registered hook; hand it to `Hooks.off` to take it out again."""

    name: str
    function: Callable[..., Any]
    points: tuple[type[HookPayload], ...]
    breaker: HookBreaker
    limits: HookLimits
    priority: int = 0
    agent: str = ""
    is_observer: bool = False
    is_guard: bool = False

    def applies(self, payload: HookPayload) -> bool:
        """Say whether the hook wants to hear of this."""
        return not self.agent or self.agent.casefold() == payload.agent.casefold()


class Fired(msgspec.Struct, Generic[H], frozen=True, kw_only=True):
    """What came out of a point: the payload to go on with, and the verdict."""

    payload: H
    verdict: Continue | Cancel | Replace | Retry = CONTINUE
    hook: str = ""

    def raise_if_cancelled(self) -> None:
        """Raise HookRefused if a hook said to stop."""
        if isinstance(self.verdict, Cancel):
            point, reason = self.payload.point, self.verdict.reason
            raise HookRefused(hook=self.hook, point=point, reason=reason)


class _Slot(msgspec.Struct, eq=False):
    interceptors: list[Hook] = []
    observers: list[Hook] = []


def _is(known: Hook, hook: object) -> bool:
    # By equality: each look at a bound method is another object.
    return known is hook or bool(known.function == hook)


def _list_points(point: object) -> tuple[type[HookPayload], ...]:
    if isinstance(point, str):
        return match_points(point)
    if isinstance(point, type) and issubclass(point, HookPayload) and point is not HookPayload:
        return (point,)
    raise UsageError(detail=f"A point is a name or a class of payloads, not {point!r:.80}.")


class Hooks:
    """The hooks of one client. A point without hooks costs one look into a dictionary.

    Interceptors are asked in order of priority, highest first, then in order of arrival.
    `Modify` hands the changed payload to the next; `Cancel`, `Replace` and `Retry` end the
    round. Observers are told last, with the payload as it then is.

    A hook that raises, takes too long or answers nonsense is treated as if it had said
    `Continue` (a guard: `Cancel`), its failure is kept, and after several in a row it is left
    out for a while. No failure of a hook breaks a run, except that of a guard.
    """

    def __init__(
        self,
        *,
        recorder: HookRecorder = record_nothing,
        clock: Clock = SYSTEM,
        scripts: ScriptRunner | None = None,
    ) -> None:
        """Start without hooks; scripts are refused unless a runner is given."""
        self.recorder = recorder
        self.scripts: ScriptRunner = scripts or NoScripts()
        self.failures = 0
        """How many calls of hooks failed."""
        self.is_empty = True
        """Whether there is no hook at all: what most runs ask, and nothing more."""
        self._clock = clock
        self._slots: dict[str, _Slot] = {}

    # --- registration -----------------------------------------------------------------

    @overload
    def on(
        self,
        point: Point,
        function: F,
        *,
        priority: int = 0,
        name: str = "",
        agent: str = "",
        is_guard: bool = False,
        limits: HookLimits = _LIMITS,
    ) -> Hook: ...

    @overload
    def on(
        self,
        point: Point,
        *,
        priority: int = 0,
        name: str = "",
        agent: str = "",
        is_guard: bool = False,
        limits: HookLimits = _LIMITS,
    ) -> Callable[[F], F]: ...

    def on(
        self,
        point: Point,
        function: F | None = None,
        *,
        priority: int = 0,
        name: str = "",
        agent: str = "",
        is_guard: bool = False,
        limits: HookLimits = _LIMITS,
    ) -> Hook | Callable[[F], F]:
        """Add an interceptor, or decorate one; with an `agent`, for its runs only.

        A guard refuses when it fails, also while it is left out: use it for what must hold.

        Raises:
            NotFound: there is no such point.
            UsageError: a guard at a point that takes no `Cancel`, or what is given is no point
                or no function.
        """
        if function is None:
            return functools.partial(
                self._decorate,
                point,
                priority=priority,
                name=name,
                agent=agent,
                is_guard=is_guard,
                limits=limits,
            )
        return self._add(
            point,
            function,
            priority=priority,
            name=name,
            agent=agent,
            is_guard=is_guard,
            limits=limits,
        )

    @overload
    def observe(
        self,
        point: Point,
        function: F,
        *,
        name: str = "",
        agent: str = "",
        limits: HookLimits = ...,
    ) -> Hook: ...

    @overload
    def observe(
        self, point: Point, *, name: str = "", agent: str = "", limits: HookLimits = ...
    ) -> Callable[[F], F]: ...

    def observe(
        self,
        point: Point,
        function: F | None = None,
        *,
        name: str = "",
        agent: str = "",
        limits: HookLimits = _LIMITS,
    ) -> Hook | Callable[[F], F]:
        """Add an observer, or decorate one; what it returns is ignored."""
        if function is None:
            return functools.partial(
                self._decorate, point, name=name, agent=agent, limits=limits, is_observer=True
            )
        return self._add(point, function, name=name, agent=agent, limits=limits, is_observer=True)

    def on_script(
        self,
        point: Point,
        argv: Sequence[str],
        *,
        priority: int = 0,
        name: str = "",
        agent: str = "",
        is_guard: bool = False,
        limits: HookLimits = _LIMITS,
    ) -> Hook:
        """Add a command that gets the payload as JSON on stdin and answers with JSON.

        Raises:
            UsageError: scripts cannot be run here, or the command is empty.
        """
        if isinstance(self.scripts, NoScripts):
            raise UsageError(detail="Script hooks need a runner; none was given to these hooks.")
        script = ScriptHook(argv, self.scripts, timeout_s=limits.timeout_s)
        return self.on(
            point,
            script,
            priority=priority,
            name=name or script.name,
            agent=agent,
            is_guard=is_guard,
            limits=limits,
        )

    def load_entry_points(
        self, names: Collection[str] | None = None, *, packages: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """Let installed packages add their hooks; returns the names of those that did.

        With `names` or `packages`, only those.

        Each entry point of the group `holdfast.hooks` is a function that takes this object.
        Nothing is loaded unless this is called.

        Raises:
            HookFailed: an entry point cannot be loaded, or raised.
        """
        # Loaded here, because reading what is installed needs the parser of e-mails.
        from importlib.metadata import entry_points  # noqa: PLC0415

        loaded = []
        for point in select_points(entry_points(group=ENTRY_POINTS), packages):
            if names is None or point.name in names:
                try:
                    point.load()(self)
                except Exception as error:
                    detail = f"{type(error).__name__}: {error}"
                    raise HookFailed(hook=point.name, point=ENTRY_POINTS, detail=detail) from error
                loaded.append(point.name)
        return tuple(loaded)

    def off(self, hook: Hook | Callable[..., Any]) -> None:
        """Take a hook, or a function wherever it was added, out; safe to repeat.

        Works from inside the hook too.
        """
        for name, slot in list(self._slots.items()):
            slot.interceptors = [one for one in slot.interceptors if not _is(one, hook)]
            slot.observers = [one for one in slot.observers if not _is(one, hook)]
            if not slot.interceptors and not slot.observers:
                del self._slots[name]
        self.is_empty = not self._slots

    def has(self, *points: type[HookPayload]) -> bool:
        """Say whether any hook waits at one of these points."""
        slots = self._slots
        if not slots:
            return False
        return any(cls.point in slots for cls in points)

    def __bool__(self) -> bool:
        """Whether there is any hook at all."""
        return bool(self._slots)

    # --- firing -----------------------------------------------------------------------

    async def fire(self, payload: H) -> Fired[H]:
        """Ask the interceptors, tell the observers, and return what came out."""
        slot = self._slots.get(payload.point)
        if slot is None:
            return Fired(payload=payload)
        fired = Fired(payload=payload)
        for hook in slot.interceptors:
            if hook.applies(fired.payload):
                verdict = await self._ask(hook, fired.payload)
                if isinstance(verdict, Modify):
                    fired = Fired(payload=verdict.payload)
                elif not isinstance(verdict, Continue):
                    fired = Fired(payload=fired.payload, verdict=verdict, hook=hook.name)
                    break
        await self._tell(slot.observers, fired.payload)
        return fired

    async def notify(self, payload: HookPayload) -> None:
        """Tell everybody at a point where nothing can be changed."""
        slot = self._slots.get(payload.point)
        if slot is not None:
            await self._tell((*slot.interceptors, *slot.observers), payload)

    # --- inside -----------------------------------------------------------------------

    def _decorate(self, point: Point, function: F, /, **options: Any) -> F:  # noqa: ANN401
        self._add(point, function, **options)
        return function

    def _add(
        self,
        point: Point,
        function: Callable[..., Any],
        *,
        name: str = "",
        limits: HookLimits = _LIMITS,
        is_guard: bool = False,
        **options: Any,  # noqa: ANN401 - fields of Hook
    ) -> Hook:
        if not callable(function):
            raise UsageError(detail=f"A hook is a function, not {function!r:.80}.")
        points = _list_points(point)
        if is_guard and any("cancel" not in cls.accepts for cls in points):
            raise UsageError(detail=f"{points[0].point} takes no Cancel, so a guard cannot guard.")
        hook = Hook(
            name=name or getattr(function, "__qualname__", type(function).__name__),
            function=function,
            points=points,
            breaker=HookBreaker(limits, self._clock),
            limits=limits,
            is_guard=is_guard,
            **options,
        )
        for cls in points:
            slot = self._slots.setdefault(cls.point, _Slot())
            # New lists, so that a hook may add hooks while a round is under way.
            if hook.is_observer:
                slot.observers = [*slot.observers, hook]
            else:
                ordered = [*slot.interceptors, hook]
                slot.interceptors = sorted(ordered, key=lambda known: -known.priority)
        self.is_empty = not self._slots
        return hook

    async def _tell(self, hooks: Sequence[Hook], payload: HookPayload) -> None:
        for hook in hooks:
            if hook.applies(payload) and (ticket := hook.breaker.enter()) is not None:
                try:
                    await self._call(hook, payload, ticket)
                    hook.breaker.leave(ticket, "success")
                except HookFailed as error:
                    await self._note_failure(hook, payload, error, ticket)

    async def _ask(self, hook: Hook, payload: H) -> Verdict:
        """Return one interceptor's checked verdict, which is then in the journal."""
        ticket = hook.breaker.enter()
        if ticket is None:
            return await self._decide_when_failing(hook, payload, "it failed too often in a row")
        try:
            verdict, changed = self._check(hook, payload, await self._call(hook, payload, ticket))
        except HookFailed as error:
            await self._note_failure(hook, payload, error, ticket)
            return await self._decide_when_failing(hook, payload, str(error.context["detail"]))
        hook.breaker.leave(ticket, "success")
        if not isinstance(verdict, Continue):
            await self._note_decision(hook, payload, verdict, changed)
        return verdict

    async def _call(self, hook: Hook, payload: HookPayload, ticket: int) -> object:
        try:
            copy = msgspec.json.decode(_encode(payload), type=type(payload))
            return await call_limited(hook.function, copy, timeout_s=hook.limits.timeout_s)
        except asyncio.CancelledError:
            hook.breaker.leave(ticket, "unknown")  # that says nothing about the hook
            raise
        except TimeoutError as error:
            detail = f"it took longer than {hook.limits.timeout_s} s"
            raise HookFailed(hook=hook.name, point=payload.point, detail=detail) from error
        except Exception as error:
            detail = f"{type(error).__name__}: {error}"
            raise HookFailed(hook=hook.name, point=payload.point, detail=detail) from error

    def _check(self, hook: Hook, payload: H, answer: object) -> tuple[Verdict, tuple[str, ...]]:
        """Return an answer as a verdict that its point takes, and the names of changed fields."""
        fail = functools.partial(HookFailed, hook=hook.name, point=payload.point)
        if answer is None:
            return CONTINUE, ()
        if not isinstance(answer, Continue | Modify | Cancel | Replace | Retry):
            raise fail(detail=f"it returned {type(answer).__name__}, which is no verdict")
        name = name_of(answer)
        if name != "continue" and name not in payload.accepts:
            raise fail(detail=f"this point takes no {name}")
        if not isinstance(answer, Modify):
            try:
                # A reason is kept, and a value takes the place of a result.
                _encode(answer)
            except (TypeError, ValueError, RecursionError) as error:
                raise fail(detail=f"its {name} has no JSON form: {error}") from error
            return answer, ()
        if type(answer.payload) is not type(payload):
            raise fail(detail=f"it put a {type(answer.payload).__name__} in place of the payload")
        try:
            new = msgspec.json.decode(_encode(answer.payload), type=type(payload))
        except (TypeError, ValueError, RecursionError) as error:
            raise fail(detail=f"its payload is not valid: {error}") from error
        changed = tuple(
            field
            for field in payload.__struct_fields__
            if getattr(new, field) != getattr(payload, field)
        )
        fixed = [name for name in changed if name not in payload.changeable]
        if fixed:
            raise fail(detail=f"it changed {', '.join(fixed)}, which cannot be changed here")
        return (Modify(new), changed) if changed else (CONTINUE, ())

    async def _decide_when_failing(self, hook: Hook, payload: HookPayload, detail: str) -> Verdict:
        if not hook.is_guard:
            return CONTINUE
        verdict = Cancel(f"the guard {hook.name} cannot say yes: {detail}")
        await self._note_decision(hook, payload, verdict, ())
        return verdict

    async def _note_decision(
        self, hook: Hook, payload: HookPayload, verdict: Verdict, changed: tuple[str, ...]
    ) -> None:
        decided = HookDecided(
            hook=hook.name,
            point=payload.point,
            verdict=name_of(verdict),
            reason=str(getattr(verdict, "reason", "")),
            changed=changed,
        )
        await self.recorder(payload, decided)

    async def _note_failure(
        self, hook: Hook, payload: HookPayload, error: HookFailed, ticket: int
    ) -> None:
        self.failures += 1
        hook.breaker.leave(ticket, "failure")
        is_cut_off = hook.breaker.state == "open"
        broke = HookBroke(
            hook=hook.name,
            point=payload.point,
            error=str(error.context["detail"])[:1000],
            is_cut_off=is_cut_off,
            open_s=hook.limits.open_s if is_cut_off else 0.0,
        )
        try:
            await self.recorder(payload, broke)
        except HoldfastError:
            # The failure is counted; that it cannot be kept must not break the run as well.
            self.failures += 1


def read_text_of(value: object) -> str:
    """Return a value that a hook put in place of a result as the text that a model reads."""
    return value if isinstance(value, str) else _encode(value).decode()


def select_points(
    points: Iterable[EntryPoint], packages: Collection[str] | None
) -> list[EntryPoint]:
    """Return the entry points of these packages, whose names are as indexes compare them."""
    if packages is None:
        return list(points)
    return [
        point
        for point in points
        if point.dist is not None and re.sub(r"[-_.]+", "-", point.dist.name).lower() in packages
    ]
