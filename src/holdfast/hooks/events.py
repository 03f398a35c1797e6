"""The facts of hooks: what they decided, and that they failed."""

from __future__ import annotations

from holdfast.hooks.verdicts import VerdictName
from holdfast.journal import Payload, payload


@payload("hook.decided", is_open=True, is_inherited=False)
class HookDecided(Payload, frozen=True, kw_only=True):
    """An interceptor changed the course of things; `changed` names the fields it changed.

    Written before the verdict takes effect. `continue` changes nothing and is not kept.
    """

    hook: str
    point: str
    verdict: VerdictName
    reason: str = ""
    changed: tuple[str, ...] = ()


@payload("hook.failed", is_open=True, is_inherited=False)
class HookBroke(Payload, frozen=True, kw_only=True):
    """A hook raised, took too long, or answered nonsense.

    `is_cut_off`: it failed too often in a row and is left out for `open_s` seconds.
    """

    hook: str
    point: str
    error: str
    is_cut_off: bool = False
    open_s: float = 0.0
