"""Policies: the ones in force, and reading them again."""

from __future__ import annotations

from holdfast.operations.caller import Caller, acting_as
from holdfast.operations.operation import local, operation
from holdfast.policy import PolicyStatus, PolicyStore, Reload
from holdfast.runtime import Runtime


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


@operation("policies:admin")
async def reload(runtime: Runtime, caller: Caller, /, *, asked_by: str = "") -> Reload:
    """Read the policy files again; wrong ones change nothing, and say so.

    Every other process on the same records follows within a second.
    """
    return await (await runtime.load_policies_once()).reload(asked_by=acting_as(caller, asked_by))
