"""What a server says about its tools, checked and named as ours."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from holdfast.canonical import JsonObject, encode_canonical_json, hash_sha256
from holdfast.mcp.schema import UnusableSchema, clean_schema
from holdfast.mcp.text import make_readable
from holdfast.policy import clean_name
from holdfast.settings import McpEndpoint
from holdfast.tools import Effect

PREFIX: Final = "mcp__"
MOST_TOOLS: Final = 128
MOST_LISTED_BYTES: Final = 1024 * 1024
_MOST_DESCRIPTION: Final = 4_000
_LONGEST_NAME: Final = 64
_LONGEST_REMOTE: Final = 128
_MARK_CHARS: Final = 8
_GLOB: Final = frozenset("*?[]{}")


@functools.cache
def _compile_not_ours() -> re.Pattern[str]:
    return re.compile(r"[^A-Za-z0-9_-]")


class RemoteTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server: `name` is what we call it, `remote` what the server does.

    `digest` is over all that the server says of it, so that a change does not go unnoticed.
    """

    endpoint: str
    remote: str
    name: str
    description: str
    schema: JsonObject
    effect: Effect
    digest: str

    @property
    def target(self) -> str:
        """What patterns of rules are matched against."""
        return f"{self.endpoint}/{self.remote}"


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server that is not offered to any caller, and why."""

    tool: str
    because: str


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a server offers, and what of it cannot be taken."""

    tools: tuple[RemoteTool, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


def read_offer(name: str, endpoint: McpEndpoint, listed: Sequence[JsonObject]) -> Offer:
    """Return the tools of a listing; what is malformed, too much or not wanted is left out.

    Nothing that a server lists makes this fail.
    """
    out: list[LeftOut] = []
    fitting: list[tuple[str, JsonObject]] = []
    seen = Counter(str(one.get("name", "")) for one in listed)
    size = 0
    for one in listed:
        remote = one.get("name")
        if not isinstance(remote, str) or not is_name(remote):
            out.append(
                _compute_left(
                    remote, "its name is empty, too long, holds a wildcard, or cannot be printed"
                )
            )
            continue
        if not any(fnmatch.fnmatchcase(remote, pattern) for pattern in endpoint.tools):
            continue
        size += _measure_size(one)
        if seen[remote] > 1:
            out.append(_compute_left(remote, "the server lists more than one tool of this name"))
        elif len(fitting) >= MOST_TOOLS:
            out.append(_compute_left(remote, f"more than {MOST_TOOLS} tools; name some in `tools`"))
        elif size > MOST_LISTED_BYTES:
            out.append(
                _compute_left(remote, "all tools together are too large; name some in `tools`")
            )
        else:
            fitting.append((remote, one))
    names = name_tools(name, [remote for remote, _ in fitting])
    tools: list[RemoteTool] = []
    for remote, one in fitting:
        try:
            tools.append(_make_tool(name, endpoint, remote, names[remote], one))
        except UnusableSchema as error:
            out.append(_compute_left(remote, str(error)))
    return Offer(tools=tuple(tools), left_out=tuple(out))


def is_name(remote: str) -> bool:
    """Say whether a tool can be called so: a rule for it must not mean others as well."""
    is_short = 0 < len(remote) <= _LONGEST_REMOTE
    return (
        is_short and remote.isprintable() and remote == remote.strip() and not _GLOB & set(remote)
    )


def name_tools(endpoint: str, remotes: Iterable[str]) -> dict[str, str]:
    """Return our name for each tool of an endpoint: `mcp__<endpoint>__<tool>`.

    Names that would be too long, hold other characters, or could be taken for one another get
    a mark of their own, the same whatever else is listed after the clash is there.
    """
    remotes = list(remotes)
    plain = Counter(clean_name(_compile_not_ours().sub("_", remote)) for remote in remotes)
    found: dict[str, str] = {}
    for remote in remotes:
        word = _compile_not_ours().sub("_", remote)
        name = f"{PREFIX}{endpoint}__{word}"
        is_clear = word == remote and plain[clean_name(word)] == 1
        if not is_clear or len(name) > _LONGEST_NAME:
            mark = hash_sha256(remote.encode())[:_MARK_CHARS]
            name = f"{name[: _LONGEST_NAME - _MARK_CHARS - 1]}_{mark}"
        found[remote] = name
    return found


def _make_tool(
    name: str, endpoint: McpEndpoint, remote: str, ours: str, said: JsonObject
) -> RemoteTool:
    text = said.get("description")
    described = make_readable(text, _MOST_DESCRIPTION) if isinstance(text, str) else ""
    try:
        digest = hash_sha256(encode_canonical_json(_extract_essence(said)))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UnusableSchema("what it says of itself has no JSON form") from error
    return RemoteTool(
        endpoint=name,
        remote=remote,
        name=ours,
        description=f"[Tool of the MCP server {name}] {described}".strip(),
        schema=clean_schema(said.get("inputSchema")),
        effect=_choose_effect(endpoint, said),
        digest=digest,
    )


def _extract_essence(said: JsonObject) -> JsonObject:
    """What a model or a person goes by; the rest may change from one listing to the next."""
    kept = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
    return {key: said[key] for key in kept if said.get(key) is not None}


def _choose_effect(endpoint: McpEndpoint, said: JsonObject) -> Effect:
    """What the server says of a call's effect counts only if the operator wants it to."""
    hints = said.get("annotations")
    if not endpoint.trust_annotations or not isinstance(hints, dict):
        return "unsafe"
    if hints.get("readOnlyHint") is True:
        return "read"
    return "idempotent" if hints.get("idempotentHint") is True else "unsafe"


def _compute_left(remote: object, because: str) -> LeftOut:
    return LeftOut(tool=make_readable(str(remote), 80), because=because)


def _measure_size(one: JsonObject) -> int:
    try:
        return len(msgspec.json.encode(one))
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError):
        return 0


__all__ = ["MOST_TOOLS", "PREFIX", "LeftOut", "Offer", "RemoteTool", "name_tools", "read_offer"]
