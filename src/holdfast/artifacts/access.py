"""Who may do what to an artifact: a pure decision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.artifacts.artifact import Access, Artifact
from holdfast.artifacts.catalogue import GrantRow

_RANKS: Final[dict[Access, int]] = {"read": 1, "write": 2, "admin": 3}


class ArtifactActor(msgspec.Struct, frozen=True, kw_only=True):
    """In whose name something is done to artifacts, and where it comes from.

    `subject` is a person, a key, or a session (`session:ID`): an agent at work is not the person
    it works for, and has the rights of its session only. `owner` is whose the saved ones are, if
    not the subject's. `session_id` and `project_id` say in which conversation and project;
    `run_id` and `call_id` are noted as the origin of what is saved. `is_admin` is the owner of
    the state directory, or a caller with the scope `artifacts:admin`.
    """

    tenant: str
    subject: str
    owner: str = ""
    user: str = ""
    session_id: str = ""
    project_id: str = ""
    run_id: str = ""
    call_id: str = ""
    is_admin: bool = False


def allows(given: Access | None, wanted: Access) -> bool:
    """Say whether a right includes another one: admin includes write, write includes read."""
    return given is not None and _RANKS[given] >= _RANKS[wanted]


def find_access(
    artifact: Artifact, actor: ArtifactActor, grants: Iterable[GrantRow], now: float
) -> Access | None:
    """Return what an actor may do to an artifact, `None` if it does not exist for them.

    Another tenant's never exists. The owner, and admins, may do everything. Who works in its
    session, is its user or works in its project may write; all of its tenant may read what
    belongs to the tenant. Others have what they were given, until it expires.
    """
    if artifact.tenant != actor.tenant:
        return None
    if actor.is_admin or (artifact.owner and artifact.owner == actor.subject):
        return "admin"
    found: list[Access] = [
        grant.access
        for grant in grants
        if grant.subject and grant.subject == actor.subject and now < grant.expires_at
    ]
    if artifact.scope == "tenant":
        found.append("read")
    elif _is_within(artifact, actor):
        found.append("write")
    return max(found, key=_RANKS.__getitem__, default=None)


def _is_within(artifact: Artifact, actor: ArtifactActor) -> bool:
    match artifact.scope:
        case "session":
            return bool(actor.session_id) and artifact.session_id == actor.session_id
        case "user":
            return bool(actor.user) and artifact.scope_id == actor.user
        case "project":
            return bool(actor.project_id) and artifact.scope_id == actor.project_id
        case _:
            return False


__all__ = ["ArtifactActor", "allows", "find_access"]
