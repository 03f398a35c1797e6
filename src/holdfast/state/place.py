"""A scope in a caller's name: what every way of reading and writing it has to look at."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from holdfast.canonical import JsonValue
from holdfast.errors import UsageError
from holdfast.hooks import StateAfterRead, StateBeforeRead
from holdfast.state.address import StateScope, check_key, is_reserved
from holdfast.state.environment import StateAction, StateEnvironment
from holdfast.state.store import StateRow

_LABELS = ("untrusted", "private")
_encode = msgspec.json.Encoder().encode


class StatePlace(msgspec.Struct, frozen=True, eq=False):
    """A scope, in whose name it is used, and with which rights."""

    environment: StateEnvironment
    bound: StateScope
    tool: str = ""
    """The tool in whose name this is; the scope `tool` is its own."""
    allows_reserved: bool = False

    def check(self, action: StateAction, key: str) -> None:
        """Return if a key may be used so; an empty one is the scope as a whole.

        Raises:
            PermissionDenied: the caller's rules do not give it.
            UsageError: only Holdfast itself uses the key.
        """
        env = self.environment
        if self._is_reserved(key):
            raise UsageError(detail=f"The key {key!r} belongs to Holdfast itself; choose another.")
        target = env.name_of(self.bound, key, self.tool)
        env.access.check(action, target, is_own=env.is_own(self.bound, self.tool))

    def may_read(self, key: str) -> bool:
        """Say whether a key may be read."""
        if self._is_reserved(key):
            return False
        env = self.environment
        target = env.name_of(self.bound, key, self.tool)
        return env.access.may("read", target, is_own=env.is_own(self.bound, self.tool))

    def _is_reserved(self, key: str) -> bool:
        return self.bound.kind == "session" and not self.allows_reserved and is_reserved(key)

    def address(self, key: str) -> str:
        """Return the whole address of a key."""
        return f"{self.bound}/{key}"

    def where(self) -> dict[str, str]:
        """Return where this happens, as hooks are told."""
        owner = self.environment.owner
        return {"session_id": owner.session, "run_id": owner.run, "agent": owner.agent}

    def labels(self, given: Sequence[str]) -> tuple[str, ...]:
        """Return the labels of a value: those given, and all that the caller has read."""
        if isinstance(given, str) or not all(label in _LABELS for label in given):
            raise UsageError(detail=f"Labels are a list of {' and '.join(_LABELS)}, not {given!r}.")
        seen = self.environment.taint.seen
        return tuple(sorted({*given, *seen})) if given or seen else ()

    def as_json(self, key: str, value: JsonValue) -> JsonValue:
        """Return a value as plain JSON; raises as `encode` does."""
        return self.encode(key, value)[0]

    def encode(self, key: str, value: JsonValue) -> tuple[JsonValue, bytes]:
        """Return a value as plain JSON, and that as bytes.

        Raises:
            UsageError: it has no JSON form, or is too large.
        """
        try:
            data = _encode(value)
            kept = msgspec.json.decode(data)
            if b"null" in data and _has_no_number(msgspec.to_builtins(value)):
                raise ValueError("it holds a number that is none, such as NaN")
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UsageError(
                detail=f"The value for {self.address(key)} has no JSON form: {error}"
            ) from error
        most = self.environment.limits.value_bytes
        if len(data) > most:
            raise UsageError(
                detail=f"The value for {self.address(key)} has {len(data)} bytes; at most {most} "
                "are kept. Save it as an artifact, and its handle here."
            )
        return kept, data

    async def read_row(self, key: str) -> StateRow | None:
        """Return what the store has of a key, also if it was removed; hooks were asked."""
        self.check("read", check_key(key))
        env = self.environment
        if not env.hooks.is_empty and env.hooks.has(StateBeforeRead):
            before = StateBeforeRead(address=self.address(key), **self.where())
            (await env.hooks.fire(before)).raise_if_cancelled()
        return await env.store.read(self.bound, key)

    async def show(self, key: str, row: StateRow | None) -> StateRow | None:
        """Return a row that has a value, its labels noted and hooks told; else `None`."""
        env = self.environment
        if row is None or row.is_gone(env.clock.now()):
            return None
        if row.labels:
            env.taint.add(row.labels)
        if not env.hooks.is_empty and env.hooks.has(StateAfterRead):
            told = StateAfterRead(
                address=self.address(key),
                value=row.data["value"],
                version=row.version,
                labels=row.labels,
                **self.where(),
            )
            row = replace(row, data={"value": (await env.hooks.fire(told)).payload.value})
        return row


def _has_no_number(value: object) -> bool:
    """Say whether a float in it is infinite or none, which JSON would silently make null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_no_number, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_no_number, value))


__all__ = ["StatePlace"]
