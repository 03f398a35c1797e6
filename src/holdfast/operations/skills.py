"""Skills: which hold for a directory, and who vouches for them."""

from __future__ import annotations

from holdfast.operations.caller import Caller
from holdfast.operations.local_values import LocalPath
from holdfast.operations.operation import local, operation
from holdfast.runtime import Runtime
from holdfast.skills import Skill, SkillCatalog


@local("put its folder below the project's or the user's skills")
async def register(runtime: Runtime, /, skill: Skill) -> None:
    """Offer a skill to every agent of this client.

    Raises:
        AlreadyExists: a skill of this name was registered.
    """
    runtime.skills.register(skill)


@operation("skills:read", also={"directory": "storage:admin"})
async def list_(
    runtime: Runtime, caller: Caller, /, directory: str | LocalPath | None = None
) -> SkillCatalog:
    """Return the skills that hold for a directory, trusted or not, with what is wrong."""
    if directory is not None:
        runtime.confinement.check_home(directory)
    return await runtime.skills.find(directory)


@operation("skills:admin")
async def trust(
    runtime: Runtime,
    caller: Caller,
    /,
    name: str,
    directory: str | LocalPath | None = None,
    *,
    revoke: bool = False,
) -> Skill:
    """Vouch for a project's skill as it is now, or take that back; raises NotFound."""
    if directory is not None:
        runtime.confinement.check_home(directory)
    return await runtime.skills.trust(name, directory, revoke=revoke)
