"""The program that calls a tool: what of its own it lets the tool ask.

A tool that is called by a program over a protocol that allows for it (an MCP client) may have its
person fill in a form, its model answer, or its workspace folders named. Most calls come from
agents of ours, where there is nothing of the kind: `can` is empty then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal, Protocol, TypeAlias

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import ToolError
from holdfast.tools.context import ToolContext

PeerAbility: TypeAlias = Literal["form", "model", "folders"]
LogLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]


class PeerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the calling program is asked: made by `ask_form` and its like."""

    ability: PeerAbility
    params: JsonObject


def ask_form(message: str, schema: JsonObject) -> PeerRequest:
    """Have the person behind the program fill in a form, described by a flat JSON schema.

    The answer is `{"action": "accept" | "decline" | "cancel", "content": {...}}`.
    """
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return PeerRequest(ability="form", params=params)


def ask_model(text: str, *, max_tokens: int = 1_000, system: str = "") -> PeerRequest:
    """Have the model of the program answer; the text is at `answer["content"]["text"]`."""
    content = {"type": "text", "text": text}
    params: JsonObject = {"messages": [{"role": "user", "content": content}]}
    params["maxTokens"] = max_tokens
    if system:
        params["systemPrompt"] = system
    return PeerRequest(ability="model", params=params)


def ask_folders() -> PeerRequest:
    """Have the program name the folders that it works in: `{"roots": [{"uri", "name"}, ...]}`."""
    return PeerRequest(ability="folders", params={})


class Peer(Protocol):
    """The calling program, for the time of the call."""

    @property
    def can(self) -> frozenset[PeerAbility]:
        """What it says it can be asked."""
        ...

    async def ask(self, requests: Mapping[str, PeerRequest]) -> dict[str, JsonObject]:
        """Return the answers by the keys of the requests; they are foreign text.

        The program may have to come back with them: the call rests meanwhile, and the tool
        begins anew when they are there, so that it must have had no effect before. Its effect
        is to be declared as `read` or `idempotent`.

        Raises:
            ToolError: it cannot be asked this.
        """
        ...

    async def log(self, level: LogLevel, data: Any) -> None:  # noqa: ANN401 - any JSON
        """Send it a line for its log, if it wants to have such lines."""
        ...


class NoPeer:
    """An agent of ours, a person, or a program that cannot be asked."""

    can: frozenset[PeerAbility] = frozenset()

    async def ask(self, requests: Mapping[str, PeerRequest]) -> dict[str, JsonObject]:
        """Refuse."""
        raise ToolError(tool="", detail="the caller cannot be asked anything")

    async def log(self, level: LogLevel, data: Any) -> None:  # noqa: ANN401 - any JSON
        """Drop the line."""


_NO_PEER: Final = NoPeer()
_peers: dict[str, Peer] = {}
"""Who made each run that a face carries out now."""


def find_peer(context: ToolContext) -> Peer:
    """Return the program that began the run of a call.

    Runs below it, such as a sub-agent's, have none: no program answers for what it did not call.
    """
    return _peers.get(context.run_id, _NO_PEER)


@contextmanager
def attach_peer(run_id: str, peer: Peer) -> Iterator[None]:
    """Let a run be a program's as long as this is open; for faces."""
    _peers[run_id] = peer
    try:
        yield
    finally:
        if _peers.get(run_id) is peer:
            del _peers[run_id]


__all__ = [
    "LogLevel",
    "NoPeer",
    "Peer",
    "PeerAbility",
    "PeerRequest",
    "ask_folders",
    "ask_form",
    "ask_model",
    "find_peer",
    "attach_peer",
]
