"""How commands are confined: what a runner is made with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from holdfast.sandbox.launch import ServesEgress
from holdfast.sandbox.profiles import Profile, SandboxLimits
from holdfast.settings import UnvouchedSettings

LevelChoice: TypeAlias = Literal["auto", "bubblewrap", "landlock"]


class SandboxOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How commands are confined.

    `readable` and `writable` are further paths that they may read, or also write, whatever
    the profile says of the workspace. `hidden` are paths that they must not see although they
    may be within reach (the state directory, for example); what the rules of the workspace keep
    from being read is hidden as well. `read_only` are paths within reach that they must not
    write; `unvouched` keeps those that are missing from being obeyed once a command has made them.
    `egress` is the proxy of the filtered profiles, and the only thing that they reach.
    `level` is for tests and for those who must insist: `auto` takes the strongest that works.
    """

    profile: Profile = "workspace-write"
    limits: SandboxLimits = msgspec.field(default_factory=SandboxLimits)
    level: LevelChoice = "auto"
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    unvouched: UnvouchedSettings | None = None
    egress: ServesEgress | None = None
    with_namespaces: bool = True
