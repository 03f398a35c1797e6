"""Policies: the ones in force, what they make of a call, and reading them again."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec

from holdfast.canonical import JsonObject
from holdfast.errors import PolicyInvalid, UsageError
from holdfast.operations.caller import Caller, resolve_actor
from holdfast.operations.operation import local, operation
from holdfast.policy import (
    Action,
    PolicyBundle,
    PolicyStatus,
    PolicyStore,
    Reload,
    load_policies,
    make_request,
)
from holdfast.policy import (
    explain as explain_request,
)
from holdfast.policy import (
    replay as replay_calls,
)
from holdfast.runtime import Runtime, read_recorded_calls

FILES: Final = ("network.yaml", "paths.yaml", "tools.yaml")
_MOST_CHARACTERS: Final = 512 * 1024
_MOST_CALLS: Final = 100_000


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """The policies in force: their version, and what each file says."""

    version: str
    files: tuple[str, ...]
    is_net_allowed: bool
    tools: JsonObject
    network: JsonObject
    paths: JsonObject


class PolicyCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether policy files can be put in force; every mistake with its line."""

    is_valid: bool
    version: str = ""
    files: tuple[str, ...] = ()
    mistakes: tuple[str, ...] = ()


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule as it met a call; without a permission it is the default."""

    source: str
    action: Action
    target: str
    permission: str = ""
    pattern: str = ""
    is_match: bool = True
    is_decisive: bool = False


class PolicyVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the policies make of a call, and by which rules."""

    action: Action
    because: str
    policy_version: str
    rules: tuple[PolicyRule, ...]


class ReplayedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded call that would be decided differently."""

    session_id: str
    call_id: str
    agent: str
    tool: str
    targets: tuple[str, ...]
    before: Action
    after: Action
    rule: str
    is_looser: bool


class PolicyReplay(msgspec.Struct, frozen=True, kw_only=True):
    """How many recorded calls were judged again, and which would change."""

    policy_version: str
    calls: int
    changes: tuple[ReplayedCall, ...]


@local("use the operations of `policies`")
async def store(runtime: Runtime, /) -> PolicyStore:
    """Return the policies in force, read with the first call.

    Raises:
        PolicyInvalid: a policy file is wrong, or one of the candidate's in
            `policies.shadow_dir`; no run begins until it is corrected.
    """
    return await runtime.load_policies_once()


@operation("policies:read")
async def status(runtime: Runtime, caller: Caller, /) -> PolicyStatus:
    """Return the version in force here, and why newer files were refused, if they were.

    Raises:
        PolicyInvalid: there is none in force, because the files are wrong since the start.
    """
    return (await runtime.load_policies_once()).status


@operation("policies:read")
async def get(runtime: Runtime, caller: Caller, /) -> PolicyView:
    """Return the policies in force.

    Raises:
        PolicyInvalid: a policy file is wrong.
    """
    bundle = (await runtime.load_policies_once()).bundle
    return PolicyView(
        version=bundle.version,
        files=tuple([Path(file).name for file in bundle.files]),
        is_net_allowed=bundle.is_net_allowed,
        tools=bundle.tools.model_dump(mode="json"),
        network=bundle.network.model_dump(mode="json"),
        paths=bundle.paths.model_dump(mode="json"),
    )


@operation("policies:read")
async def validate(
    runtime: Runtime, caller: Caller, /, files: Mapping[str, str] | None = None
) -> PolicyCheck:
    """Check policy files, and name every mistake with its line; nothing is put in force.

    `files` are texts by name (`tools.yaml`, `network.yaml`, `paths.yaml`); without them the
    files that the next reload would read.
    """
    try:
        bundle = await _read(runtime, files)
    except PolicyInvalid as error:
        listed = error.context.get("mistakes")
        mistakes = listed if isinstance(listed, list) else [str(error)]
        return PolicyCheck(is_valid=False, mistakes=tuple(map(str, mistakes)))
    names = tuple([Path(file).name for file in bundle.files])
    return PolicyCheck(is_valid=True, version=bundle.version, files=names)


@operation("policies:read")
async def explain(
    runtime: Runtime,
    caller: Caller,
    /,
    tool: str,
    *,
    kind: Literal["none", "path", "command", "host", "text"] = "none",
    target: str = "*",
    agent: str = "",
    files: Mapping[str, str] | None = None,
) -> PolicyVerdict:
    """Say what the policies make of a call, and by which rules.

    `target` is what the call touches, and `kind` what that is; without `agent`, the default one
    makes it. With `files`, under those texts instead of the policies in force. Rules of agents and
    sessions may be stricter still.

    Raises:
        PolicyInvalid: a policy file is wrong.
    """
    bundle = await _choose(runtime, files)
    request = make_request(tool, kind, target)
    told = explain_request(
        request,
        bundle.find_ceiling(agent or runtime.settings.default_agent),
        policy_version=bundle.version,
    )
    return PolicyVerdict(
        action=told.decision.action,
        because=told.decision.explain(),
        policy_version=bundle.version,
        rules=tuple(
            [
                PolicyRule(
                    source=line.source,
                    action=line.action,
                    target=line.target,
                    permission=line.rule.permission if line.rule else "",
                    pattern=line.rule.pattern if line.rule else "",
                    is_match=line.is_match,
                    is_decisive=line.is_decisive,
                )
                for line in told.lines
            ]
        ),
    )


@operation("policies:read")
async def replay(
    runtime: Runtime,
    caller: Caller,
    /,
    *,
    session_id: str = "",
    limit: int = 10_000,
    files: Mapping[str, str] | None = None,
) -> PolicyReplay:
    """Judge recorded calls again, of one session or of all: which decisions would change?

    With `files`, under those texts instead of the policies in force.

    Raises:
        NotFound: there is no such session.
        PolicyInvalid: a policy file is wrong.
    """
    if not 1 <= limit <= _MOST_CALLS:
        raise UsageError(detail=f"A limit is a number from 1 to {_MOST_CALLS}.")
    bundle = await _choose(runtime, files)
    wanted = (await runtime.sessions.get_session(session_id)).id if session_id else ""
    calls = await read_recorded_calls(runtime.journal, session_id=wanted, limit=limit)
    changes = [
        ReplayedCall(
            session_id=one.call.session_id,
            call_id=one.call.call_id,
            agent=one.call.agent,
            tool=one.call.request.permission,
            targets=tuple(one.call.request.targets),
            before=one.before,
            after=one.after,
            rule=f"{one.rule.permission} {one.rule.pattern} {one.rule.action}" if one.rule else "",
            is_looser=one.is_looser,
        )
        for one in replay_calls(calls, bundle.find_ceiling)
    ]
    return PolicyReplay(policy_version=bundle.version, calls=len(calls), changes=tuple(changes))


@operation("policies:admin")
async def reload(runtime: Runtime, caller: Caller, /, *, asked_by: str = "") -> Reload:
    """Read the policy files again; wrong ones change nothing, and say so.

    Every other process on the same records follows within a second.
    """
    return await (await runtime.load_policies_once()).reload(
        asked_by=resolve_actor(caller, asked_by)
    )


async def _choose(runtime: Runtime, files: Mapping[str, str] | None) -> PolicyBundle:
    if files is None:
        return (await runtime.load_policies_once()).bundle
    return await _read(runtime, files)


async def _read(runtime: Runtime, files: Mapping[str, str] | None) -> PolicyBundle:
    """Return the policies of these texts, or of the files as they are now."""
    is_net_allowed = runtime.settings.network.allow_net
    if files is None:
        place = runtime.settings.policies.dir
        return await asyncio.to_thread(load_policies, place, is_net_allowed=is_net_allowed)
    for name in files:
        if name not in FILES:
            raise UsageError(detail=f"{name!r:.100} is no policy file; {', '.join(FILES)} are.")
    if sum(map(len, files.values())) > _MOST_CHARACTERS:
        raise UsageError(detail=f"Policy files have at most {_MOST_CHARACTERS} characters.")

    def load() -> PolicyBundle:
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                (Path(folder) / name).write_text(text, encoding="utf-8")
            return load_policies(Path(folder), is_net_allowed=is_net_allowed)

    return await asyncio.to_thread(load)
